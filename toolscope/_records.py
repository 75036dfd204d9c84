"""What a call ledger keeps of a call, and how all of it is saved and read back."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from toolscope.errors import LedgerError, ToolscopeError
from toolscope.model import Approval, Provider, Scope, Tool, ToolCall, Toolset, thaw
from toolscope.stores import Key, Record, Store
from toolscope.verdicts import (
    Code,
    Decision,
    Effect,
    Failure,
    PluginVerdict,
    Verdict,
    decide,
    decide_settled,
)


class CallState(StrEnum):
    """Where a call is. The last four are final."""

    ASKED = "asked"
    HANDED_OUT = "handed_out"
    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"


_STATES: Final[Mapping[str, CallState]] = {state.value: state for state in CallState}
FINAL: Final = frozenset(
    {CallState.COMPLETED, CallState.FAILED, CallState.DENIED, CallState.CANCELLED}
)
OPEN: Final = (CallState.ASKED, CallState.HANDED_OUT)
_BECAME: Final[Mapping[CallState, str]] = {
    CallState.HANDED_OUT: "it was handed out to be executed",
    CallState.COMPLETED: "it has completed",
    CallState.FAILED: "it has failed",
    CallState.DENIED: "its id was used for another call, which was denied",
    CallState.CANCELLED: "it was cancelled",
}
_LONGEST_NAME: Final = 200


def call_key(chat: str | None, call_id: str) -> Key:
    """Where a call is kept."""
    return ("call", chat, call_id)


def claim_key(tool: Tool, digest: str) -> Key:
    """Where the calls are named that an execution without a call id may be matched to."""
    return ("claim", tool.identity, digest)


def denials_key(chat: str | None, about: Mapping[str, Any], code: str) -> Key:
    """Where the denials of one tool in one chat for one cause are counted."""
    return ("denials", chat, about["tool"], str(code))


def left_key(provider: Provider) -> Key:
    """Where it is noted that a provider has gone."""
    return ("left", str(provider))


def state_of(record: Record | None) -> CallState | None:
    """Where a call is; None where nothing is known of it.

    Raises:
        LedgerError: The record was damaged.
    """
    if record is None:
        return None
    try:
        return _STATES[record["state"]]
    except (KeyError, TypeError) as error:
        raise LedgerError("a call's record has no state; treat the call as settled") from error


def about(call: ToolCall, tool: Tool | None) -> dict[str, Any]:
    """The parts of a record that name the call's tool. A name can be of any length, a record not.

    Two names that are cut have the same digest only if they are the same.
    """
    name = call.name
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[:_LONGEST_NAME]} {digest}"
    return {"name": name, "tool": name if tool is None else tool.identity}


# --------------------------------------------------------------------------------------------
# Decisions
# --------------------------------------------------------------------------------------------


def settled(call: ToolCall, tools: Toolset, scope: Scope, record: Record) -> Decision:
    """The decision on a call that is settled: the same denial again, or ``call_settled``.

    An id that comes back with another tool's name is no repetition, so the denial is not repeated.
    A call whose record is damaged is settled as well.
    """
    try:
        return _settled(call, tools, scope, record)
    except _UNREADABLE:
        return decide_settled(call, None, scope, "its record is damaged")


def _settled(call: ToolCall, tools: Toolset, scope: Scope, record: Record) -> Decision:
    tool = next((t for t in tools.by_name(call.name) if t.identity == record["tool"]), None)
    state = CallState(record["state"])
    if state is not CallState.DENIED or record["name"] != about(call, tool)["name"]:
        return decide_settled(call, tool, scope, _BECAME[state])
    return Decision(
        effect=Effect.DENY,
        call=call,
        tool=tool,
        scope=scope,
        verdicts=tuple(_verdict_from_json(one) for one in record["verdicts"]),
        failure=Failure(**record["failure"]),
    )


def stricter(first: Decision, final: Decision, approvals: Sequence[Approval]) -> Decision:
    """The stricter of the decisions on the produced and on the final form, about the final form.

    Both were taken without approvals, so that each ask of either is still there to be answered.
    """
    for decision in (final, first):
        if decision.effect is Effect.DENY and not _only_asks(decision):
            return attrs.evolve(decision, call=final.call)
    verdicts = list(dict.fromkeys([*first.verdicts, *final.verdicts]))
    # A call that is allowed, or has nothing against it but asks, is about a tool.
    return decide(final.call, final.tool, final.scope, verdicts, approvals)  # type: ignore[arg-type]


def _only_asks(decision: Decision) -> bool:
    """Whether a denial says no more than that nobody can be asked."""
    effects = {one.verdict.effect for one in decision.verdicts}
    return effects == {Effect.ASK}


def contended(call: ToolCall, scope: Scope) -> Decision:
    """The denial of a call that changed each time it was decided; it is not remembered."""
    failure = Failure(
        code=Code.POLICY_ERROR,
        message="The call was submitted many times at once, so it was not run.",
        final=False,
    )
    return Decision(effect=Effect.DENY, call=call, tool=None, scope=scope, failure=failure)


def verdict_to_json(one: PluginVerdict) -> dict[str, Any]:
    """A verdict as it is kept with a denied call."""
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


# --------------------------------------------------------------------------------------------
# Saving
# --------------------------------------------------------------------------------------------

_UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)
_SCHEMA: Final = 1
_KINDS: Final = ("call", "grant", "spent", "claim", "denials", "left")


def save(store: Store) -> dict[str, Any]:
    """Every record of a store, as one JSON object that shares nothing with it."""
    records = [[list(key), thaw(record)] for kind in _KINDS for key, record in store.items(kind)]
    return {"schema": _SCHEMA, "records": records}


def load(store: Store, saved: object) -> None:
    """Puts what `save` gave into an empty store: all of it, or nothing.

    Raises:
        LedgerError: It is no such object, of another schema, or the store is not empty.
    """
    if not isinstance(saved, Mapping) or saved.get("schema") != _SCHEMA:
        raise LedgerError(
            f"the saved ledger is no object of schema {_SCHEMA}; treat its calls as settled"
        )
    try:
        rows: list[tuple[Key, Record]] = [
            (tuple(k), thaw(record)) for k, record in saved["records"]
        ]
        for key, record in rows:
            _check(key, record)
    except (*_UNREADABLE, RecursionError, ToolscopeError) as error:
        raise LedgerError(
            f"the saved ledger cannot be read ({type(error).__name__}: {error}); treat its calls "
            "as settled"
        ) from error
    if any(True for kind in _KINDS for _ in store.items(kind)):
        raise LedgerError("this ledger holds records already; load into a new one")
    loaded = 0
    try:
        while loaded < len(rows) and store.swap(rows[loaded][0], None, rows[loaded][1]):
            loaded += 1
    finally:
        if loaded < len(rows):
            for key, record in rows[:loaded]:
                store.swap(key, record, None)
    if loaded < len(rows):
        raise LedgerError(
            f"the record {rows[loaded][0]!r} is there twice, or the ledger was used while it was "
            "loaded; nothing was loaded"
        )


def _check(key: Key, record: Record) -> None:
    """Refuses a saved record that could not be read later. Raises what comes up first."""
    match key:
        case ("call", str() | None, str()):
            _check_call(record)
        case ("grant", str(digest)):
            grant = Approval.from_json(record)
            if grant.digest != digest or grant.call_id is not None:
                raise ValueError("a grant under the name of another one")
        case ("spent", str()):
            record.items()
        case ("claim", str(), str()):
            for chat, call_id in record["calls"]:
                _texts(chat or "", call_id)
        case ("denials", str() | None, str(), str()):
            _numbers(record["count"])
        case ("left", str(provider)):
            Provider.parse(provider)
            _numbers(record["until"])
        case _:
            raise ValueError(f"the unknown record {key!r}")


def _check_call(record: Record) -> None:
    _texts(record["name"], record["tool"])
    state = CallState(record["state"])
    if bool(record.get("final")) is not (state in FINAL):
        raise ValueError(f"a call that is {state} and says otherwise")
    for answer in record.get("answers", ()):
        Approval.from_json(answer)
    if state is CallState.DENIED:
        failure = Failure(**record["failure"])
        _texts(failure.code, failure.message)
        _numbers(failure.attempts)
        for verdict in record["verdicts"]:
            _verdict_from_json(verdict)
    else:
        _texts(record["provider"])
        if type(record["claimed"]) is not bool:
            raise TypeError("a call that is neither claimed nor not")


def _texts(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a text is missing")


def _numbers(*values: Any) -> None:
    if any(isinstance(value, bool) or not math.isfinite(value) for value in values):
        raise ValueError("a number is missing")
