"""500 name patterns against an fnmatch loop: ``python tests/benchmarks/patterns.py``.

Both find, for every tool of a fresh list, which of 500 patterns its name matches. Everything is
cold: the patterns are compiled, and no name was seen before. The two are run alternately, and the
median of the ratios within one round is printed. The second line is the whole plugin: 500 deny
rules of one pattern each, from compiled rules to the answer of ``filter_tools``, against a loop
that asks the rules in turn.
"""

import fnmatch
import statistics
import time
from collections.abc import Callable

import attrs
from toolscope_rules.deciding import Decider
from toolscope_rules.patterns import Pattern, PatternIndex
from toolscope_rules.rules import Policy, Rule
from toolscope_rules.selectors import read_selector

from toolscope.model import Scope, Tool
from toolscope.verdicts import Effect

ROUNDS = 7
PATTERNS = 500
NAMES = 1000

VERBS = ["get", "list", "create", "delete", "update", "merge", "run", "send"]
NOUNS = ["issue", "branch", "file", "page", "row", "mail", "event", "user", "task", "note"]


def patterns() -> list[str]:
    """60 % whole names, 25 % ``text*``, 10 % ``*text``, 5 % with the text inside."""
    made = []
    for i in range(PATTERNS):
        name = f"{VERBS[i % 8]}_{NOUNS[i // 8 % 10]}_{i}"
        share = i % 20
        if share < 12:
            made.append(name)
        elif share < 17:
            made.append(f"{name}*")
        elif share < 19:
            made.append(f"*_{i}")
        else:
            made.append(f"*{NOUNS[i % 10]}_{i}*")
    return made


def names(round_: int) -> list[str]:
    """Names that were never seen before; about one in seven matches something."""
    return [
        f"{VERBS[i % 8]}_{NOUNS[i // 8 % 10]}_{i}{'' if i % 7 else f'_{round_}x'}"
        if i % 3
        else f"tool_{round_}_{i}"
        for i in range(NAMES)
    ]


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def by_loop(made: list[str], texts: list[str]) -> list[list[int]]:
    """The patterns that each name matches, by asking all of them."""
    return [
        [i for i, pattern in enumerate(made) if fnmatch.fnmatchcase(text, pattern)]
        for text in texts
    ]


def by_index(made: list[Pattern], texts: list[str], *, generous: bool) -> list[int]:
    """The same, as bits."""
    index = PatternIndex([(one, 1 << i) for i, one in enumerate(made)], generous=generous)
    return [index.owners(text) for text in texts]


def by_plugin(policy: Policy, tools: list[Tool]) -> int:
    """How many tools the rules withhold."""
    return len(Decider(policy).withheld(tools, Scope(origin="user")))


@attrs.frozen(kw_only=True)
class Measured:
    """What one of the ways took, in seconds, and how many times less that is than the loop."""

    what: str
    seconds: float
    ratio: float


def measure(rounds: int = ROUNDS) -> list[Measured]:
    """The loop, the index of both kinds, and the plugin; every round finds what the loop finds."""
    texts = patterns()
    read = [Pattern(text) for text in texts]
    rules = tuple(
        Rule(id=f"r{i}", effect=Effect.DENY, tools=(read_selector(text),))
        for i, text in enumerate(texts)
    )
    ways: dict[str, Callable[[list[str], list[Tool]], object]] = {
        "fnmatch loop": lambda some, _: by_loop(texts, some),
        "PatternIndex, exact": lambda some, _: by_index(read, some, generous=False),
        "PatternIndex, generous": lambda some, _: by_index(read, some, generous=True),
        "500 deny rules, listing": lambda _, tools: by_plugin(Policy(rules=rules), tools),
    }
    taken: dict[str, list[float]] = {what: [] for what in ways}
    for round_ in range(rounds):
        some = names(round_)
        tools = [Tool(name=name) for name in some]
        for what, way in ways.items():
            taken[what].append(seconds(lambda: way(some, tools)))  # noqa: B023  (run at once)
        matched = by_loop(texts, some)
        as_bits = by_index(read, some, generous=False)
        assert as_bits == [sum(1 << i for i in one) for one in matched]
    loop = taken["fnmatch loop"]
    return [
        Measured(
            what=what,
            seconds=statistics.median(row),
            ratio=statistics.median(a / b for a, b in zip(loop, row, strict=True)),
        )
        for what, row in taken.items()
    ]


def main() -> None:
    """Prints the times and the ratios."""
    print(f"{PATTERNS} patterns, {NAMES} names, {ROUNDS} rounds; median times, cold")
    for one in measure():
        print(f"  {one.what:23} {one.seconds * 1e3:8.2f} ms   {one.ratio:6.1f} x less")


if __name__ == "__main__":
    main()
