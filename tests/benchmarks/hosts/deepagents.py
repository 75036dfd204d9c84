"""What toolscope adds to a run of a deep agent, over a middleware that does nothing.

The main agent alone: a worker costs as much again. See `tests.benchmarks.hosts.langchain`.

    python -m tests.benchmarks.hosts.deepagents
"""

from deepagents import create_deep_agent

from tests.benchmarks.hosts import langchain
from tests.benchmarks.hosts.turns import Share, report

ROUNDS = 100


def shares(rounds: int = ROUNDS) -> list[Share]:
    """The shares of the sync and of the async hooks."""
    return langchain.shares(rounds, create_deep_agent, "Deep Agents")


if __name__ == "__main__":
    report(shares())
