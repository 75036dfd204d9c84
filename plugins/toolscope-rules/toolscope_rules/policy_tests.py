"""Tests of a policy, as rows of data beside it.

A policy file may hold ``[[tests]]``, or another file holds them and names the ``policy``::

    [[tests]]
    tool = "run_shell"                        # or { name = "x", provider = "mcp:fs", tags = [] }
    scope = { origin = "tool", agent = "bot" }
    arguments = { command = "git push" }
    expect = "deny"                           # allow | ask | deny | withheld
    rule = "no-push"                          # a rule that must be among those that decide

A withheld tool meets ``deny`` as well. The rows are asked of the policy alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from toolscope.errors import ConfigurationError, Fault, ScopeError, ToolsetError, nearest
from toolscope.model import Annotations, FrozenDict, Provider, Scope, Tool, freeze
from toolscope_rules.deciding import Decider
from toolscope_rules.diagnosis import known_tools
from toolscope_rules.explaining import explain
from toolscope_rules.reading import read_document, read_policy
from toolscope_rules.rules import Policy, Rule

__all__ = ["Failed", "Report", "Row", "read_tests", "run_tests"]

_OUTCOMES: Final = ("allow", "ask", "deny", "withheld")
_ROW_KEYS: Final = ("name", "tool", "scope", "arguments", "expect", "rule")
_TOOL_KEYS: Final = ("name", "provider", "own_name", "tags", "former_names", "annotations")


@attrs.frozen(kw_only=True)
class Row:
    """One test: what is asked, and what is expected. ``place`` is ``FILE:LINE``."""

    place: str
    name: str
    tool: Tool
    scope: Scope
    arguments: FrozenDict
    expect: str
    rule: str | None = None


@attrs.frozen(kw_only=True)
class Failed:
    """A row that did not come out as expected, with the policy's explanation."""

    row: Row
    outcome: str
    rules: tuple[str, ...]
    explanation: tuple[str, ...]

    def __str__(self) -> str:
        row = self.row
        expected = row.expect if row.rule is None else f"{row.expect} by {row.rule}"
        got = self.outcome + (f" by {', '.join(self.rules)}" if self.rules else "")
        return "\n".join(
            [
                f"{row.place} {row.name}",
                f"  - {expected}",
                f"  + {got}",
                *(f"    {line}" for line in self.explanation),
            ]
        )


@attrs.frozen(kw_only=True)
class Report:
    """What came of all rows: those that failed, and rules that never counted in any row."""

    rows: int
    failed: tuple[Failed, ...]
    covered: int
    uncovered: tuple[str, ...]


def read_tests(path: Path) -> tuple[Policy, tuple[Row, ...]]:
    """The policy and the tests of a file, or the tests of a file and the policy that it names.

    Raises:
        ConfigurationError: Something of them is wrong; all faults.
    """
    document, lines = read_document(path)
    policy_path, policy_document, policy_lines = path, document, lines
    named = document.get("policy")
    if isinstance(named, str):
        policy_path = path.parent / named
        policy_document, policy_lines = read_document(policy_path)
        unknown = sorted(document.keys() - {"policy", "tests"})
        faults = [
            Fault(path=key, problem="unknown key", cure="known are policy, tests", source=path.name)
            for key in unknown
        ]
        if faults:
            raise ConfigurationError(f"the tests {path.name!r} are wrong", faults)
    policy, faults = read_policy(
        policy_document, policy_lines, source=policy_path.name, folder=policy_path.parent
    )
    rows = document.get("tests", [])
    if not isinstance(rows, list):
        rows = [rows]
    tests: list[Row] = []
    for place, row in enumerate(rows):
        line = lines.row("tests", place)
        source = path.name if line is None else f"{path.name}:{line}"
        try:
            tests.append(_row(row, place, source))
        except (ValueError, TypeError, ScopeError, ToolsetError) as error:
            faults.append(Fault(path=f"tests[{place}]", problem=str(error), source=source))
    if policy is None or faults:
        raise ConfigurationError(f"the tests {path.name!r} are wrong", faults)
    return policy, tuple(tests)


