"""Verdicts, listings and decisions, and the algorithm that combines them: deny overrides.

A *verdict* is one rule's opinion. A *listing* is the outcome for one tool list, a *decision* the
outcome for one call. Everything here is pure and total, and no order of the verdicts changes a
result:

====================================  ==========================================================
verdicts on a call                    effect
====================================  ==========================================================
at least one deny                     deny
no deny, at least one ask             ask where a person can be asked, else deny
none                                  allow
====================================  ==========================================================
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import compress
from types import MappingProxyType
from typing import Any, Final, overload

import attrs

from toolscope.model import (
    InvalidArguments,
    Provider,
    ProviderKind,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)

__all__ = [
    "Answer",
    "Code",
    "Decision",
    "Effect",
    "Failure",
    "Listing",
    "PluginVerdict",
    "Unlisted",
    "Verdict",
    "ask",
    "decide",
    "decide_invalid",
    "decide_unlisted",
    "deny",
    "make_listing",
]


class Effect(StrEnum):
    """What becomes of a call. ``DENY`` is stricter than ``ASK``, ``ASK`` than ``ALLOW``."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Code(StrEnum):
    """Why a call was denied, for programs. A rule may use a code of its own instead."""

    TOOL_UNKNOWN = "tool_unknown"
    TOOL_AMBIGUOUS = "tool_ambiguous"
    TOOL_NOT_AVAILABLE = "tool_not_available"
    TOOL_DENIED = "tool_denied"
    ARGUMENTS_INVALID = "arguments_invalid"
    APPROVAL_UNAVAILABLE = "approval_unavailable"
    POLICY_ERROR = "policy_error"


_RESERVED: Final = frozenset({"denied", "cancelled"})
"""Codes that hosts read as a person's cancel."""

_NOT_FINAL: Final = frozenset({Code.POLICY_ERROR, "limit_exceeded"})


def _effect(value: str) -> Effect:
    effect = Effect(value)
    if effect is Effect.ALLOW:
        raise ValueError("no verdict allows: a rule without objection answers None")
    return effect


def _sentence(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"the {attribute.name} of a verdict is {value!r}; allowed is a text that says the true "
            "cause and what to do instead"
        )


