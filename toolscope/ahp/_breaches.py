"""What `toolscope.ahp.verify` reports."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import attrs

from toolscope.ahp._following import TERMINAL, client_of

__all__ = ["Breach", "BreachKind", "Report", "breach", "ended", "standing"]


class BreachKind(StrEnum):
    """What a stream shows that the contract does not permit."""

    CLIENT_CONTRIBUTOR = "client_contributor"
    """A ``userChats`` call in a tool-spawned chat names a client as contributor."""
    EXECUTION_REQUEST = "execution_request"
    """A pending execution request names a client for such a call."""
    UNFINISHED = "unfinished"
    """Such a call was left unfinished at the end of its turn."""
    CANCELLED = "cancelled"
    """Such a call ended as cancelled."""
    SUCCESSFUL = "successful"
    """Such a call ended as successful."""
    COMPLETE_BEFORE_READY = "complete_before_ready"
    """A call was completed before it was ready: every reducer ignores that."""
    DUPLICATE_CALL_ID = "duplicate_call_id"
    """Two calls of one chat have one id."""
    ORIGIN_CHANGED = "origin_changed"
    """A chat's origin is not what it was."""
    FOREIGN_COMPLETION = "foreign_completion"
    """A client that does not own the call completed it, or changed its content."""


@attrs.frozen(kw_only=True)
class Breach:
    """One breach, with the line that shows it."""

    line: int
    kind: BreachKind
    chat: str
    call_id: str | None = None
    tool: str | None = None
    detail: str = ""


@attrs.frozen(kw_only=True)
class Report:
    """What a stream showed: how many envelopes and snapshots, of how many chats, and breaches."""

    breaches: tuple[Breach, ...]
    actions: int
    snapshots: int
    chats: int


def standing(uri: str, call: Mapping[str, Any], line: int) -> Iterator[Breach]:
    """What a snapshot shows of a forbidden call."""
    if (named := client_of(call)) is not None:
        yield breach(BreachKind.CLIENT_CONTRIBUTOR, line, uri, call, f"it names {named!r}")
    if call.get("status") in TERMINAL:
        yield from ended(uri, call, line)


def ended(uri: str, call: Mapping[str, Any], line: int) -> Iterator[Breach]:
    """How a forbidden call ended, where it is not as the contract says."""
    if call.get("status") == "cancelled":
        skipped = call.get("reason") == "skipped"
        kind = BreachKind.UNFINISHED if skipped else BreachKind.CANCELLED
        yield breach(kind, line, uri, call)
    elif call.get("success") is not False:
        yield breach(BreachKind.SUCCESSFUL, line, uri, call)


def breach(
    kind: BreachKind, line: int, chat: str, call: Mapping[str, Any], detail: str = ""
) -> Breach:
    """A breach that is about a call."""
    return Breach(
        line=line,
        kind=kind,
        chat=chat,
        call_id=str(call.get("toolCallId")),
        tool=str(call["toolName"]) if "toolName" in call else None,
        detail=detail,
    )
