"""What is suspicious in a policy: rules that match nothing, that can never apply, or do nothing.

A finding *widens* where the rule was meant to narrow and may not (a deny that matches no tool), or
else *narrows* or changes nothing (a dead or redundant allow). ``strict`` refuses the first kind and
warns of the second; ``lenient`` warns of both and keeps the rules armed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from toolscope.errors import Fault, ToolsetError, nearest
from toolscope.model import HOST, Origin, Provider, Tool
from toolscope.verdicts import Effect
from toolscope_rules.rules import Policy, Rule, Tools
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
    found: list[list[Finding]] = [[] for _ in policy.rules]
    for rule, findings in zip(policy.rules, found, strict=True):
        findings += _selectors_without_a_match(policy, rule)
        findings += _without_effect(policy, rule)
    for place, finding in (
        *_without_tools(policy, tools or (), names_only=names_only, known=tools is not None),
        *_shadowed(policy, tools),
    ):
        found[place].append(finding)
    return tuple(finding for findings in found for finding in findings)


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
    policy: Policy, tools: Sequence[Tool], *, names_only: bool, known: bool
) -> Iterator[tuple[int, Finding]]:
    """Selectors that match no known tool, and rules whose exceptions spare all that they select."""
    if not known:
        return
    judged = [
        (place, selector, is_exception, rule.generous is not is_exception)
        for place, rule in enumerate(policy.rules)
        for is_exception, selectors in ((False, rule.tools or ()), (True, rule.exceptions))
        for selector in selectors
        if not (names_only and selector.kind in (Kind.TAG, Kind.HINT))
    ]
    matched = 0
    for generous in (True, False):
        index = SelectorIndex(
            [(one[1], 1 << i) for i, one in enumerate(judged) if one[3] is generous],
            generous=generous,
            trusted=policy.trusted,
        )
        for tool in tools:
            matched |= index.owners(tool)
    unmatched = set[int]()
    for i, (place, selector, is_exception, _) in enumerate(judged):
        if matched >> i & 1:
            continue
        rule = policy.rules[place]
        what = "exception" if is_exception else "selector"
        if not is_exception:
            unmatched.add(place)
        near = _nearest(selector, tools) if len(unmatched) <= _MOST_COMPARED else ()
        cure = f"did you mean {' or '.join(map(repr, near))}?" if near else _NO_SUCH_TOOL
        problem = f"its {what} {selector.text!r} matches no known tool"
        yield place, _finding(policy, rule, problem, cure, rule.generous is not is_exception)
    if names_only:
        return
    compiled = Tools(policy)
    about = 0
    for tool in tools:
        about |= compiled.rules(tool)
    for place, rule in enumerate(policy.rules):
        if rule.exceptions and rule.tools and place not in unmatched and not about >> place & 1:
            problem = "its exceptions spare every known tool that it selects"
            yield place, _finding(policy, rule, problem, "remove one of them", rule.generous)


_NO_SUCH_TOOL: Final = "no known tool has a name like it"
_MOST_COMPARED: Final = 50
"""For how many rules the nearest names are looked for; comparing takes its time."""


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


def _shadowed(policy: Policy, tools: Sequence[Tool] | None) -> Iterator[tuple[int, Finding]]:
    """Allows and asks of which nothing is left by a deny without a condition, for every scope."""
    rules = policy.rules
    denies = sum(1 << place for place, rule in enumerate(rules) if _denies_always(rule))
    if not denies:
        return
    covering = _covering_known(policy, tools) if tools is not None else _covering_texts(rules)
    for place, rule in enumerate(rules):
        if rule.effect is Effect.DENY:
            continue
        if by := covering(place) & denies:
            one = rules[(by & -by).bit_length() - 1]
            problem = f"it can never apply: the deny {policy.place(one)} covers all its tools"
            yield place, _finding(policy, rule, problem, "remove one of the two", False)


def _denies_always(rule: Rule) -> bool:
    return (
        rule.effect is Effect.DENY
        and rule.when is None
        and rule.origins is None
        and rule.agents is None
        and rule.subjects is None
        and not rule.attributes
    )


def _covering_known(policy: Policy, tools: Sequence[Tool]) -> Callable[[int], int]:
    """The rules that are about every known tool that a rule is about, as bits."""
    compiled = Tools(policy)
    about = [compiled.rules(tool) for tool in tools]

    def covering(place: int) -> int:
        common, any_tool = -1, False
        for bits in about:
            if bits >> place & 1:
                common &= bits
                any_tool = True
        return common if any_tool else 0

    return covering


def _covering_texts(rules: Sequence[Rule]) -> Callable[[int], int]:
    """The same without tools: rules about all of them, or with every selector that a rule has."""
    everything = 0
    by_selector: dict[Selector, int] = {}
    for place, rule in enumerate(rules):
        if rule.exceptions:
            continue
        if rule.tools is None:
            everything |= 1 << place
        for selector in rule.tools or ():
            by_selector[selector] = by_selector.get(selector, 0) | 1 << place

    def covering(place: int) -> int:
        common = -1 if rules[place].tools else 0
        for selector in rules[place].tools or ():
            common &= by_selector.get(selector, 0)
        return common | everything

    return covering
