"""What follows from an action in a running session: what is sent, and which calls end with it."""

import logging
from collections.abc import Iterable
from typing import Any

import attrs

from toolscope.ahp import wire
from toolscope.ahp._following import TERMINAL, TURN_ENDS, Call, Change, client_of
from toolscope.ahp._live import LiveChat, LiveSession
from toolscope.ahp.calls import settling_actions
from toolscope.calls import CallLedger, CallState
from toolscope.listings import Listing
from toolscope.model import Tool
from toolscope.verdicts import Decision, Failure, Unlisted, decide_unlisted

__all__ = ["Ended", "Flow", "Send", "Step"]

_log = logging.getLogger("toolscope")


@attrs.frozen(kw_only=True)
class Send:
    """One action to send to all subscribers of a channel; ``client`` dispatched it, if any did."""

    channel: str
    action: dict[str, Any]
    client: str | None = None


@attrs.frozen(kw_only=True)
class Ended:
    """A call that was under way and ended here: ``failure.message`` goes to the model."""

    chat: str
    call_id: str
    failure: Failure


@attrs.frozen(kw_only=True)
class Step:
    """What to do about an action that somebody wants to dispatch.

    ``refusal`` is the ``rejectionReason`` where it must not be: it goes to who dispatched it.
    Whether or not there is one, ``sends`` is to be sent, in order.
    """

    refusal: str | None = None
    sends: tuple[Send, ...] = ()
    ended: tuple[Ended, ...] = ()


