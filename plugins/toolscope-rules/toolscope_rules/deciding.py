"""What a policy says of a tool in a scope, and of one call.

====================================================  ==========================
of the rules that are about the tool and the scope    the policy says
====================================================  ==========================
a deny whose condition holds or cannot be told        deny
else an ask whose condition holds or cannot be told   ask
else an allow whose condition holds                   nothing
none of these                                         the default
====================================================  ==========================

A tool is withheld where no arguments could pass: by a deny without a condition (unless it keeps
the tool ``listed``), and under ``default = "deny"`` where no allow and no ask is about it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs

from toolscope.model import Scope, Tool, Toolset
from toolscope.verdicts import Effect, Verdict, ask, deny
from toolscope_rules.matchers import Truth
from toolscope_rules.rules import Policy, Rule, Scopes, Tools

__all__ = ["Decider", "Outcome"]

DENIED: Final = (
    "a rule of the policy denies it; do the task without it, or tell the user that the policy "
    "stands in the way"
)
DENIED_WITH_THESE: Final = (
    "a rule of the policy denies it with these arguments; change them so that the rule does not "
    "apply, or tell the user that the policy stands in the way"
)
ASKED: Final = "a rule of the policy wants a person to approve it first"
NOT_CERTAIN: Final = "the arguments could not be read with certainty, so the rule counts"
NOT_ALLOWED: Final = (
    "no rule of the policy allows it; do the task with the tools that are there, or tell the user "
    "that the policy stands in the way"
)
NOT_ALLOWED_WITH_THESE: Final = (
    "no rule of the policy allows it with these arguments; change them to what is allowed, or tell "
    "the user that the policy stands in the way"
)
ASKED_BY_DEFAULT: Final = (
    "no rule of the policy allows it by itself, so a person has to approve it first"
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What one rule came to on one call. ``truth`` is that of its condition."""

    rule: Rule
    truth: Truth

    @property
    def applies(self) -> bool:
        """Whether the rule counts: unknown allows nothing and denies (asks) as written."""
        return self.truth is True or (self.truth is None and self.rule.generous)


