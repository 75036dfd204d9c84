"""The host's side of the contract: one object per session that says what is to be sent.

A host hands every action that it or a client wants to dispatch to `HostSession.dispatch`, asks
`HostSession.tools` before it calls the model and `HostSession.on_tool_call` for each call that
comes of it, and sends exactly what it is given, in order. What is given has been followed already.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from json import dumps as to_text
from typing import Any, TypeAlias, TypeVar

import attrs

from toolscope.ahp import wire
from toolscope.ahp._chats import Chat
from toolscope.ahp._flow import Ended, Flow, Send, Step
from toolscope.ahp._following import TERMINAL, client_of
from toolscope.ahp._live import LiveChat, LiveSession
from toolscope.ahp._rules import (
    chat_refusal,
    origin_refusal,
    plain_result,
    same_arguments,
    session_refusal,
)
from toolscope.ahp.calls import denied_actions, ready_action, start_action
from toolscope.calls import CallLedger, CallState, answer_to
from toolscope.engine import PolicyEngine
from toolscope.errors import Fault, ToolscopeError, WireError
from toolscope.listings import Listing
from toolscope.model import Approval, InvalidArguments, Provider, ToolCall, Toolset
from toolscope.verdicts import Decision, Effect, Failure, decide_settled

__all__ = ["CallStep", "Ended", "HostSession", "Send", "Step"]

_EMPTY: dict[str, Any] = {"activeClients": [], "chats": []}


@attrs.frozen(kw_only=True)
class CallStep:
    """What to do about a call: the decision, and what to send before anything else about it.

    An allowed call has been announced: send its Ready (`HostSession.ready`), then execute it, or
    let its client do so. The arguments to run are ``decision.call.arguments``.
    """

    decision: Decision
    sends: tuple[Send, ...] = ()


@attrs.frozen(kw_only=True)
class _Question:
    """A call that the ledger decides; unless ``remember``, the engine, which remembers nothing."""

    call: ToolCall
    chat: Chat
    produced: ToolCall | None = None
    approvals: tuple[Approval, ...] = ()
    remember: bool = True


_T = TypeVar("_T")
_Asking: TypeAlias = Generator[_Question, Decision, _T]


class HostSession:
    """A session as its host runs it.

    Not safe to share between threads: a session has one order of events, so give it one owner.

    Args:
        policy: The engine, a callable that returns the one in force, or a ledger.
        uri: The session's channel.
        state: The ``SessionState`` to begin with.
        client: ``createSession.activeClient``: it is in the session from the beginning.

    Raises:
        WireError: The state or the client cannot be read.
    """

    def __init__(
        self,
        policy: PolicyEngine | CallLedger | Callable[[], PolicyEngine],
        uri: str,
        state: wire.Document = _EMPTY,
        *,
        client: wire.Document | None = None,
    ) -> None:
        self.uri = uri
        self.ledger = policy if isinstance(policy, CallLedger) else CallLedger(policy)
        self._live = LiveSession.read(state)
        self._flow = Flow(uri, self.ledger, self._live)
        self._refused: list[Fault] = []
        if client is not None:
            first = wire.read_client(client)
            self._live.clients[first.id] = first
            self._live.changed()

    @property
    def toolset(self) -> Toolset:
        """The tools of the server and of the clients that are there now."""
        return self._live.toolset

    @property
    def chats(self) -> Mapping[str, Chat]:
        """Each chat by its URI; asking for one that is not there is a `WireError`."""
        return self._live.scopes

    @property
    def errors(self) -> tuple[Fault, ...]:
        """Agents that a chat names and that cannot be resolved now."""
        return self._live.errors

    @property
    def refused(self) -> tuple[Fault, ...]:
        """Changes of a chat's origin that were refused, oldest first."""
        return tuple(self._refused)

    def to_json(self) -> dict[str, Any]:
        """The ``SessionState`` now, with the pending execution requests."""
        return self._live.to_json()

    def chat_to_json(self, chat: str) -> dict[str, Any]:
        """The ``ChatState`` now.

        Raises:
            WireError: There is no such chat.
        """
        return self._live.chats[self._live.scopes[chat].uri].to_json()

    # ----------------------------------------------------------------------------------------
    # The two questions
    # ----------------------------------------------------------------------------------------

    def tools(self, chat: str, turn_sender: str | None = None) -> Listing:
        """What the agent of this chat is handed for its next step.

        ``turn_sender`` is the client that started the turn, whose tools win a shared name; without
        it, the client whose ``chat/turnStarted`` was dispatched, for a worker that of the chat at
        the top.

        Raises:
            WireError: There is no such chat.
        """
        return self._flow.tools(chat, turn_sender)

    def on_tool_call(self, chat: str, turn: str, call: ToolCall) -> CallStep:
        """The decision on a produced call, before it is announced, and what to send.

        ``call.id`` is the ``toolCallId``. An id that was used in this chat is not announced again.

        Raises:
            WireError: There is no such chat.
            ValueError: The call has no id.
        """
        return self._answered(self._on_tool_call(chat, turn, call))

    async def on_tool_call_async(self, chat: str, turn: str, call: ToolCall) -> CallStep:
        """The same, with awaitable rules awaited."""
        return await self._answered_async(self._on_tool_call(chat, turn, call))

    def _on_tool_call(self, uri: str, turn: str, call: ToolCall) -> _Asking[CallStep]:
        found = self._live.scopes[uri]
        call_id = call.id
        if call_id is None:
            raise ValueError("the call has no id; AHP names every call in a chat")
        call = attrs.evolve(call, chat=uri, ancestors=found.ancestors)
        chat = self._live.chats[uri]
        known = chat.decisions.get(call_id)
        if chat.followed.turn != turn:
            return _settled(call, found, "the turn it belongs to is not running")
        if call_id in chat.used_ids and known is None:
            return _settled(call, found, "a call with this id is in the chat already")
        if known is not None and not _is_same(call, known.call):
            return _settled(call, found, "another call with this id is in the chat already")
        chat.used_ids.add(call_id)
        try:
            decision = yield _Question(call=call, chat=found)
        except BaseException:  # it was not decided, so it may be submitted again
            if known is None:
                chat.used_ids.discard(call_id)
            raise
        if self._live.chats.get(uri) is not chat or chat.followed.turn != turn:
            self.ledger.cancelled(uri, call_id)
            return _settled(call, found, "its turn ended before it was decided")
        decision = self._flow.withdrawn(chat, decision) or decision
        if known is None:
            return CallStep(decision=decision, sends=self._announced(chat, turn, call_id, decision))
        if known.effect is not Effect.ASK:
            return CallStep(decision=decision)
        return CallStep(decision=decision, sends=self._answered_ask(chat, call_id, decision))

    def _announced(
        self, chat: LiveChat, turn: str, call_id: str, decision: Decision
    ) -> tuple[Send, ...]:
        chat.decisions[call_id] = decision
        if decision.effect is Effect.DENY:
            actions = denied_actions(decision, turn=turn, call_id=call_id)
        else:
            actions = [start_action(decision, turn=turn, call_id=call_id)]
            if decision.effect is Effect.ASK:
                ready = ready_action(decision, turn=turn, call_id=call_id, confirmed=None)
                actions.append(ready)
        return self._flow.follow_all(chat, actions)

    def _answered_ask(self, chat: LiveChat, call_id: str, decision: Decision) -> tuple[Send, ...]:
        """The host submits a call again that waits: with an answer it goes on, or it ends."""
        call = chat.followed.call(call_id)
        if call is None or call.get("status") != "pending-confirmation":
            return ()
        chat.decisions[call_id] = decision
        if decision.failure is not None:
            return self._flow.settle(chat, call_id, decision.failure)
        if decision.effect is Effect.ASK:
            return ()
        confirmed = {
            "type": "chat/toolCallConfirmed",
            "turnId": chat.followed.turn,
            "toolCallId": call_id,
            "approved": True,
            "confirmed": "user-action",
        }
        return self._flow.follow_all(chat, [confirmed])

    def ready(self, chat: str, call_id: str, display_name: str | None = None) -> Step:
        """The Ready of an allowed call, whose arguments are complete: from here on it runs.

        Raises:
            WireError: There is no such chat.
        """
        live = self._live.chats.get(chat)
        decision = None if live is None else live.decisions.get(call_id)
        turn = None if live is None else live.followed.turn
        if decision is None or turn is None:
            return Step(refusal="there is no such call in the running turn")
        action = ready_action(decision, turn=turn, call_id=call_id, display_name=display_name)
        return self.dispatch(chat, action)

    def settle(self, chat: str, call_id: str, decision: Decision) -> Step:
        """Ends a call that is under way and that this decision denies, whatever its status.

        Calls whose tool goes away while they are streaming or waiting end by themselves, in the
        step that changes the tools. A running call is left to its end unless it is settled here.

        Raises:
            ValueError: The decision does not deny.
        """
        if decision.failure is None:
            raise ValueError(f"the decision is '{decision.effect}'; only a denied call is settled")
        live = self._live.chats.get(chat)
        sends = self._flow.settle(live, call_id, decision.failure) if live is not None else ()
        ended = (Ended(chat=chat, call_id=call_id, failure=decision.failure),) if sends else ()
        return Step(sends=sends, ended=ended)

    # ----------------------------------------------------------------------------------------
    # Actions
    # ----------------------------------------------------------------------------------------

    def dispatch(self, channel: str, action: Mapping[str, Any], client: str | None = None) -> Step:
        """What to do about an action that the host (``client=None``) or a client dispatches.

        An action that is not readable, not this client's to dispatch, or not possible now is
        refused. Calls that it forbids, and those of a client that leaves, end in the same step.
        """
        return self._answered(self._dispatch(channel, action, client))

    async def dispatch_async(
        self, channel: str, action: Mapping[str, Any], client: str | None = None
    ) -> Step:
        """The same, with awaitable rules awaited (a person's approval is decided again)."""
        return await self._answered_async(self._dispatch(channel, action, client))

    def _dispatch(
        self, channel: str, action: Mapping[str, Any], client: str | None
    ) -> _Asking[Step]:
        try:
            view = wire.read_action(action)
        except WireError as error:
            return Step(refusal=str(error))
        json = wire.write(view)
        if channel == self.uri:
            if refusal := session_refusal(self._live, view, json, client):
                if origin_refusal(self._live, view):
                    self._refused.append(Fault(path=f"$.{view.type}", problem=refusal))
                return Step(refusal=refusal)
            return self._flow.session_action(view, json, client)
        chat = self._live.chats.get(channel)
        if chat is None:
            return Step(refusal="there is no such chat")
        decision = chat.decisions.get(view.tool_call_id or "")
        if refusal := chat_refusal(chat, view, json, client, decision):
            return Step(refusal=refusal)
        if view.type == "chat/toolCallComplete":
            json = plain_result(json)
        if view.type == "chat/toolCallConfirmed":
            return (yield from self._confirmed(chat, view, json, client, decision))
        if view.type == "chat/toolCallReady" and decision is not None:
            return (yield from self._made_ready(chat, view, json, decision))
        return Step(sends=self._flow.follow(chat, view, json, client))

    def _made_ready(
        self, chat: LiveChat, view: wire.Action, json: dict[str, Any], decision: Decision
    ) -> _Asking[Step]:
        """The host's Ready of a call: with the arguments and about the tool that were decided."""
        call_id, arguments = view.tool_call_id or "", decision.call.arguments
        if "toolInput" not in json and not isinstance(arguments, InvalidArguments):
            json = {**json, "toolInput": to_text(arguments)}
        if decision.effect is Effect.ALLOW and self._flow.is_changed(chat, decision):
            # Nobody is asked about a call that was allowed: an ask of the new tool is a denial.
            found = self._live.scopes[chat.uri]
            unasked = attrs.evolve(found, scope=attrs.evolve(found.scope, can_ask=False))
            again = yield _Question(call=decision.call, chat=unasked, remember=False)
            if chat.decisions.get(call_id) is not decision or view.turn_id != chat.followed.turn:
                return Step(refusal="the call ended meanwhile")
            chat.decisions[call_id] = again
            if again.failure is not None:
                return self._ended(chat, call_id, again.failure)
        return Step(sends=self._flow.follow(chat, wire.read_action(json), json, None))

    def _ended(self, chat: LiveChat, call_id: str, failure: Failure) -> Step:
        """Refuses an action on a call that its denial ends."""
        sends = self._flow.settle(chat, call_id, failure)
        ended = Ended(chat=chat.uri, call_id=call_id, failure=failure)
        return Step(refusal=failure.message, sends=sends, ended=(ended,))

    def _confirmed(
        self,
        chat: LiveChat,
        view: wire.Action,
        json: dict[str, Any],
        client: str | None,
        decision: Decision | None,
    ) -> _Asking[Step]:
        """A person's answer to a call that waits. What was edited is decided again."""
        call_id, edited = view.tool_call_id or "", json.get("editedToolInput")
        asked = decision is not None and decision.effect is Effect.ASK
        if not json.get("approved"):
            if asked and decision is not None:
                reason = json.get("reasonMessage")
                said = reason if isinstance(reason, str) else None
                # A refusal ends the call, whatever the ledger knows of it.
                with suppress(ToolscopeError):
                    self.ledger.answer(answer_to(decision, allow=False, by=client, reason=said))
            return Step(sends=self._flow.follow(chat, view, json, client))
        if decision is not None and not asked and edited is None:
            return Step(sends=self._flow.follow(chat, view, json, client))
        before = self._call_of(chat, call_id, decision)
        call = before if edited is None else attrs.evolve(before, arguments=edited)
        asked = asked and not isinstance(call.arguments, InvalidArguments)
        given: tuple[Approval, ...] = ()
        # A call that nobody here has decided, as of a session that was restored, is remembered.
        remember = asked or decision is None
        if asked and decision is not None:
            answer = answer_to(decision, allow=True, by=client, arguments=call.arguments)
            if self.ledger.state(chat.uri, call_id) is CallState.HANDED_OUT:
                # It was allowed, and edited into a form that asks.
                given, remember = (answer,), False
            else:
                try:
                    self.ledger.answer(answer)
                except ToolscopeError as error:
                    return Step(refusal=str(error))
        found = self._live.scopes[chat.uri]
        again = yield _Question(
            call=call,
            chat=found,
            produced=before if asked and edited is not None else None,
            approvals=given,
            remember=remember,
        )
        state = chat.followed.call(call_id)
        if view.turn_id != chat.followed.turn or not state or state["status"] in TERMINAL:
            return Step(refusal="the call ended meanwhile")
        again = self._flow.withdrawn(chat, again) or again
        chat.decisions[call_id] = again
        if again.failure is not None:
            return self._ended(chat, call_id, again.failure)
        if again.effect is Effect.ASK:
            turn = view.turn_id or ""
            ready = ready_action(again, turn=turn, call_id=call_id, confirmed=None)
            refusal = "this form of the call needs an answer of its own"
            return Step(refusal=refusal, sends=self._flow.follow_all(chat, [ready]))
        return Step(sends=self._flow.follow(chat, view, json, client))

    def _call_of(self, chat: LiveChat, call_id: str, decision: Decision | None) -> ToolCall:
        """The call as it was decided, else as it stands in the chat; about the tool it is about."""
        if decision is not None:
            return attrs.evolve(decision.call, provider=decision.provider)
        state = chat.followed.call(call_id) or {}
        client = client_of(state)
        return ToolCall(
            id=call_id,
            name=str(state.get("toolName")),
            provider=None if not client else Provider.client(client),
            arguments=state.get("toolInput") or {},
            chat=chat.uri,
            ancestors=self._live.scopes[chat.uri].ancestors,
        )

    # ----------------------------------------------------------------------------------------
    # Asking
    # ----------------------------------------------------------------------------------------

    def _answered(self, asking: _Asking[_T]) -> _T:
        try:
            question = next(asking)
            while True:
                prefer = self._live.sender(question.chat.uri)
                of = (question.call, self.toolset, question.chat.scope, prefer)
                if question.remember:
                    decision = self.ledger.on_tool_call(*of, produced=question.produced)
                else:
                    decision = self.ledger.engine.on_tool_call(*of, question.approvals)
                question = asking.send(decision)
        except StopIteration as stop:
            result: _T = stop.value
            return result
        finally:
            asking.close()

    async def _answered_async(self, asking: _Asking[_T]) -> _T:
        try:
            question = next(asking)
            while True:
                prefer = self._live.sender(question.chat.uri)
                of = (question.call, self.toolset, question.chat.scope, prefer)
                if question.remember:
                    produced = question.produced
                    decision = await self.ledger.on_tool_call_async(*of, produced=produced)
                else:
                    approvals = question.approvals
                    decision = await self.ledger.engine.on_tool_call_async(*of, approvals)
                question = asking.send(decision)
        except StopIteration as stop:
            result: _T = stop.value
            return result
        finally:
            asking.close()


def _is_same(call: ToolCall, known: ToolCall) -> bool:
    """Whether a call that comes again is the one that is known: no other tool or arguments."""
    return (call.name, call.provider) == (known.name, known.provider) and same_arguments(
        call.arguments, known.arguments
    )


def _settled(call: ToolCall, chat: Chat, reason: str) -> CallStep:
    return CallStep(decision=decide_settled(call, None, chat.scope, reason))
