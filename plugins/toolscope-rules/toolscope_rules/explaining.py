"""Why a policy says what it says of one call: every rule, whether it counts, and what is amiss."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from toolscope.model import Scope, Tool
from toolscope.verdicts import Effect
from toolscope_rules.deciding import Decider
from toolscope_rules.matchers import Truth
from toolscope_rules.rules import Policy, Rule, Scopes, Tools

__all__ = ["explain"]

_SCOPE_SELECTORS = ("origins", "agents", "subjects", "attributes")


def explain(
    decider: Decider, arguments: Mapping[str, Any], tool: Tool, scope: Scope
) -> tuple[str, ...]:
    """One line a rule, in the order of the file, then the outcome and what would change it."""
    policy = decider.policy
    lines: list[str] = []
    spares: list[str] = []
    counting: list[Rule] = []
    for rule in policy.rules:
        why = _not_about(policy, rule, tool, scope)
        if why is not None:
            lines.append(f"{policy.place(rule)} {rule.effect}: does not apply, {why}")
            continue
        counts, tests = _condition(rule, arguments, tool, scope)
        verb = "applies" if counts else "does not apply"
        lines.append(
            f"{policy.place(rule)} {rule.effect}: {verb}" + (f", {tests}" if tests else "")
        )
        if counts:
            counting.append(rule)
        elif rule.effect is Effect.ALLOW:
            spares.append(f"{rule.id} ({tests})")
    lines.append(_outcome(policy, counting))
    lines += _changes(policy, counting, spares)
    return tuple(lines)


def _not_about(policy: Policy, rule: Rule, tool: Tool, scope: Scope) -> str | None:
    """Why the rule is not about this tool and scope; None where it is."""
    if not Tools(attrs.evolve(policy, rules=(rule,))).rules(tool):
        bare = attrs.evolve(rule, exceptions=())
        if Tools(attrs.evolve(policy, rules=(bare,))).rules(tool):
            return f"its exceptions spare '{tool.identity}'"
        return f"it is not about the tool '{tool.identity}'"
    if Scopes(attrs.evolve(policy, rules=(rule,))).rules(scope):
        return None
    for name in _SCOPE_SELECTORS:
        others: dict[str, Any] = {
            other: {} if other == "attributes" else None
            for other in _SCOPE_SELECTORS
            if other != name
        }
        alone = attrs.evolve(rule, **others)
        if not Scopes(attrs.evolve(policy, rules=(alone,))).rules(scope):
            where = "this chat or one above it" if rule.reach == "subtree" else "this chat"
            return f"its '{name}' do not select {where}"
    return "no one chat meets all of its selectors"


def _condition(
    rule: Rule, arguments: Mapping[str, Any], tool: Tool, scope: Scope
) -> tuple[bool, str]:
    """Whether the rule's condition lets it count, and what each test came to."""
    if rule.when is None:
        return True, ""
    texts = []
    truths: list[Truth] = []
    for leaf in rule.when.leaves:
        truth, why = leaf.test(arguments, scope, tool, generous=rule.generous)
        truths.append(truth)
        said = "holds" if truth else "does not hold"
        if truth is None:
            said = f"cannot be told, {why}"
        texts.append(f"[{leaf.text}] {said}")
    counts = all(truth is True or (truth is None and rule.generous) for truth in truths)
    return counts, "; ".join(texts)


def _outcome(policy: Policy, counting: list[Rule]) -> str:
    for effect, verb in ((Effect.DENY, "denied"), (Effect.ASK, "asked about")):
        deciding = [rule.id for rule in counting if rule.effect is effect]
        if deciding:
            return f"so it is {verb} by {', '.join(deciding)}"
    allowing = [rule.id for rule in counting]
    if allowing:
        return f"so the policy has no objection, by {', '.join(allowing)}"
    return f"so the default counts: {policy.default}"


def _changes(policy: Policy, counting: list[Rule], spares: list[str]) -> Iterator[str]:
    """What would have to change for the call to pass without being asked about."""
    strict = [rule for rule in counting if rule.effect is not Effect.ALLOW]
    for rule in strict:
        if rule.when is None:
            yield f"to pass: {rule.id} must not be about this tool or chat (it has no condition)"
        else:
            tests = " and ".join(f"[{leaf.text}]" for leaf in rule.when.leaves)
            yield f"to pass: {tests} of {rule.id} must certainly not hold"
    if policy.default is Effect.ALLOW or any(r.effect is Effect.ALLOW for r in counting):
        return
    if spares:
        yield f"to pass: one of these must hold: {'; '.join(spares)}"
    else:
        yield "to pass: an allow must be about this tool and chat; none is"
