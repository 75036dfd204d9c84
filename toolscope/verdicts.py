"""Verdicts and decisions, and the algorithm that combines them: deny overrides.

A *verdict* is one rule's opinion, a *decision* the outcome for one call. Everything here is pure
and total, and no order of the verdicts changes a result:

====================================  ==========================================================
verdicts on a call                    effect
====================================  ==========================================================
at least one deny                     deny
no deny, an ask that is not answered  ask where a person can be asked, else deny
none, or asks that are all answered   allow
====================================  ==========================================================
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import attrs

from toolscope.model import (
    Answered,
    Approval,
    FrozenDict,
    InvalidArguments,
    Provider,
    Reach,
    Scope,
    Tool,
    ToolCall,
    freeze,
)

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "Code",
    "Decision",
    "Effect",
    "Failure",
    "PluginVerdict",
    "Unlisted",
    "Verdict",
    "ask",
    "decide",
    "decide_invalid",
    "decide_settled",
    "decide_unlisted",
    "deny",
    "refusal",
    "why_unlisted",
]


class Effect(StrEnum):
    """What becomes of a call. ``DENY`` is stricter than ``ASK``, ``ASK`` than ``ALLOW``."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_ALLOW: Final = Effect.ALLOW
_DENY: Final = Effect.DENY
"""Named, since Python 3.11 takes 50 ns to get a member from its class; a decision takes 2 us."""


class Code(StrEnum):
    """Why a call was denied, for programs. A rule may use a code of its own instead."""

    TOOL_UNKNOWN = "tool_unknown"
    TOOL_AMBIGUOUS = "tool_ambiguous"
    TOOL_NOT_AVAILABLE = "tool_not_available"
    TOOL_DENIED = "tool_denied"
    ARGUMENTS_INVALID = "arguments_invalid"
    APPROVAL_UNAVAILABLE = "approval_unavailable"
    APPROVAL_REFUSED = "approval_refused"
    LIMIT_EXCEEDED = "limit_exceeded"
    POLICY_ERROR = "policy_error"
    CALL_SETTLED = "call_settled"


_RESERVED: Final = frozenset({"denied", "cancelled"})
"""Codes that hosts read as a person's cancel."""

_NOT_FINAL: Final = frozenset({Code.POLICY_ERROR, Code.LIMIT_EXCEEDED})


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

    @property
    def key(self) -> Answered:
        """What an `Approval` names when it answers this ask."""
        v = self.verdict
        return Answered(plugin=self.plugin, rule=v.rule, code=v.code, reason=v.reason)


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

    def repeated(self, attempts: int) -> "Failure":
        """This failure for the ``attempts``-th denial of the same tool for the same cause."""
        if attempts < 2:
            return self
        firmer = f" This is denial number {attempts} of this tool for this cause"
        firmer += ": stop calling it." if attempts > 2 else "."
        return Failure(
            code=self.code, message=self.message + firmer, attempts=attempts, final=self.final
        )