class Flow:
    """Follows what is sent in one session, and what has to be sent because of it."""

    def __init__(self, uri: str, ledger: CallLedger, live: LiveSession) -> None:
        self._uri = uri
        self._ledger = ledger
        self._live = live

    def tools(self, chat: str, turn_sender: str | None = None) -> Listing:
        """The listing of a chat; a name goes to the client that started the turn."""
        found = self._live.scopes[chat]
        prefer = turn_sender or self._live.sender(chat)
        return self._ledger.filter_tools(self._live.toolset, found.scope, prefer)

    def session_action(self, view: wire.Action, json: dict[str, Any], client: str | None) -> Step:
        """Follows an action on the session's channel that is not refused."""
        sends = [Send(channel=self._uri, action=json, client=client)]
        ended: list[Ended] = []
        left = view.client_id if view.type == "session/activeClientRemoved" else None
        gone = None
        if view.type == "session/chatRemoved":
            gone = self._live.chats.get(str(view.chat))
        self._live.apply(view, json)
        if gone is not None:
            sends.extend(self._forgotten(gone, list(gone.followed.calls())))
        if left is not None:
            self._leave(left, sends, ended)
        self._withdraw(sends, ended)
        return Step(sends=tuple(sends), ended=tuple(ended))

    def _forgotten(self, chat: LiveChat, calls: Iterable[Call]) -> Iterable[Send]:
        """What follows where calls go without an end, with their turn or their chat."""
        for call in calls:
            call_id = str(call.get("toolCallId"))
            if call.get("status") not in TERMINAL:
                self._ledger.cancelled(chat.uri, call_id)
            if (id_ := _request_id(chat, call_id)) in self._live.requests:
                yield self._request_removed(id_)
        chat.decisions.clear()

    def _leave(self, client: str, sends: list[Send], ended: list[Ended]) -> None:
        """Fails the open calls of a client that left; a result that is there stays."""
        for chat, call in list(self._live.calls_of(client)):
            if (
                call.get("status") in TERMINAL
                or call.get("status") == "pending-result-confirmation"
            ):
                continue
            name = str(call.get("toolName"))
            message = f"The client {client!r} left before it completed {name!r}."
            if self.tools(chat.uri).resolve(name) is not None:
                message += f" Another provider offers {name!r}: call it again to use that one."
            failure = Failure(code="client_left", message=message, final=False)
            self._end(chat, str(call.get("toolCallId")), failure, sends, ended)

    def _withdraw(self, sends: list[Send], ended: list[Ended]) -> None:
        """Ends the calls that have not begun to run and whose tool is not listed any more."""
        for chat in self._live.chats.values():
            for call in list(chat.followed.calls()):
                call_id = str(call.get("toolCallId"))
                decision = chat.decisions.get(call_id)
                waits = call.get("status") in ("streaming", "pending-confirmation")
                if decision is None or not waits:
                    continue
                withdrawn = self.withdrawn(chat, decision)
                if withdrawn is not None and withdrawn.failure is not None:
                    chat.decisions[call_id] = withdrawn
                    self._end(chat, call_id, withdrawn.failure, sends, ended)

    def withdrawn(self, chat: LiveChat, decision: Decision) -> Decision | None:
        """The denial of a permitted call whose tool is not listed any more."""
        if decision.provider is None:
            return None
        found = self.tools(chat.uri).lookup(decision.call.name, decision.provider)
        if not isinstance(found, Unlisted):
            return None
        return decide_unlisted(decision.call, found, self._live.scopes[chat.uri].scope)

    def is_changed(self, chat: LiveChat, decision: Decision) -> bool:
        """Whether the tool of a permitted call has another definition than it was decided with."""
        found = self.tools(chat.uri).lookup(decision.call.name, decision.provider)
        return (
            decision.tool is not None
            and isinstance(found, Tool)
            and not found.same_to_rules(decision.tool)
        )

    def _end(
        self,
        chat: LiveChat,
        call_id: str,
        failure: Failure,
        sends: list[Send],
        ended: list[Ended],
    ) -> None:
        sends.extend(self.settle(chat, call_id, failure))
        ended.append(Ended(chat=chat.uri, call_id=call_id, failure=failure))

    def settle(self, chat: LiveChat, call_id: str, failure: Failure) -> tuple[Send, ...]:
        """Ends a call that is under way."""
        call, turn = chat.followed.call(call_id), chat.followed.turn
        if call is None or turn is None:
            return ()
        actions = settling_actions(call, turn=turn, failure=failure)
        # A call that is made ready only to fail is nothing that its client should execute.
        return self.follow_all(chat, actions, requests=False)

    def follow_all(
        self, chat: LiveChat, actions: Iterable[dict[str, Any]], *, requests: bool = True
    ) -> tuple[Send, ...]:
        """Follows actions of the host's on a chat's channel."""
        return tuple(
            send
            for action in actions
            for send in self.follow(chat, wire.read_action(action), action, None, requests)
        )

    def follow(
        self,
        chat: LiveChat,
        view: wire.Action,
        json: dict[str, Any],
        client: str | None,
        requests: bool = True,
    ) -> tuple[Send, ...]:
        """Follows an action on a chat's channel that is not refused."""
        agents = chat.view
        calls = list(chat.followed.calls()) if view.type == "chat/truncated" else []
        changes = chat.apply(view, json, client)
        if chat.view is not agents:
            self._live.changed()
        sends = [Send(channel=chat.uri, action=json, client=client)]
        for change in changes:
            self._record(chat, *change)
            sends.extend(self._mirrored(chat, change, requests))
        if calls and chat.followed.turn is None:
            sends.extend(self._forgotten(chat, calls))
        if view.type in TURN_ENDS:
            chat.decisions.clear()  # used ids stay used; what was decided is of no more use
        return tuple(sends)

    def _record(self, chat: LiveChat, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """The ledger hears of every call that ends after it was handed out or asked about."""
        call_id, status = str(after.get("toolCallId")), after.get("status")
        if before is None or status not in TERMINAL:
            return
        try:
            state = self._ledger.state(chat.uri, call_id)
            if status == "completed" and state is CallState.HANDED_OUT:
                self._ledger.completed(chat.uri, call_id, failed=after.get("success") is not True)
            elif state in (CallState.ASKED, CallState.HANDED_OUT):
                self._ledger.cancelled(chat.uri, call_id)
        except Exception:  # noqa: BLE001  (a store's error: the action happened, and is sent; law L4)
            _log.exception("the end of the call %r could not be recorded", call_id)

    def _mirrored(self, chat: LiveChat, change: Change, requests: bool) -> Iterable[Send]:
        """The session's list of executions that a client owes follows from the running calls."""
        before, call = change
        client, id_ = client_of(call), _request_id(chat, str(call.get("toolCallId")))
        runs = call.get("status") == "running" and client is not None
        if runs and requests and (before is None or before.get("status") != "running"):
            request = {
                "id": id_,
                "kind": "toolClientExecution",
                "chat": chat.uri,
                "turnId": chat.followed.turn,
                "clientId": client,
                "toolCall": call,
            }
            self._live.requests[id_] = request
            action = {"type": "session/inputNeededSet", "request": request}
            yield Send(channel=self._uri, action=action)
        elif not runs and id_ in self._live.requests:
            yield self._request_removed(id_)

    def _request_removed(self, id_: str) -> Send:
        del self._live.requests[id_]
        action = {"type": "session/inputNeededRemoved", "id": id_}
        return Send(channel=self._uri, action=action)


def _request_id(chat: LiveChat, call_id: str) -> str:
    return f"{chat.uri}#{call_id}"