def _row(row: object, place: int, source: str) -> Row:
    table = _table("a test", row, _ROW_KEYS)
    if "tool" not in table:
        raise ValueError('it names no tool; write tool = "NAME" or "PROVIDER/OWN_NAME"')
    expect = table.get("expect")
    if expect not in _OUTCOMES:
        raise ValueError(f"expect is {expect!r}; allowed are {', '.join(_OUTCOMES)}")
    scope = dict(_table("the scope", table.get("scope", {}), _SCOPE_KEYS))
    if isinstance(scope.get("agent"), str):
        scope["agent"] = {"name": scope["agent"]}
    scope["ancestry"] = [
        one if one == "unknown" else {"attributes": {}, **_table("an ancestor", one, None)}
        for one in scope.get("ancestry", ())
    ]
    tool = _tool(table["tool"])
    return Row(
        place=source,
        name=str(table.get("name", f"tests[{place}] of {tool.identity}")),
        tool=tool,
        scope=Scope.from_json({**_BLANK_SCOPE, **scope}),
        arguments=freeze(_table("the arguments", table.get("arguments", {}), None)),
        expect=expect,
        rule=table.get("rule"),
    )


_BLANK_SCOPE: Final = {"schema": 1, "can_ask": False, "ancestry": [], "attributes": {}}
_SCOPE_KEYS: Final = ("origin", "agent", "ancestry", "can_ask", "subject", "attributes")


def _tool(given: object) -> Tool:
    if isinstance(given, str):
        return known_tools([given])[0]
    table = dict(_table("the tool", given, _TOOL_KEYS))
    if "name" not in table:
        raise ValueError("the tool has no name")
    if "provider" in table:
        table["provider"] = Provider.parse(table["provider"])
    if "annotations" in table:
        hints = [field.name for field in attrs.fields(Annotations)]
        table["annotations"] = Annotations(**_table("annotations", table["annotations"], hints))
    return Tool(**table)


def _table(what: str, given: object, known: Sequence[str] | None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} is a {type(given).__name__}, not a table")  # noqa: TRY004
    for key in given if known is not None else ():
        if key not in (known or ()):
            near = nearest(str(key), known or (), 1)
            cure = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known or ())}"
            raise ValueError(f"{what} has an unknown key {key!r}; {cure}")
    return given


def run_tests(policy: Policy, rows: Sequence[Row]) -> Report:
    """Asks the policy every row."""
    decider = Decider(policy)
    failed: list[Failed] = []
    counted: set[str] = set()
    for row in rows:
        outcome, rules = _ask(decider, row)
        counted.update(rule.id for rule in rules)
        ids = tuple(rule.id for rule in rules)
        met = outcome == row.expect or (outcome == "withheld" and row.expect == "deny")
        if met and (row.rule is None or row.rule in ids):
            continue
        failed.append(
            Failed(
                row=row,
                outcome=outcome,
                rules=ids or ("the default",),
                explanation=explain(decider, row.arguments, row.tool, row.scope),
            )
        )
    uncovered = tuple(policy.place(rule) for rule in policy.rules if rule.id not in counted)
    return Report(
        rows=len(rows),
        failed=tuple(failed),
        covered=len(policy.rules) - len(uncovered),
        uncovered=uncovered,
    )


def _ask(decider: Decider, row: Row) -> tuple[str, list[Rule]]:
    """The outcome, and the rules that decided it; none where the default did."""
    applying = [
        one.rule for one in decider.outcomes(row.arguments, row.tool, row.scope) if one.applies
    ]
    if row.tool in decider.withheld([row.tool], row.scope):
        outcome = "withheld"
    else:
        verdict = decider.on_call(row.arguments, row.tool, row.scope)
        outcome = "allow" if verdict is None else str(verdict.effect)
    effect = "deny" if outcome == "withheld" else outcome
    return outcome, [rule for rule in applying if rule.effect == effect]