def _code(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise ValueError(f"the code of a verdict is {value!r}; allowed is a text, or None")
    if value in _RESERVED:
        raise ValueError(f"the code {value!r} is taken: hosts read it as a cancel by a person")


_optional_text = attrs.validators.optional(attrs.validators.instance_of(str))


@attrs.frozen(kw_only=True, slots=True, cache_hash=True)
class Verdict:
    """One rule's ask or deny. Made by `ask` and `deny`, once per rule rather than once per tool.

    ``reason`` is one sentence for the model: the true cause, and what to do instead. ``code`` is
    for programs, ``detail`` for the operator, ``rule`` names the rule (id, ``file:line``).
    There is no verdict that allows, since it would change nothing.
    """

    effect: Effect = attrs.field(converter=_effect)
    reason: str = attrs.field(validator=_sentence)
    code: str | None = attrs.field(default=None, validator=_code)
    detail: str | None = attrs.field(default=None, validator=_optional_text)
    rule: str | None = attrs.field(default=None, validator=_optional_text)

    def __init_subclass__(cls) -> None:
        raise TypeError("Verdict has no subclasses: the engine takes the exact type only")


def ask(
    reason: str, *, code: str | None = None, detail: str | None = None, rule: str | None = None
) -> Verdict:
    """The verdict that a person must be asked first. Only for ``on_tool_call``.

    Raises:
        ValueError: The reason is empty, or the code is reserved.
    """
    return Verdict(effect=Effect.ASK, reason=reason, code=code, detail=detail, rule=rule)


def deny(
    reason: str, *, code: str | None = None, detail: str | None = None, rule: str | None = None
) -> Verdict:
    """The verdict that the call must not run, or (from ``filter_tools``) the tool not be shown.

    Raises:
        ValueError: The reason is empty, or the code is reserved.
    """
    return Verdict(effect=Effect.DENY, reason=reason, code=code, detail=detail, rule=rule)


@attrs.frozen(kw_only=True)
class PluginVerdict:
    """A verdict with the plugin that gave it.

    ``error`` is what went wrong where the plugin failed to give one (``ValueError: ...``); the
    verdict is then a deny with the code ``policy_error``, and its reason says nothing of the error.
    """

    plugin: str
    verdict: Verdict
    error: str | None = None


@attrs.frozen(eq=False)
class Answer:
    """What one ``filter_tools`` hookimpl said of one toolset: what it withholds, and why."""

    plugin: str
    verdicts: Mapping[Tool, Verdict]
    error: str | None = None
    mask: int = attrs.field(default=0, repr=False)
    """One byte a tool, in the toolset's order; 1 = withheld. OR of masks is union of answers."""

    def verdict(self, tool: Tool) -> PluginVerdict | None:
        """The verdict on this tool, or None where it is not withheld by this plugin."""
        verdict = self.verdicts.get(tool)
        if verdict is None:
            return None
        return PluginVerdict(plugin=self.plugin, verdict=verdict, error=self.error)


# --------------------------------------------------------------------------------------------
# Listings
# --------------------------------------------------------------------------------------------


class Listing(Sequence[Tool]):
    """The outcome for one tool list: the tools to send, in the toolset's order.

    Attributes:
        toolset: All the tools that were asked about.
        scope: The scope it was made for.
        shadowed: Tools that no rule withholds but that lost their name to another provider's tool.
        collisions: Names that more than one listed tool bears. The adapter qualifies them; a call
            that names no provider is denied.
    """

    def __init__(
        self,
        *,
        toolset: Toolset,
        scope: Scope,
        answers: tuple[Answer, ...],
        tools: tuple[Tool, ...],
        shadowed: frozenset[Tool],
        collisions: Mapping[str, tuple[Tool, ...]],
    ) -> None:
        self.toolset = toolset
        self.scope = scope
        self.shadowed = shadowed
        self.collisions = collisions
        self._answers = answers
        self._tools = tools
        self._found: dict[tuple[str, Provider | None], Tool | Unlisted] = {}

    def verdicts(self, tool: Tool) -> tuple[PluginVerdict, ...]:
        """Who withholds this tool and why, in order of plugin names; empty where nobody does."""
        found = (answer.verdict(tool) for answer in self._answers)
        return tuple(verdict for verdict in found if verdict is not None)

    @cached_property
    def withheld(self) -> Mapping[Tool, tuple[PluginVerdict, ...]]:
        """Every withheld tool with its verdicts, in the toolset's order. Made on first use."""
        withheld = {tool for answer in self._answers for tool in answer.verdicts}
        return MappingProxyType(
            {tool: self.verdicts(tool) for tool in self.toolset if tool in withheld}
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of what the model sees, in order. Equal inputs give it in any process."""
        return hashlib.sha256("\n".join(tool.digest for tool in self._tools).encode()).hexdigest()

    def resolve(self, name: str, provider: Provider | None = None) -> Tool | None:
        """The one listed tool of this name (and provider); None for none, and for several."""
        found = self.lookup(name, provider)
        return found if isinstance(found, Tool) else None

    def lookup(self, name: str, provider: Provider | None = None) -> "Tool | Unlisted":
        """The listed tool that a call of this name is about, or why there is none."""
        key = (name, provider)
        found = self._found.get(key)
        if found is None:
            candidates = tuple(_candidates(self.toolset, name, provider))
            listed = [tool for tool in candidates if tool in self]
            found = listed[0] if len(listed) == 1 else _unlisted(name, candidates, listed, self)
            # Only names that exist are kept, so a model that makes names up fills no memory.
            if candidates:
                self._found[key] = found
        return found

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, index: int | slice) -> Tool | tuple[Tool, ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __contains__(self, tool: object) -> bool:
        return (
            isinstance(tool, Tool)
            and tool in self.toolset
            and tool not in self.shadowed
            and not any(tool in answer.verdicts for answer in self._answers)
        )

    def __repr__(self) -> str:
        return f"<Listing of {len(self._tools)} of {len(self.toolset)} tools>"


def _candidates(toolset: Toolset, name: str, provider: Provider | None) -> Iterable[Tool]:
    named = toolset.by_name(name)
    return named if provider is None else [tool for tool in named if tool.provider == provider]


def make_listing(
    toolset: Toolset, scope: Scope, answers: tuple[Answer, ...], prefer: str | None
) -> Listing:
    """Combines the answers about one toolset: a tool that any of them names is withheld.

    Names are settled among the survivors only (AHP: filter each contribution, then route).
    ``prefer`` is the id of the client that started the turn.
    """
    denied = 0
    for answer in answers:
        denied |= answer.mask
    if denied:
        size = len(toolset)
        listed = (toolset.ones ^ denied).to_bytes(size, "little")
        tools = tuple(compress(toolset, listed))
    else:
        tools = toolset[:]
    shadowed: set[Tool] = set()
    collisions: dict[str, tuple[Tool, ...]] = {}
    if toolset.shared_names:
        names = toolset.names
        positions = toolset.positions
        for name in toolset.shared_names:
            left = [tool for tool in names[name] if not denied >> 8 * positions[tool] & 1]
            stay = _route(left, prefer)
            shadowed.update(tool for tool in left if tool not in stay)
            if len(stay) > 1:
                collisions[name] = stay
        if shadowed:
            tools = tuple(tool for tool in tools if tool not in shadowed)
    return Listing(
        toolset=toolset,
        scope=scope,
        answers=answers,
        tools=tools,
        shadowed=frozenset(shadowed),
        collisions=MappingProxyType(collisions),
    )


_ORDERED: Final = (ProviderKind.HOST, ProviderKind.CLIENT)
"""Providers among whom a name has an owner: the host, the preferred client, the first client."""


def _route(tools: Sequence[Tool], prefer: str | None) -> tuple[Tool, ...]:
    """The tools of one name that keep it. An MCP server's has no order with anybody else's."""
    ordered = [tool for tool in tools if tool.provider.kind in _ORDERED]
    if not ordered:
        return tuple(tools)

    def rank(tool: Tool) -> int:
        if tool.provider.kind is ProviderKind.HOST:
            return 0
        return 1 if tool.provider.id == prefer else 2

    owner = min(ordered, key=rank).provider
    return tuple(
        tool for tool in tools if tool.provider.kind not in _ORDERED or tool.provider == owner
    )


# --------------------------------------------------------------------------------------------
# Decisions
# --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Failure:
    """What a denied call fails with. ``message`` goes to the model, ``code`` to programs.

    ``final`` says that the same call cannot succeed in this chat; ``attempts`` counts the denials.
    """

    code: str
    message: str
    attempts: int = 1
    final: bool = True


@attrs.frozen(kw_only=True, slots=False)
class Decision:
    """The outcome for one call.

    ``verdicts`` are those that caused it, ``provider`` is who would execute the call: None when it
    is denied, so that nobody is named as responsible (law L5). ``failure`` is None unless denied.
    """

    effect: Effect
    call: ToolCall
    tool: Tool | None
    scope: Scope
    verdicts: tuple[PluginVerdict, ...] = ()
    provider: Provider | None = None
    failure: Failure | None = None

    @property
    def errors(self) -> tuple[PluginVerdict, ...]:
        """The verdicts that stand for a plugin's fault."""
        return tuple(verdict for verdict in self.verdicts if verdict.error is not None)


def decide(call: ToolCall, tool: Tool, scope: Scope, verdicts: Sequence[PluginVerdict]) -> Decision:
    """Combines the verdicts of ``on_tool_call`` on a call of a listed tool: deny overrides ask."""
    if not verdicts:
        return Decision(
            effect=Effect.ALLOW, call=call, tool=tool, scope=scope, provider=tool.provider
        )
    in_order = sorted(verdicts, key=_by_plugin)
    denies = tuple(one for one in in_order if one.verdict.effect is Effect.DENY)
    if denies:
        return _denied(call, tool, scope, denies, _failure(call.name, denies, Code.TOOL_DENIED))
    asks = tuple(in_order)
    if scope.can_ask:
        return Decision(
            effect=Effect.ASK,
            call=call,
            tool=tool,
            scope=scope,
            verdicts=asks,
            provider=tool.provider,
        )
    message = _message(Code.APPROVAL_UNAVAILABLE, call.name, [one.verdict.reason for one in asks])
    failure = Failure(code=Code.APPROVAL_UNAVAILABLE, message=message)
    return _denied(call, tool, scope, asks, failure)


def decide_invalid(
    call: ToolCall, tool: Tool, scope: Scope, arguments: InvalidArguments
) -> Decision:
    """Denies a call of a listed tool whose arguments are no JSON object; no rule is asked."""
    message = _message(Code.ARGUMENTS_INVALID, call.name, [arguments.why])
    return _denied(call, tool, scope, (), Failure(code=Code.ARGUMENTS_INVALID, message=message))


@attrs.frozen(kw_only=True)
class Unlisted:
    """Why a name is not callable in a listing: unknown, withheld, shadowed or ambiguous.

    ``tool`` is the one tool that was meant, None where there is none or several.
    """

    tool: Tool | None
    verdicts: tuple[PluginVerdict, ...]
    failure: Failure


def decide_unlisted(call: ToolCall, unlisted: Unlisted, scope: Scope) -> Decision:
    """Denies a call of a tool that is not listed; no ``on_tool_call`` rule is asked (law L3)."""
    return _denied(call, unlisted.tool, scope, unlisted.verdicts, unlisted.failure)


def _unlisted(
    name: str, candidates: tuple[Tool, ...], listed: Sequence[Tool], listing: Listing
) -> Unlisted:
    tool = candidates[0] if len(candidates) == 1 else None
    if listed:
        message = _message(Code.TOOL_AMBIGUOUS, name, ())
        failure = Failure(code=Code.TOOL_AMBIGUOUS, message=message)
        return Unlisted(tool=None, verdicts=(), failure=failure)
    found = {verdict: None for one in candidates for verdict in listing.verdicts(one)}
    verdicts = tuple(sorted(found, key=_by_plugin))
    if not candidates:
        failure = _unknown(name)
    elif not verdicts:
        message = _message(Code.TOOL_NOT_AVAILABLE, name, (_SHADOWED,))
        failure = Failure(code=Code.TOOL_NOT_AVAILABLE, message=message)
    else:
        failure = _failure(name, verdicts, Code.TOOL_NOT_AVAILABLE)
    return Unlisted(tool=tool, verdicts=verdicts, failure=failure)


_SHADOWED: Final = "another provider's tool has this name here; call that one"


def _unknown(name: str) -> Failure:
    return Failure(code=Code.TOOL_UNKNOWN, message=_message(Code.TOOL_UNKNOWN, name, ()))


def _denied(
    call: ToolCall,
    tool: Tool | None,
    scope: Scope,
    verdicts: tuple[PluginVerdict, ...],
    failure: Failure,
) -> Decision:
    return Decision(
        effect=Effect.DENY, call=call, tool=tool, scope=scope, verdicts=verdicts, failure=failure
    )


def _failure(name: str, denies: Sequence[PluginVerdict], default: Code) -> Failure:
    """The failure that these denies (in order of plugin names) cause; errors count only alone."""
    meant = [one for one in denies if one.error is None]
    if not meant:
        code: str = Code.POLICY_ERROR
    else:
        codes = {one.verdict.code or default for one in meant}
        code = codes.pop() if len(codes) == 1 else default
    if code == Code.TOOL_UNKNOWN:
        return _unknown(name)
    opening = code if code == Code.POLICY_ERROR else default
    reasons = list(dict.fromkeys(one.verdict.reason for one in meant or denies))
    return Failure(
        code=code, message=_message(opening, name, reasons), final=code not in _NOT_FINAL
    )


_OPENINGS: Final[Mapping[str, str]] = {
    Code.TOOL_UNKNOWN: "There is no tool named {name} in this chat",
    Code.TOOL_AMBIGUOUS: "More than one tool is named {name}, and the call does not say whose",
    Code.TOOL_NOT_AVAILABLE: "The tool {name} is not available in this chat",
    Code.TOOL_DENIED: "Policy denies this call of {name}",
    Code.ARGUMENTS_INVALID: "The arguments of this call of {name} are invalid",
    Code.APPROVAL_UNAVAILABLE: "This call of {name} needs a person's approval, and nobody can be "
    "asked in this chat",
    Code.POLICY_ERROR: "The policy failed to decide about {name}, so the call was not run",
}
_LONGEST_NAME: Final = 100


def _message(opening: str, name: str, reasons: Iterable[str]) -> str:
    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
    text = _OPENINGS[opening].format(name=ascii(shown) if not shown.isprintable() else f"'{shown}'")
    if joined := "; ".join(reason.rstrip(" .;") for reason in reasons):
        text = f"{text}: {joined}"
    if opening in _NOT_FINAL:
        return f"{text}."
    return f"{text}. The same call cannot succeed here; do not repeat it."


def _by_plugin(one: PluginVerdict) -> tuple[str, str, str, str, str]:
    """Order of plugin names; one plugin has several verdicts where a name has several tools."""
    verdict = one.verdict
    return (
        one.plugin, verdict.reason, verdict.code or "", verdict.detail or "", verdict.rule or ""
    )  # fmt: skip
