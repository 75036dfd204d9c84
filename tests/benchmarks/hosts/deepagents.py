"""What toolscope adds to a run of a deep agent, over a middleware that does nothing.

The main agent alone: a worker costs as much again. See `tests.benchmarks.hosts.langchain`.

    python -m tests.benchmarks.hosts.deepagents
"""

from deepagents import create_deep_agent

from tests.benchmarks.hosts.langchain import main

if __name__ == "__main__":
    main(create_deep_agent)