class Decider:
    """A policy, compiled. It changes nothing and may be shared between threads."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._tools = Tools(policy)
        self._scopes = Scopes(policy)
        self._about: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[Toolset, dict[int, Mapping[Tool, Verdict]]] = (
            WeakKeyDictionary()
        )
        self._plans: WeakKeyDictionary[Tool, dict[int, Mapping[Effect, tuple[Rule, ...]]]] = (
            WeakKeyDictionary()
        )
        self._withholding = self._sparing = 0
        for place, rule in enumerate(policy.rules):
            if rule.effect is not Effect.DENY:
                self._sparing |= 1 << place
            elif rule.when is None and not rule.listed:
                self._withholding |= 1 << place
        self._verdicts: dict[tuple[object, ...], Verdict] = {}
        by_default = f"{policy.source or 'policy'} (default)"
        self._not_allowed = deny(NOT_ALLOWED, rule=by_default)
        self._not_allowed_with_these = deny(NOT_ALLOWED_WITH_THESE, rule=by_default)
        self._asked_by_default = ask(ASKED_BY_DEFAULT, rule=by_default)

    def listing(self, tools: Toolset, scope: Scope) -> Mapping[Tool, Verdict]:
        """As `withheld`, kept for each toolset: scopes that the same rules are about share it."""
        in_scope = self._scopes.rules(scope)
        kept = self._kept.get(tools)
        if kept is None:
            kept = self._kept[tools] = {}
        answer = kept.get(in_scope)
        if answer is None:
            answer = self._withheld(tools, in_scope)
            if len(kept) < _MOST_KEPT:
                kept[in_scope] = answer
        return answer

    def withheld(self, tools: Iterable[Tool], scope: Scope) -> Mapping[Tool, Verdict]:
        """The tools that no arguments could make pass in this scope, each with a deny."""
        return self._withheld(tools, self._scopes.rules(scope))

    def _withheld(self, tools: Iterable[Tool], in_scope: int) -> Mapping[Tool, Verdict]:
        withholding = self._withholding & in_scope
        sparing = self._sparing & in_scope
        by_default = self.policy.default is Effect.DENY
        answer: dict[Tool, Verdict] = {}
        if not withholding and not by_default:
            return answer
        for tool in tools:
            about = self._rules_about(tool)
            if denies := about & withholding:
                answer[tool] = self._verdict(
                    [(rule, False) for rule in self._of(denies)], withheld=True
                )
            elif by_default and not about & sparing:
                # A deny that keeps the tool listed does so under every default.
                if any(rule.listed for rule in self._of(about & in_scope)):
                    continue
                answer[tool] = self._not_allowed
        return answer

    def on_call(self, arguments: Mapping[str, Any], tool: Tool, scope: Scope) -> Verdict | None:
        """The deny or ask on one call; None where the policy has no objection."""
        by_effect = self._about_both(tool, scope)
        for rules in (by_effect[Effect.DENY], by_effect[Effect.ASK]):
            found = []
            for rule in rules:
                truth = _truth(rule, arguments, tool, scope)
                if truth is not False:
                    found.append((rule, truth is None))
            if found:
                return self._verdict(found)
        allows = by_effect[Effect.ALLOW]
        if self.policy.default is Effect.ALLOW or any(
            _truth(rule, arguments, tool, scope) for rule in allows
        ):
            return None
        if self.policy.default is Effect.ASK:
            return self._asked_by_default
        return self._not_allowed_with_these if allows else self._not_allowed

    def outcomes(self, arguments: Mapping[str, Any], tool: Tool, scope: Scope) -> Iterator[Outcome]:
        """What every rule about this tool and scope comes to on the arguments, in file order."""
        for rule in self._of(self._rules_about(tool) & self._scopes.rules(scope)):
            yield Outcome(rule=rule, truth=_truth(rule, arguments, tool, scope))

    def _about_both(self, tool: Tool, scope: Scope) -> Mapping[Effect, tuple[Rule, ...]]:
        """The rules about this tool and scope, by effect. Kept while the tool is there."""
        in_scope = self._scopes.rules(scope)
        kept = self._plans.get(tool)
        if kept is None:
            kept = self._plans[tool] = {}
        plan = kept.get(in_scope)
        if plan is None:
            rules = tuple(self._of(self._rules_about(tool) & in_scope))
            plan = {effect: tuple(r for r in rules if r.effect is effect) for effect in Effect}
            if len(kept) < _MOST_KEPT:
                kept[in_scope] = plan
        return plan

    def _rules_about(self, tool: Tool) -> int:
        about = self._about.get(tool)
        if about is None:
            about = self._about[tool] = self._tools.rules(tool)
        return about

    def _of(self, bits: int) -> Iterator[Rule]:
        rules = self.policy.rules
        while bits:
            lowest = bits & -bits
            yield rules[lowest.bit_length() - 1]
            bits ^= lowest

    def _verdict(self, found: list[tuple[Rule, bool]], *, withheld: bool = False) -> Verdict:
        """One verdict of all rules that count, the same in whatever order they were written."""
        key = (withheld, *((rule.id, unknown) for rule, unknown in found))
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = _combined(self.policy, found, withheld=withheld)
            if len(self._verdicts) < _MOST_KEPT:
                self._verdicts[key] = verdict
        return verdict


_MOST_KEPT: Final = 1024


def _truth(rule: Rule, arguments: Mapping[str, Any], tool: Tool, scope: Scope) -> Truth:
    """Whether the rule's condition holds; a rule without one always counts."""
    if rule.when is None:
        return True
    return rule.when.holds(arguments, scope, tool, generous=rule.generous)


def _combined(policy: Policy, found: list[tuple[Rule, bool]], *, withheld: bool) -> Verdict:
    in_order = sorted(found, key=lambda one: (_reason(*one), one[0].id))
    reasons = dict.fromkeys(_reason(rule, unknown) for rule, unknown in in_order)
    codes = {rule.code for rule, _ in in_order}
    make = deny if in_order[0][0].effect is Effect.DENY else ask
    # The failure of a withheld tool does not begin with whose word it is; that of a call does.
    said_by = "the policy says: " if withheld and any(r.reason for r, _ in found) else ""
    return make(
        said_by + "; ".join(reasons),
        code=codes.pop() if len(codes) == 1 else None,
        rule=", ".join(policy.place(rule) for rule, _ in in_order),
    )


def _reason(rule: Rule, unknown: bool) -> str:
    if rule.reason is not None:
        reason = rule.reason.strip().rstrip(".;")
    elif rule.effect is Effect.ASK:
        reason = ASKED
    else:
        reason = DENIED if rule.when is None else DENIED_WITH_THESE
    return f"{reason} ({NOT_CERTAIN})" if unknown else reason
