"""What a call ledger keeps of a call, and how it is read back."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from toolscope.errors import LedgerError
from toolscope.model import Approval, Scope, Tool, ToolCall
from toolscope.stores import Key, Record
from toolscope.verdicts import (
    Code,
    Decision,
    Effect,
    Failure,
    PluginVerdict,
    Verdict,
    decide,
)


class CallState(StrEnum):
    """Where a call is. The last four are final."""

    ASKED = "asked"
    HANDED_OUT = "handed_out"
    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"


FINAL: Final = frozenset(
    {CallState.COMPLETED, CallState.FAILED, CallState.DENIED, CallState.CANCELLED}
)


@attrs.frozen(kw_only=True)
class Question:
    """One call being asked about: its record as it was, and what may answer its asks."""

    record: Record | None
    settled: Decision | None = None
    originals: Mapping[Approval, Approval] = attrs.field(factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def approvals(self) -> tuple[Approval, ...]:
        return tuple(self.originals)


SCHEMA: Final = 1
KINDS: Final = ("call", "grant", "spent", "claim", "denials", "left")


def call_key(chat: str | None, call_id: str) -> Key:
    return ("call", chat, call_id)


def claim_key(tool: Tool, digest: str) -> Key:
    return ("claim", tool.identity, digest)


def state_of(record: Record | None) -> CallState | None:
    return None if record is None else CallState(record["state"])


def check_record(key: Key, record: Record) -> None:
    """Refuses a saved record that could not be read later."""
    if key[0] not in KINDS or not all(part is None or isinstance(part, str) for part in key):
        raise LedgerError(f"unknown record {key!r}")
    if key[0] == "call":
        state = state_of(record)
        if state is CallState.DENIED:
            Failure(**record["failure"])
        for approval in record.get("answers", ()):
            Approval.from_json(approval)
    if key[0] == "grant":
        Approval.from_json(record)


def stricter(
    call: ToolCall,
    scope: Scope,
    first: Decision,
    second: Decision,
    approvals: Sequence[Approval],
) -> Decision:
    """The stricter of the decisions on the produced and on the final form, about the final form."""
    asks = first.effect is Effect.ASK or (
        first.failure is not None and first.failure.code == Code.APPROVAL_UNAVAILABLE
    )
    if second.effect is Effect.DENY and not (
        asks and second.failure is not None and second.failure.code == Code.APPROVAL_UNAVAILABLE
    ):
        return second
    if first.effect is Effect.DENY and not asks:
        return attrs.evolve(first, call=call)
    if not asks or second.tool is None:
        return second
    verdicts = list(dict.fromkeys([*first.verdicts, *second.verdicts]))
    return decide(call, second.tool, scope, verdicts, approvals)


def contended(call: ToolCall, scope: Scope) -> Decision:
    failure = Failure(
        code=Code.POLICY_ERROR,
        message="The call was submitted many times at once, so it was not run.",
        final=False,
    )
    return Decision(effect=Effect.DENY, call=call, tool=None, scope=scope, failure=failure)


def verdict_to_json(one: PluginVerdict) -> dict[str, Any]:
    v = one.verdict
    members = {
        "plugin": one.plugin, "error": one.error, "effect": v.effect.value, "reason": v.reason,
        "code": v.code, "detail": v.detail, "rule": v.rule,
    }  # fmt: skip
    return {name: value for name, value in members.items() if value is not None}


def _verdict_from_json(saved: Mapping[str, Any]) -> PluginVerdict:
    parts = dict(saved)
    plugin, error = parts.pop("plugin"), parts.pop("error", None)
    return PluginVerdict(plugin=plugin, verdict=Verdict(**parts), error=error)


def same_denial(call: ToolCall, scope: Scope, record: Record) -> Decision:
    return Decision(
        effect=Effect.DENY,
        call=call,
        tool=None,
        scope=scope,
        verdicts=tuple(_verdict_from_json(one) for one in record.get("verdicts", ())),
        failure=Failure(**record["failure"]),
    )
