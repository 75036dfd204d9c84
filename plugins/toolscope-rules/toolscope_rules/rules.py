"""Rules and policies as values, and what they say of a tool and of a call.

Deny overrides ask, ask overrides allow, and where no rule applies the default does. Neither the
order of rules nor how specific they are matters. What an allow does is to spare a tool from the
default; it overrides no other rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from toolscope.model import UNKNOWN, Origin, Scope, Tool
from toolscope.verdicts import Effect
from toolscope_rules.conditions import Condition
from toolscope_rules.patterns import Pattern, PatternIndex
from toolscope_rules.selectors import Selector, SelectorIndex

__all__ = ["Policy", "Reach", "Rule", "Scopes", "Tools"]

Reach: TypeAlias = Literal["self", "subtree"]


@attrs.frozen(kw_only=True)
class Rule:
    """One rule, as written. None stands for a selector that was left out and so selects all.

    ``exceptions`` is the file's ``except``. ``attributes`` maps a name to the patterns of which a
    value must match one. ``line`` is where the rule begins in its file (1 = the first line).
    """

    id: str
    effect: Effect
    tools: tuple[Selector, ...] | None = None
    exceptions: tuple[Selector, ...] = ()
    origins: tuple[str, ...] | None = None
    agents: tuple[Pattern, ...] | None = None
    subjects: tuple[Pattern, ...] | None = None
    attributes: Mapping[str, tuple[Pattern, ...]] = attrs.field(factory=dict)
    reach: Reach = "self"
    when: Condition | None = None
    reason: str | None = None
    code: str | None = None
    listed: bool = False
    line: int | None = attrs.field(default=None, eq=False)

    @property
    def generous(self) -> bool:
        """Whether it matches generously: what narrows does, what spares from the default not."""
        return self.effect is not Effect.ALLOW


@attrs.frozen(kw_only=True)
class Policy:
    """A policy file's content. ``source`` is the name of the file, for verdicts and faults.

    ``trusted`` are patterns of providers whose hints count, ``absent_origin`` is how a chat without
    an origin counts, ``relative_to`` is the folder where relative paths start, ``known_tools`` are
    the tools that diagnostics compare selectors with (None = not known).
    """

    rules: tuple[Rule, ...] = ()
    default: Effect = Effect.ALLOW
    trusted: tuple[str, ...] = ()
    absent_origin: Literal["user", "tool"] = "user"
    relative_to: str | None = None
    known_tools: tuple[str, ...] | None = None
    source: str | None = attrs.field(default=None, eq=False)

    def place(self, rule: Rule) -> str:
        """``policy.toml:12 (ID)``: where a person finds the rule."""
        if self.source is None:
            return rule.id
        line = "" if rule.line is None else f":{rule.line}"
        return f"{self.source}{line} ({rule.id})"


# --------------------------------------------------------------------------------------------
# Which rules are about a tool
# --------------------------------------------------------------------------------------------


class Tools:
    """The tool selectors of all rules, compiled: bit *i* stands for rule *i*."""

    def __init__(self, policy: Policy) -> None:
        rules = policy.rules
        self._always = sum(1 << i for i, rule in enumerate(rules) if rule.tools is None)

        def index(generous: bool, entries: Iterable[tuple[Selector, int]]) -> SelectorIndex:
            return SelectorIndex(entries, generous=generous, trusted=policy.trusted)

        self._selected = [index(g, _selectors(rules, generous=g)) for g in (True, False)]
        self._spared = [index(not g, _exceptions(rules, generous=g)) for g in (True, False)]
        self._any_spared = any(rule.exceptions for rule in rules)

    def rules(self, tool: Tool) -> int:
        """The rules that are about this tool, as bits."""
        generous, exact = self._selected
        found = self._always | generous.owners(tool) | exact.owners(tool)
        if self._any_spared:
            generous, exact = self._spared
            found &= ~(generous.owners(tool) | exact.owners(tool))
        return found


def _selectors(rules: Sequence[Rule], *, generous: bool) -> Iterator[tuple[Selector, int]]:
    for place, rule in enumerate(rules):
        if rule.generous is generous:
            for selector in rule.tools or ():
                yield selector, 1 << place


def _exceptions(rules: Sequence[Rule], *, generous: bool) -> Iterator[tuple[Selector, int]]:
    for place, rule in enumerate(rules):
        if rule.generous is generous:
            for selector in rule.exceptions:
                yield selector, 1 << place


# --------------------------------------------------------------------------------------------
# Which rules are about a scope
# --------------------------------------------------------------------------------------------


class Scopes:
    """The scope selectors of all rules, compiled: bit *i* stands for rule *i*."""

    def __init__(self, policy: Policy) -> None:
        self._absent_origin = policy.absent_origin
        self._always = 0
        self._kept: dict[Scope, int] = {}
        self._tests: list[tuple[int, _ScopeTest]] = []
        for place, rule in enumerate(policy.rules):
            test = _ScopeTest(rule)
            if test.selects_all:
                self._always |= 1 << place
            else:
                self._tests.append((1 << place, test))

    def rules(self, scope: Scope) -> int:
        """The rules that are about this scope, as bits. Kept for as many scopes as an engine."""
        if not self._tests:
            return self._always
        found = self._kept.get(scope)
        if found is None:
            found = self._always
            for bit, test in self._tests:
                if test.meets(scope, self._absent_origin):
                    found |= bit
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[scope] = found
        return found


_MOST_KEPT: Final = 256


class _ScopeTest:
    """The scope selectors of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._origins = rule.origins
        generous = rule.generous
        self._agents = _index(rule.agents, generous)
        self._subjects = _index(rule.subjects, generous)
        self._attributes = [
            (name, PatternIndex([(one, 1) for one in patterns], generous=generous))
            for name, patterns in rule.attributes.items()
        ]
        self.selects_all = (
            self._origins is None
            and self._agents is None
            and self._subjects is None
            and not self._attributes
        )

    def meets(self, scope: Scope, absent_origin: str) -> bool:
        """Whether the scope, or with reach ``subtree`` any chat above it, meets all selectors."""
        if self._subjects is not None and (
            scope.subject is None or not self._subjects.owners(scope.subject)
        ):
            return False
        agent = None if scope.agent is None else scope.agent.name
        if self._one(scope.origin, agent, scope.attributes, absent_origin):
            return True
        if self._rule.reach == "self":
            return False
        return any(
            self._rule.generous
            if one is UNKNOWN
            else self._one(one.origin, one.agent, one.attributes, absent_origin)
            for one in scope.ancestry
        )

    def _one(
        self,
        origin: Origin | str | None,
        agent: str | None,
        attributes: Mapping[str, str | frozenset[str]],
        absent_origin: str,
    ) -> bool:
        if self._origins is not None and not self._has_origin(
            absent_origin if origin is None else origin, self._origins
        ):
            return False
        if self._agents is not None and (agent is None or not self._agents.owners(agent)):
            return False
        for name, patterns in self._attributes:
            value = attributes.get(name, ())
            values = (value,) if isinstance(value, str) else value
            if not any(patterns.owners(one) for one in values):
                return False
        return True

    def _has_origin(self, origin: str, wanted: tuple[str, ...]) -> bool:
        if origin in wanted:
            return True
        # A kind of chat that is not known counts as a tool's, where that narrows.
        return self._rule.generous and Origin.counted(origin) in wanted


def _index(patterns: tuple[Pattern, ...] | None, generous: bool) -> PatternIndex | None:
    if patterns is None:
        return None
    return PatternIndex([(one, 1) for one in patterns], generous=generous)
