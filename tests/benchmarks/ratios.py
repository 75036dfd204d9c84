"""The performance goals as ratios inside one run.

The cases of a goal are timed in turn, round by round, and the median of the in-round ratios is
quoted: absolute times drift by a factor of two on shared machines, ratios inside one round do not.

    uv run python -m tests.benchmarks.ratios [--json] [--goal P1 ...] [--rounds N]
    uv run --group peers python -m tests.benchmarks.ratios        # with the peers of P2 and P6

Goals whose parts are not installed are skipped, with the reason. P9 is measured in
``tests/benchmarks/patterns.py`` and P12 in ``tests/benchmarks/hosts/``.
"""

import argparse
import asyncio
import gc
import importlib
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from tests.benchmarks import peers, policy
from tests.benchmarks.hosts.turns import LIMIT
from toolscope import Effect, PolicyEngine, Scope, Tool, ToolCall, Toolset
from toolscope.calls import CallLedger

Timed = Callable[[], object]
ROUNDS = 15


@attrs.frozen(kw_only=True)
class Figure:
    """One measured figure beside its goal; ``limit`` is an upper bound unless ``at_least``.

    A figure without a limit is for the record.
    """

    goal: str
    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def reached(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@attrs.frozen(kw_only=True)
class Skipped:
    """A goal that could not be measured here."""

    goal: str
    why: str


def microseconds(case: Timed, repeat: int) -> float:
    """One timing of ``repeat`` calls, per call, with the collector off."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(repeat):
            case()
        return (time.perf_counter() - started) / repeat * 1e6
    finally:
        gc.enable()


def in_turn(cases: Mapping[str, tuple[Timed, int]], rounds: int) -> dict[str, list[float]]:
    """Times every case once a round, in turn, ``rounds`` times; the first round is thrown away."""
    timings: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds + 1):
        for name, (case, repeat) in cases.items():
            timings[name].append(microseconds(case, repeat))
    return {name: measured[1:] for name, measured in timings.items()}


def repeats(size: int) -> int:
    """How often a list of this size is made at a time.

    What is new is the toolset or the scope, not the code: after the collector has run, a single
    call would be timed with the processor's caches empty.
    """
    return max(1, 5_000 // size)


def ratio(timings: Mapping[str, list[float]], over: str, under: str) -> float:
    """The median of the in-round ratios."""
    return statistics.median(a / b for a, b in zip(timings[over], timings[under], strict=True))


def by_hand(tools: Sequence[Tool], scope: Scope) -> Timed:
    """The list by hand."""
    return lambda: policy.bare_list(tools, scope)


def filtering(made: PolicyEngine, toolsets: Iterator[Toolset], scope: Scope) -> Timed:
    """A listing of the next toolset, which the engine has not seen."""
    return lambda: made.filter_tools(next(toolsets), scope)


def engine() -> PolicyEngine:
    return PolicyEngine(policy.plugins())


def checked(size: int) -> tuple[list[Tool], Scope, PolicyEngine]:
    """Tools, scope and engine, after the engine and the hand-written form were seen to agree."""
    tools, scope, made = policy.tools(size), policy.scope(size), engine()
    listed = list(made.filter_tools(Toolset(tools), scope))
    if listed != policy.bare_list(tools, scope) or not 0 < len(listed) < size:
        raise SystemExit("the forms of the policy disagree about the list")
    return tools, scope, made


# --- lists ------------------------------------------------------------------------------------


def p1(rounds: int) -> Iterator[Figure | Skipped]:
    for size in (100, 1_000, 10_000):
        tools, scope, made = checked(size)
        repeat = repeats(size)
        fresh = iter([Toolset(tools) for _ in range((rounds + 1) * repeat)])
        timings = in_turn(
            {
                "bare": (by_hand(tools, scope), repeat),
                "cold": (filtering(made, fresh, scope), repeat),
            },
            rounds,
        )
        what = f"filter_tools cold, 5 rules, N={size:,}, over bare"
        yield Figure(
            goal="P1", what=what, value=ratio(timings, "cold", "bare"), unit="x", limit=1.6
        )


def p2(rounds: int) -> Iterator[Figure | Skipped]:
    limits = {"agent-tool-firewall": 12, "agent-os-kernel": 20, "cedarpy": 100, "cpex": 150}
    found = peers.available()
    if not found:
        yield Skipped(goal="P2", why="no peer is installed; use the dependency group 'peers'")
    tools, scope, made = checked(1_000)
    for peer in found:
        if peer.filter(tools, scope) != policy.bare_list(tools, scope):
            raise SystemExit(f"{peer.name} decides the list otherwise")
        few = max(3, rounds // 3)
        fresh = iter([Toolset(tools) for _ in range(few + 1)])
        timings = in_turn(
            {
                "peer": (lambda p=peer: p.filter(tools, scope), 1),  # type: ignore[misc]
                "cold": (filtering(made, fresh, scope), 1),
            },
            few,
        )
        yield Figure(
            goal="P2",
            what=f"{peer.name} over filter_tools cold, N=1,000",
            value=ratio(timings, "peer", "cold"),
            unit="x",
            limit=limits[peer.name],
            at_least=True,
        )


def p3(rounds: int) -> Iterator[Figure | Skipped]:
    for size in (1_000, 10_000):
        tools, scope, made = checked(size)
        toolset, repeat = Toolset(tools), repeats(size)
        made.filter_tools(toolset, scope)
        unseen = iter(
            [
                attrs.evolve(scope, agent=policy.scope(size, seed=seed).agent)
                for seed in range(1, (rounds + 1) * repeat + 1)
            ]
        )
        timings = in_turn(
            {
                "bare": (by_hand(tools, scope), repeat),
                "unseen": (lambda m=made, t=toolset, u=unseen: m.filter_tools(t, next(u)), repeat),  # type: ignore[misc]
            },
            rounds,
        )
        what = f"a new allowlist on a known toolset, N={size:,}, over bare"
        yield Figure(
            goal="P3", what=what, value=ratio(timings, "unseen", "bare"), unit="x", limit=0.5
        )


def p4(rounds: int) -> Iterator[Figure | Skipped]:
    for size in (10, 1_000, 10_000):
        tools, scope, made = policy.tools(size), policy.scope(size), engine()
        toolset = Toolset(tools)
        made.filter_tools(toolset, scope)
        timings = in_turn(
            {"seen": (lambda m=made, t=toolset, s=scope: m.filter_tools(t, s), 2_000)},  # type: ignore[misc]
            rounds,
        )
        what = f"a listing seen before, N={size:,}"
        value = statistics.median(timings["seen"])
        yield Figure(goal="P4", what=what, value=value, unit="us", limit=2.0)
    for size in (1_000, 10_000):
        tools, scope, made = policy.tools(size), policy.scope(size), engine()
        toolset = Toolset(tools)
        answers = tuple(rule.answer(toolset, rule.key(scope)) for rule in made._list_rules)
        denied = {tool.name for answer in answers for tool in answer.verdicts}
        from toolscope.listings import make_listing

        timings = in_turn(
            {
                "floor": (lambda t=tools, d=denied: [x for x in t if x.name not in d], 5),  # type: ignore[misc]
                "known": (lambda t=toolset, s=scope, a=answers: make_listing(t, s, a, None), 5),  # type: ignore[misc]
            },
            rounds,
        )
        what = f"all answers known, combination new, N={size:,}, over floor"
        yield Figure(
            goal="P4", what=what, value=ratio(timings, "known", "floor"), unit="x", limit=1.0
        )


def p5(rounds: int) -> Iterator[Figure | Skipped]:
    sets: dict[int, Iterator[Toolset]] = {}
    cases: dict[str, tuple[Timed, int]] = {}
    for size in (1_000, 10_000):
        tools, scope, made = policy.tools(size), policy.scope(size), engine()
        sets[size] = iter([Toolset(tools) for _ in range((rounds + 1) * 4)])
        cases[str(size)] = (lambda m=made, s=scope, n=size: m.filter_tools(next(sets[n]), s), 4)  # type: ignore[misc]
    timings = in_turn(cases, rounds)
    value = ratio(timings, "10000", "1000") / 10
    what = "ns a tool at 10,000 over that at 1,000, cold"
    yield Figure(goal="P5", what=what, value=value, unit="x", limit=1.5)
    yield from _memory()


def _memory() -> Iterator[Figure]:
    """What one more scope costs on a known toolset, and what the first one costs."""
    size, scopes = 10_000, 50
    tools, made = policy.tools(size), engine()
    toolset = Toolset(tools)
    first = policy.scope(size)
    others = [
        attrs.evolve(first, agent=policy.scope(size, seed=seed).agent)
        for seed in range(1, scopes + 1)
    ]
    for scope in (first, *others):
        hash(scope)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made.filter_tools(toolset, first)
    one = tracemalloc.get_traced_memory()[0]
    for scope in others:
        made.filter_tools(toolset, scope)
    many = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    yield Figure(
        goal="P5",
        what="bytes a tool for the first scope, N=10,000",
        value=(one - before) / size,
        unit="B",
        limit=64,
    )
    yield Figure(
        goal="P5",
        what="bytes a tool for each further scope (new allowlist), N=10,000",
        value=(many - one) / size / scopes,
        unit="B",
        limit=64,
    )


# --- calls ------------------------------------------------------------------------------------


def _call_setup() -> tuple[PolicyEngine, Toolset, Scope, ToolCall, Mapping[str, Tool]]:
    tools, scope, made = checked(1_000)
    toolset = Toolset(tools)
    call = ToolCall(
        id="1", chat="c", name="tool_1",
        arguments={"command": "ls -l", "path": "/home/a", "amount": 3, "to": "a@example.test"},
    )  # fmt: skip
    decision = made.on_tool_call(call, toolset, scope)
    by_name = {tool.name: tool for tool in tools}
    if decision.effect is not Effect.ALLOW or not policy.bare_call(call, by_name["tool_1"], scope):
        raise SystemExit("the forms of the policy disagree about the call")
    return made, toolset, scope, call, by_name


def p6(rounds: int) -> Iterator[Figure | Skipped]:
    made, toolset, scope, call, by_name = _call_setup()
    cases: dict[str, tuple[Timed, int]] = {
        "bare": (lambda: policy.bare_call(call, by_name[call.name], scope), 5_000),
        "call": (lambda: made.on_tool_call(call, toolset, scope), 5_000),
    }
    found = peers.available()
    for peer in found:
        if not peer.call(call, by_name[call.name], scope):
            raise SystemExit(f"{peer.name} decides the call otherwise")
        cases[peer.name] = (lambda p=peer: p.call(call, by_name[call.name], scope), 200)  # type: ignore[misc]
    timings = in_turn(cases, rounds)
    what = "on_tool_call, 5 call rules and the listing, over bare"
    yield Figure(goal="P6", what=what, value=ratio(timings, "call", "bare"), unit="x", limit=5.0)
    limits = {"agent-tool-firewall": 4, "agent-os-kernel": 6, "cedarpy": 35, "cpex": 35}
    if not found:
        yield Skipped(
            goal="P6", why="the peers are not installed; use the dependency group 'peers'"
        )
    for peer in found:
        yield Figure(
            goal="P6",
            what=f"{peer.name} over on_tool_call",
            value=ratio(timings, peer.name, "call"),
            unit="x",
            limit=limits[peer.name],
            at_least=True,
        )


def p7(rounds: int) -> Iterator[Figure | Skipped]:
    made, toolset, scope, call, by_name = _call_setup()
    withheld = ToolCall(id="2", chat="c", name="tool_7")
    if made.on_tool_call(withheld, toolset, scope).effect is not Effect.DENY:
        raise SystemExit("tool_7 is not withheld")
    timings = in_turn(
        {
            "bare": (lambda: policy.bare_call(call, by_name[call.name], scope), 5_000),
            "deny": (lambda: made.on_tool_call(withheld, toolset, scope), 5_000),
            "record": (lambda: made.on_tool_call(withheld, toolset, scope).record(), 1_000),
        },
        rounds,
    )
    what = "denying a withheld tool, over bare"
    yield Figure(goal="P7", what=what, value=ratio(timings, "deny", "bare"), unit="x", limit=3.0)
    what = "the same with its decision record, over bare"
    yield Figure(goal="P7", what=what, value=ratio(timings, "record", "bare"), unit="x", limit=6.0)


def p8(rounds: int) -> Iterator[Figure | Skipped]:
    made, toolset, scope, call, _ = _call_setup()

    async def many() -> list[float]:
        ratios = []
        for _ in range(rounds + 1):
            started = time.perf_counter()
            for _ in range(5_000):
                await made.on_tool_call_async(call, toolset, scope)
            middle = time.perf_counter()
            for _ in range(5_000):
                made.on_tool_call(call, toolset, scope)
            ended = time.perf_counter()
            ratios.append((middle - started) / (ended - middle))
        return ratios[1:]

    value = statistics.median(asyncio.run(many()))
    what = "the async entry over the sync one, no async rule"
    yield Figure(goal="P8", what=what, value=value, unit="x", limit=1.25)


# --- patterns, hosts ----------------------------------------------------------------------------


def p9(rounds: int) -> Iterator[Figure | Skipped]:
    try:
        from tests.benchmarks.patterns import measure as measured
    except ImportError as error:
        yield Skipped(goal="P9", why=f"toolscope-rules is not installed ({error})")
        return
    _, *ours = measured(max(3, rounds // 2))
    for one in ours:
        # The goal is about the patterns; the plugin makes verdicts and masks of them as well.
        limit = 30.0 if one.what.startswith("PatternIndex") else None
        what = f"fnmatch loop over {one.what}, 500 patterns, cold"
        yield Figure(
            goal="P9", what=what, value=one.ratio, unit="x", limit=limit, at_least=limit is not None
        )


HOSTS = ("deepagents", "fastmcp", "langchain", "mcp", "openai_agents", "pydantic_ai")


def p12(rounds: int) -> Iterator[Figure | Skipped]:
    for host in HOSTS:
        try:
            module = importlib.import_module(f"tests.benchmarks.hosts.{host}")
        except ImportError as error:
            yield Skipped(goal="P12", why=f"{host} is not installed ({error})")
            continue
        for share in module.shares(module.ROUNDS * rounds // ROUNDS):
            yield Figure(
                goal="P12",
                what=f"{share.what}: our share of a hook call",
                value=share.microseconds,
                unit="us",
                limit=LIMIT,
            )


# --- reading, importing -------------------------------------------------------------------------


def p10(rounds: int) -> Iterator[Figure | Skipped]:
    try:
        from tests.benchmarks.reading import reading_ratio
    except ImportError as error:
        yield Skipped(goal="P10", why=f"tests.benchmarks.reading has no reading_ratio ({error})")
        return
    what = "reading a session with 1,000 tools, over lax cattrs"
    yield Figure(goal="P10", what=what, value=reading_ratio(rounds), unit="x", limit=1.1)


def p11(rounds: int) -> Iterator[Figure | Skipped]:
    # Both sides from compiled files, which an environment may not have for a source tree.
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache

        def import_(modules: str) -> float:
            timed = "import time; t = time.perf_counter()"
            done = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"{timed}; import {modules}; print(time.perf_counter() - t)",
                ],
                capture_output=True,
                check=True,
                text=True,
                env=environment,
            )
            return float(done.stdout)

        ratios = [
            import_("toolscope") / import_("pluggy, attrs, cattrs")
            for _ in range(max(rounds, 15) + 2)
        ]
    what = "import toolscope over importing pluggy, attrs and cattrs"
    value = statistics.median(ratios[2:])
    yield Figure(goal="P11", what=what, value=value, unit="x", limit=1.1)


# --- growth (no goal of its own: figures for the record) ------------------------------------------


def growth(rounds: int) -> Iterator[Figure | Skipped]:
    """Cost up to 100,000 tools, and as 10,000 distinct scopes meet one toolset."""
    few = max(3, rounds // 3)
    per_tool = []
    for size in (1_000, 10_000, 100_000):
        tools, scope, made = policy.tools(size), policy.scope(size), engine()
        fresh = iter([Toolset(tools) for _ in range(few + 1)])
        timings = in_turn({"cold": (filtering(made, fresh, scope), 1)}, few)
        per_tool.append(statistics.median(timings["cold"]) / size * 1_000)
        what = f"ns a tool, cold, N={size:,}"
        yield Figure(goal="growth", what=what, value=per_tool[-1], unit="ns")
    size = 1_000
    tools, made = policy.tools(size), engine()
    toolset = Toolset(tools)
    base = policy.scope(size)
    scopes = [attrs.evolve(base, subject=f"subject-{n}") for n in range(10_000)]
    tracemalloc.start()
    started = time.perf_counter()
    for scope in itertools.chain(scopes, scopes[-100:]):
        made.filter_tools(toolset, scope)
    spent = (time.perf_counter() - started) / (len(scopes) + 100) * 1e6
    kept = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    what = "us a scope, 10,000 distinct scopes on one toolset of 1,000 (traced)"
    yield Figure(goal="growth", what=what, value=spent, unit="us")
    what = "MB kept after them (256 listings and 256 answers a toolset)"
    yield Figure(goal="growth", what=what, value=kept, unit="MB")


def ledger(rounds: int) -> Iterator[Figure | Skipped]:
    """What the ledger adds to the engine's decision, for the record."""
    made, toolset, scope, call, _ = _call_setup()
    numbers = itertools.count()
    held = CallLedger(made)
    timings = in_turn(
        {
            "engine": (lambda: made.on_tool_call(call, toolset, scope), 2_000),
            "ledger": (
                lambda: held.on_tool_call(
                    attrs.evolve(call, id=f"call-{next(numbers)}"), toolset, scope
                ),
                2_000,
            ),
        },
        rounds,
    )
    what = "us a new call through the ledger in memory (call object included)"
    value = statistics.median(timings["ledger"])
    yield Figure(goal="ledger", what=what, value=value, unit="us")


GOALS: Mapping[str, Callable[[int], Iterator[Figure | Skipped]]] = {
    "P1": p1, "P2": p2, "P3": p3, "P4": p4, "P5": p5, "P6": p6, "P7": p7, "P8": p8, "P9": p9,
    "P10": p10, "P11": p11, "P12": p12, "growth": growth, "ledger": ledger,
}  # fmt: skip


def measure(goals: Sequence[str], rounds: int) -> list[Figure | Skipped]:
    """Every figure of these goals."""
    return [figure for goal in goals for figure in GOALS[goal](rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--goal", nargs="*", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    figures = measure(options.goal, options.rounds)
    if options.json:
        print(
            json.dumps(
                [
                    {"goal": f.goal, "skipped": f.why}
                    if isinstance(f, Skipped)
                    else {**attrs.asdict(f), "reached": f.reached}
                    for f in figures
                ],
                indent=2,
            )
        )
    else:
        for figure in figures:
            if isinstance(figure, Skipped):
                print(f"{figure.goal:7} skipped: {figure.why}")
                continue
            line = f"{figure.goal:7} {figure.what:68} {figure.value:9.2f} {figure.unit:2}"
            if figure.limit is not None:
                bound = ">=" if figure.at_least else "<="
                verdict = "reached" if figure.reached else "MISSED"
                line = f"{line} {bound} {figure.limit:g} {verdict}"
            print(line)
    missed = [f for f in figures if isinstance(f, Figure) and not f.reached]
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
