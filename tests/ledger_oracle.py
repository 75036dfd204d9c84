"""The call ledger once more, written from the design alone.

Nothing here imports the package: strings, tuples and dicts go in and come out. A chat is one of
`CHATS`, a call is named by (chat, id). An ask is a text; what answers it is an *approval*: a dict
with the keys of `approval`. The oracle says which approvals may count and what follows from that;
which of several equal one-time grants is spent it learns from the ledger (`handed_out`).
"""

from collections.abc import Iterable
from typing import Any

CHATS: dict[str, tuple[str, str | None]] = {
    "main": ("user", None),
    "worker": ("tool", "main"),
    "deep": ("tool", "worker"),
    "side": ("sideChat", "main"),
    "fork": ("fork", "main"),
    "below side": ("tool", "side"),
    "orphan": ("tool", "gone"),
}
"""Every chat with its origin and the chat above it; ``gone`` is not there."""

OPEN = ("asked", "handed_out")


def above(chat: str) -> list[str]:
    """The chats above a chat, nearest first."""
    found = []
    parent = CHATS[chat][1]
    while parent is not None:
        found.append(parent)
        parent = CHATS[parent][1] if parent in CHATS else None
    return found


def reaches(given_in: str, reach: str, chat: str | None) -> bool:
    """Whether a grant given in one chat counts in another: down tool origins only."""
    while chat is not None and chat != given_in:
        origin, parent = CHATS.get(chat, ("", None))
        if reach != "subtree" or origin != "tool" or parent not in CHATS:
            return False
        chat = parent
    return chat is not None


def approval(
    *,
    chat: str,
    call: str | None,
    tool: str,
    arguments: str | None,
    asks: frozenset[str] | None,
    reach: str,
) -> dict[str, Any]:
    """What is known of an approval: ``arguments`` None = any, ``asks`` None = every ask."""
    return {
        "chat": chat, "call": call, "tool": tool, "arguments": arguments, "asks": asks,
        "reach": reach,
    }  # fmt: skip


class LedgerOracle:
    """What a ledger has to know, and the decisions that follow."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], dict[str, Any]] = {}
        self.grants: dict[int, dict[str, Any]] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        self.denials: dict[tuple[str | None, str, str], int] = {}
        self.ran: list[tuple[str, str]] = []
        self.order: list[tuple[str, str]] = []

    # What may count -------------------------------------------------------------------------

    def fitting(self, chat: str | None, call: str | None, tool: str, arguments: str) -> set[int]:
        """The numbers of the approvals that are about this call."""
        fitting = set()
        for number, one in [*self.answers.items(), *self.grants.items()]:
            here = (
                one["chat"] == chat and one["call"] == call
                if one["call"] is not None
                else reaches(one["chat"], one["reach"], chat)
            )
            if here and one["tool"] == tool and one["arguments"] in (None, arguments):
                fitting.add(number)
        return fitting

    def one(self, number: int) -> dict[str, Any]:
        """The approval of this number."""
        return self.answers.get(number) or self.grants[number]

    def answered(self, numbers: Iterable[int], asks: Iterable[str]) -> set[str]:
        """Which of the asks these approvals answer."""
        return {
            ask
            for ask in asks
            if any(self.one(n)["asks"] is None or ask in self.one(n)["asks"] for n in numbers)
        }

    def is_once(self, number: int) -> bool:
        """Whether a hand-out spends it."""
        return self.one(number)["call"] is None and self.one(number)["reach"] == "once"

    # Decisions ------------------------------------------------------------------------------

    def decide(
        self,
        chat: str | None,
        call: str | None,
        tool: str,
        arguments: str,
        *,
        listed: bool,
        denied: bool,
        asks: frozenset[str],
        can_ask: bool,
    ) -> dict[str, Any]:
        """What a submission comes to: ``{"effect", "code", "attempts", "fitting"}``.

        ``denied`` and ``asks`` are what the rules say of the call in all its forms.
        """
        key = None if chat is None or call is None else (chat, call)
        known = None if key is None else self.calls.get(key)
        if known is not None and known["state"] != "asked":
            if known["state"] == "denied" and known["tool"] == tool:
                return {
                    "effect": "deny", "code": known["code"], "attempts": known["attempts"],
                    "fitting": set(),
                }  # fmt: skip
            return {"effect": "deny", "code": "call_settled", "attempts": 1, "fitting": set()}
        fitting = self.fitting(chat, call, tool, arguments)
        is_open = asks - self.answered(fitting, asks)
        if not listed or denied or (is_open and not can_ask):
            code = (
                "tool_not_available" if not listed
                else "tool_denied" if denied
                else "approval_unavailable"
            )  # fmt: skip
            attempts = self._deny(key, chat, tool, code)
            return {"effect": "deny", "code": code, "attempts": attempts, "fitting": fitting}
        if key is not None:
            state = "asked" if is_open else "handed_out"
            self.calls[key] = {"state": state, "tool": tool, "arguments": arguments, "fresh": True}
            if not is_open:
                self.ran.append(key)
                self.order.append(key)
        effect = "ask" if is_open else "allow"
        return {"effect": effect, "code": None, "attempts": None, "fitting": fitting}

    def _deny(self, key: tuple[str, str] | None, chat: str | None, tool: str, code: str) -> int:
        count = self.denials[chat, tool, code] = self.denials.get((chat, tool, code), 0) + 1
        if key is not None:
            self.calls[key] = {"state": "denied", "tool": tool, "code": code, "attempts": count}
        return count

    def handed_out(self, used: Iterable[int]) -> None:
        """Learns which approvals a call that was handed out rests on."""
        for number in list(used):
            if self.is_once(number):
                del self.grants[number]

    # Answers --------------------------------------------------------------------------------

    def answer(self, chat: str, call: str, given: dict[int, dict[str, Any]], *, deny: bool) -> str:
        """Takes answers to one call together: ``taken``, ``ignored`` or ``error``."""
        known = self.calls.get((chat, call))
        if known is None or known["state"] == "handed_out":
            return "error"
        if known["state"] != "asked":
            return "ignored"
        if deny:
            self._deny((chat, call), chat, known["tool"], "approval_refused")
            return "taken"
        for number, one in given.items():
            if one["reach"] == "once":
                self.answers[number] = one
            else:
                self.grants[number] = {**one, "call": None}
        return "taken"

    # What becomes of calls ------------------------------------------------------------------

    def end(self, chat: str, call: str, state: str, *, from_: Iterable[str]) -> str | None:
        """Ends a call that is in one of these states; gives the state it is in now."""
        known = self.calls.get((chat, call))
        if known is not None and known["state"] in from_:
            known["state"] = state
        return None if known is None else known["state"]

    def leave(self, tools: Iterable[str]) -> set[tuple[str, str]]:
        """The provider of these tools has gone: its open calls fail."""
        gone = {
            key for key, one in self.calls.items()
            if one["state"] in OPEN and one["tool"] in set(tools)
        }  # fmt: skip
        for key in gone:
            self.calls[key]["state"] = "failed"
        return gone

    def claim(self, tool: str, arguments: str) -> tuple[str, str] | None:
        """The oldest call that this execution may be: handed out, and not executed yet."""
        for key in self.order:
            one = self.calls[key]
            same = (one["tool"], one.get("arguments")) == (tool, arguments)
            if one["state"] == "handed_out" and one["fresh"] and same:
                one["fresh"] = False
                return key
        return None
