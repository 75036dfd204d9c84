"""What is suspicious in a policy: rules that match nothing, that can never apply, or do nothing.

A finding *widens* where the rule was meant to narrow and may not (a deny that matches no tool), or
else *narrows* or changes nothing (a dead or redundant allow). ``strict`` refuses the first kind and
warns of the second; ``lenient`` warns of both and keeps the rules armed.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from toolscope.errors import Fault, ToolsetError, nearest
from toolscope.model import HOST, Origin, Provider, Tool
from toolscope.verdicts import Effect
from toolscope_rules.deciding import Decider
from toolscope_rules.rules import Policy, Rule
from toolscope_rules.selectors import Kind, Selector, SelectorIndex

__all__ = ["Finding", "diagnose", "known_tools"]

PROVIDER_FORMS = ("host/", "model/", "client:", "mcp:")


@attrs.frozen(kw_only=True)
class Finding:
    """One suspicious thing. ``widens`` says that more may pass than was meant."""

    fault: Fault
    widens: bool

    def __str__(self) -> str:
        return str(self.fault)


def known_tools(names: Iterable[str]) -> tuple[Tool, ...]:
    """Tools that stand for names: ``PROVIDER/OWN_NAME``, else a tool of the host.

    Raises:
        ValueError: What stands before the ``/`` is no provider.
    """
    return tuple(_tool(name) for name in names)


def _tool(name: str) -> Tool:
    if not name.startswith(PROVIDER_FORMS):
        return Tool(name=name)
    provider, _, own_name = name.partition("/")
    try:
        return Tool(name=own_name or name, provider=Provider.parse(provider))
    except ToolsetError as error:
        raise ValueError(str(error)) from error


def diagnose(policy: Policy, tools: Sequence[Tool] | None = None) -> tuple[Finding, ...]:
    """Every finding, in order of the file. ``tools`` are those of a session.

    Without them the policy's ``known_tools`` stand in, of which only the names are known; with
    neither, nothing is said about tools.
    """
    names_only = tools is None
    if tools is None and policy.known_tools is not None:
        tools = known_tools(policy.known_tools)
    found: list[Finding] = []
    for rule in policy.rules:
        found += _selectors_without_a_match(policy, rule)
        found += _without_effect(policy, rule)
        if tools is not None:
            found += _without_tools(policy, rule, tools, names_only=names_only)
    found += _shadowed(policy, tools)
    return tuple(sorted(found, key=lambda one: _place_of(policy, one)))


def _place_of(policy: Policy, finding: Finding) -> int:
    return next(
        (i for i, rule in enumerate(policy.rules) if finding.fault.path.endswith(f"({rule.id})")),
        len(policy.rules),
    )


def _finding(policy: Policy, rule: Rule, problem: str, cure: str | None, widens: bool) -> Finding:
    source = policy.source
    if source is not None and rule.line is not None:
        source = f"{source}:{rule.line}"
    fault = Fault(path=f"rule ({rule.id})", problem=problem, cure=cure, source=source)
    return Finding(fault=fault, widens=widens)


def _selectors_without_a_match(policy: Policy, rule: Rule) -> Iterator[Finding]:
    selectors: dict[str, Sequence[object] | None] = {
        "tools": rule.tools,
        "origins": rule.origins,
        "agents": rule.agents,
        "subjects": rule.subjects,
        **{f"attributes.{name}": patterns for name, patterns in rule.attributes.items()},
    }
    for name, values in selectors.items():
        if values is not None and not values:
            yield _finding(
                policy,
                rule,
                f"'{name}' is empty, so the rule can never apply",
                f"leave '{name}' out where it shall select all, or remove the rule",
                rule.generous,
            )
    known = [origin.value for origin in Origin]
    for origin in rule.origins or ():
        if origin not in known:
            near = nearest(origin, known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            problem = f"the origin {origin!r} is not known, so it selects no chat of today"
            yield _finding(policy, rule, problem, meant, rule.generous)


def _without_effect(policy: Policy, rule: Rule) -> Iterator[Finding]:
    if rule.effect is Effect.ALLOW and policy.default is Effect.ALLOW:
        yield _finding(
            policy,
            rule,
            "it allows what the default allows already, and it overrides no deny and no ask",
            'remove it, or set default = "ask" or "deny"',
            False,
        )
    if rule.when is not None and (both := rule.when.contradiction()):
        yield _finding(
            policy,
            rule,
            f"no arguments meet both {both}, so the rule can never apply",
            "remove one of the two",
            rule.generous,
        )
    scoped = rule.origins or rule.agents or rule.attributes
    if rule.reach == "subtree" and not scoped:
        yield _finding(
            policy,
            rule,
            "its reach 'subtree' changes nothing, since it selects every chat",
            "add 'origins', 'agents' or 'attributes', or remove 'reach'",
            False,
        )


def _without_tools(
    policy: Policy, rule: Rule, tools: Sequence[Tool], *, names_only: bool
) -> Iterator[Finding]:
    judged = [(one, rule.generous) for one in rule.tools or ()]
    judged += [(one, not rule.generous) for one in rule.exceptions]
    unmatched = False
    for place, (selector, generous) in enumerate(judged):
        if names_only and selector.kind in (Kind.TAG, Kind.HINT):
            continue
        index = SelectorIndex([(selector, 1)], generous=generous, trusted=policy.trusted)
        if any(index.owners(tool) for tool in tools):
            continue
        is_exception = place >= len(rule.tools or ())
        unmatched = unmatched or not is_exception
        what = "exception" if is_exception else "selector"
        near = _nearest(selector, tools)
        cure = f"did you mean {' or '.join(map(repr, near))}?" if near else _NO_SUCH_TOOL
        widens = rule.generous is not is_exception
        problem = f"its {what} {selector.text!r} matches no known tool"
        yield _finding(policy, rule, problem, cure, widens)
    if not unmatched and rule.exceptions and rule.tools is not None and not names_only:
        decider = Decider(policy)
        if not any(decider.is_about(rule, tool) for tool in tools):
            problem = "its exceptions spare every known tool that it selects"
            yield _finding(policy, rule, problem, "remove one of them", rule.generous)


_NO_SUCH_TOOL = "no known tool has a name like it"


def _nearest(selector: Selector, tools: Sequence[Tool]) -> tuple[str, ...]:
    if selector.kind is Kind.NAME:
        return nearest(selector.text, {tool.name for tool in tools})
    if selector.kind is Kind.TAG:
        return nearest(selector.text, {f"tag:{tag}" for tool in tools for tag in tool.tags})
    if selector.kind is Kind.HINT:
        return ()
    possible = {tool.identity for tool in tools}
    possible |= {f"{tool.provider}/*" for tool in tools if tool.provider != HOST}
    return nearest(selector.text, possible)


def _shadowed(policy: Policy, tools: Sequence[Tool] | None) -> Iterator[Finding]:
    """Allows and asks of which nothing is left by a deny without a condition, for every scope."""
    denies = [
        rule
        for rule in policy.rules
        if rule.effect is Effect.DENY
        and rule.when is None
        and rule.origins is None
        and rule.agents is None
        and rule.subjects is None
        and not rule.attributes
    ]
    decider = Decider(policy)
    for rule in policy.rules:
        if rule.effect is Effect.DENY:
            continue
        for one in denies:
            if tools is not None:
                about = [tool for tool in tools if decider.is_about(rule, tool)]
                covered = bool(about) and all(decider.is_about(one, tool) for tool in about)
            else:
                covered = not one.exceptions and (
                    one.tools is None
                    or (rule.tools is not None and set(rule.tools) <= set(one.tools))
                )
            if covered:
                yield _finding(
                    policy,
                    rule,
                    f"it can never apply: the deny {policy.place(one)} covers all its tools",
                    "remove one of the two",
                    False,
                )
                break