@attrs.frozen(kw_only=True, slots=False)
class Decision:
    """The outcome for one call.

    ``verdicts`` are those that caused it, ``provider`` is who would execute the call: None when it
    is denied, so that nobody is named as responsible (law L5). ``failure`` is None unless denied.
    ``approvals`` are those that counted, ``unused_approvals`` says why each of the others did not.
    """

    effect: Effect
    call: ToolCall
    tool: Tool | None
    scope: Scope
    verdicts: tuple[PluginVerdict, ...] = ()
    provider: Provider | None = None
    failure: Failure | None = None
    approvals: tuple[Approval, ...] = ()
    unused_approvals: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[PluginVerdict, ...]:
        """The verdicts that stand for a plugin's fault."""
        return tuple(verdict for verdict in self.verdicts if verdict.error is not None)

    def record(
        self,
        *,
        arguments: Callable[[FrozenDict], Any] | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """One JSON-ready structure for the decision log; secrets are masked at every depth.

        Of the arguments it holds a digest; their values only as far as ``arguments`` (a redactor)
        returns them. ``seconds`` is how long the decision took. Absent parts are left out.
        """
        masking = _masking()
        call, failure, text = self.call, self.failure, masking.text
        record: dict[str, Any] = {
            "schema": 1,
            "name": text(call.name),
            "effect": str(self.effect),
            "scope": _scope_record(self.scope),
            "verdicts": [_verdict_record(o.plugin, o.verdict, o.error) for o in self.verdicts],
        }
        if call.chat is not None:
            record["chat"] = text(call.chat)
        if call.id is not None:
            record["call_id"] = text(call.id)
        if call.via is not None:
            record["via"] = text(call.via)
        if self.tool is not None:
            record["tool"] = text(self.tool.identity)
        if self.provider is not None:
            record["provider"] = text(str(self.provider))
        if failure is not None:
            record["code"] = text(str(failure.code))
            record["message"] = text(failure.message)
            record["attempts"] = failure.attempts
        if not isinstance(call.arguments, InvalidArguments):
            record["arguments_digest"] = call.arguments_digest
        if arguments is not None:
            record["arguments"] = masking.masked(arguments(call.arguments))
        if self.approvals:
            record["approvals"] = [
                masking.masked(
                    _present(by=one.by, at=one.at, reach=one.reach.value, call_id=one.call_id)
                )
                for one in self.approvals
            ]
        if self.unused_approvals:
            record["unused_approvals"] = list(self.unused_approvals)
        if seconds is not None:
            record["seconds"] = seconds
        return record


@cache
def _masking() -> "ModuleType":
    """`toolscope._masking`, needed late, if at all: its patterns take long to compile."""
    from toolscope import _masking

    return _masking


_RECORDS_KEPT: Final = 1_024


@lru_cache(_RECORDS_KEPT)
def _verdict_record(plugin: str, verdict: Verdict, error: str | None) -> FrozenDict:
    """A verdict as the decision log shows it. Rules build few, so each is masked once."""
    shown = _present(
        plugin=plugin,
        rule=verdict.rule,
        effect=verdict.effect.value,
        code=None if verdict.code is None else str(verdict.code),
        reason=verdict.reason,
        detail=verdict.detail,
        error=error,
    )
    record: FrozenDict = freeze(_masking().masked(shown))
    return record


@lru_cache(_RECORDS_KEPT)
def _scope_record(scope: Scope) -> FrozenDict:
    """A scope as the decision log shows it: without the allowlist, which may be long."""
    shown = scope.to_json()
    if scope.agent is not None:
        shown["agent"] = scope.agent.name
    record: FrozenDict = freeze(_masking().masked(shown))
    return record


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def decide(
    call: ToolCall,
    tool: Tool,
    scope: Scope,
    verdicts: Sequence[PluginVerdict],
    approvals: Sequence[Approval] = (),
) -> Decision:
    """Combines the verdicts of ``on_tool_call`` on a call of a listed tool: deny overrides ask.

    An approval takes away the asks that it answers, and no deny. A person's refusal of this very
    call is a deny.
    """
    if not verdicts and not approvals:
        return _decided(_ALLOW, call, tool, scope)
    in_order = sorted(verdicts, key=_by_plugin)
    denies = tuple(one for one in in_order if one.verdict.effect is Effect.DENY)
    if denies:
        failure = _failure(call.name, denies, Code.TOOL_DENIED)
        unused = tuple(_unused("it lifts no deny") for _ in approvals)
        return _decided(Effect.DENY, call, tool, scope, denies, failure, (), unused)
    asks = tuple(in_order)
    used: tuple[Approval, ...] = ()
    unused = ()
    if approvals:
        used, unused = _fitting(call, tool, scope, asks, approvals)
        refusals = [approval for approval in used if not approval.allow]
        if refusals:
            said = [approval.reason for approval in refusals if approval.reason]
            failure = refusal(call.name, said)
            return _decided(Effect.DENY, call, tool, scope, asks, failure, tuple(refusals), unused)
        asks = tuple(one for one in asks if not any(_answers(a, one) for a in used))
    if not asks:
        return _decided(Effect.ALLOW, call, tool, scope, (), None, used, unused)
    if scope.can_ask:
        return _decided(Effect.ASK, call, tool, scope, asks, None, used, unused)
    message = _message(Code.APPROVAL_UNAVAILABLE, call.name, [one.verdict.reason for one in asks])
    failure = Failure(code=Code.APPROVAL_UNAVAILABLE, message=message)
    return _decided(Effect.DENY, call, tool, scope, asks, failure, used, unused)


def _answers(approval: Approval, ask: PluginVerdict) -> bool:
    return approval.answers is None or ask.key in approval.answers


def _unused(why: str) -> str:
    return f"an approval was not used: {why}"


def _fitting(
    call: ToolCall,
    tool: Tool,
    scope: Scope,
    asks: Sequence[PluginVerdict],
    approvals: Sequence[Approval],
) -> tuple[tuple[Approval, ...], tuple[str, ...]]:
    """The approvals that count for this call, and why each of the others does not.

    One that answers no ask is left alone, and so is one whose asks are answered already: a grant
    that is good for one call is not to be spent where it is not needed.
    """
    fitting: list[Approval] = []
    unused: list[str] = []
    for approval in dict.fromkeys(approvals):
        why = approval.mismatch(call, tool, scope)
        if why is None and approval.allow and not any(_answers(approval, ask) for ask in asks):
            why = "it answers none of the asks on this call"
        if why is None:
            fitting.append(approval)
        else:
            unused.append(_unused(why))
    if len(fitting) > 1:
        fitting.sort(key=_by_worth)
    used = {approval: None for approval in fitting if not approval.allow}
    for ask in asks:
        if not any(_answers(approval, ask) for approval in used):
            used.update(dict.fromkeys([one for one in fitting if _answers(one, ask)][:1]))
    spared = len(fitting) - len(used)
    unused += [_unused("another one answers the same asks")] * spared
    return tuple(used), tuple(unused)


def _by_worth(approval: Approval) -> tuple[int, float, str]:
    """The answer to this very call first, one-time grants last and of these the first to expire."""
    if approval.is_one_time_grant:
        expires = math.inf if approval.expires is None else approval.expires
        return 2, expires, approval.digest
    return int(approval.call_id is None or approval.reach is not Reach.ONCE), 0, approval.digest


def refusal(name: str, reasons: Iterable[str]) -> Failure:
    """The failure of a call that a person refused, with what the person said."""
    message = _message(Code.APPROVAL_REFUSED, name, reasons)
    return Failure(code=Code.APPROVAL_REFUSED, message=message)


def decide_settled(
    call: ToolCall, tool: Tool | None, scope: Scope, reason: str | None = None
) -> Decision:
    """Denies a call whose id is settled: each (chat, call id) runs once (law L6).

    ``reason`` says what became of it.
    """
    message = _message(Code.CALL_SETTLED, call.name, () if reason is None else (reason,))
    return _decided(
        Effect.DENY, call, tool, scope, (), Failure(code=Code.CALL_SETTLED, message=message)
    )


def decide_invalid(
    call: ToolCall, tool: Tool, scope: Scope, arguments: InvalidArguments
) -> Decision:
    """Denies a call of a listed tool whose arguments are no JSON object; no rule is asked."""
    message = _message(Code.ARGUMENTS_INVALID, call.name, [arguments.why])
    return _decided(
        Effect.DENY, call, tool, scope, (), Failure(code=Code.ARGUMENTS_INVALID, message=message)
    )


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
    return _decided(Effect.DENY, call, unlisted.tool, scope, unlisted.verdicts, unlisted.failure)


def why_unlisted(
    name: str,
    candidates: Sequence[Tool],
    listed: Sequence[Tool],
    verdicts: Iterable[PluginVerdict],
) -> Unlisted:
    """Why a call of ``name`` is about no listed tool.

    ``candidates`` are the tools of that name (and provider), ``listed`` those of them that are
    listed (none, or several), ``verdicts`` the verdicts that withhold the others.
    """
    if listed:
        message = _message(Code.TOOL_AMBIGUOUS, name, ())
        failure = Failure(code=Code.TOOL_AMBIGUOUS, message=message)
        return Unlisted(tool=None, verdicts=(), failure=failure)
    denies = tuple(sorted(dict.fromkeys(verdicts), key=_by_plugin))
    if not candidates:
        failure = _unknown(name)
    elif not denies:
        message = _message(Code.TOOL_NOT_AVAILABLE, name, (_SHADOWED,))
        failure = Failure(code=Code.TOOL_NOT_AVAILABLE, message=message)
    else:
        failure = _failure(name, denies, Code.TOOL_NOT_AVAILABLE)
    tool = candidates[0] if len(candidates) == 1 else None
    return Unlisted(tool=tool, verdicts=denies, failure=failure)


_SHADOWED: Final = "another provider's tool has this name here; call that one"


def _unknown(name: str) -> Failure:
    return Failure(code=Code.TOOL_UNKNOWN, message=_message(Code.TOOL_UNKNOWN, name, ()))


def _decided(
    effect: Effect,
    call: ToolCall,
    tool: Tool | None,
    scope: Scope,
    verdicts: tuple[PluginVerdict, ...] = (),
    failure: Failure | None = None,
    approvals: tuple[Approval, ...] = (),
    unused: tuple[str, ...] = (),
) -> Decision:
    """A decision whose provider follows from its effect and tool (law L5).

    Filling ``__dict__`` takes half of what the keyword constructor takes (0.35 of 0.70 us), and
    making this object is the largest part of a decision that no rule objects to.
    """
    decision = object.__new__(Decision)
    values = decision.__dict__
    values["effect"] = effect
    values["call"] = call
    values["tool"] = tool
    values["scope"] = scope
    values["verdicts"] = verdicts
    values["provider"] = None if tool is None or effect is _DENY else tool.provider
    values["failure"] = failure
    values["approvals"] = approvals
    values["unused_approvals"] = unused
    return decision


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
    Code.APPROVAL_REFUSED: "A person refused this call of {name}",
    Code.CALL_SETTLED: "This call of {name} is settled, and no call runs twice",
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
