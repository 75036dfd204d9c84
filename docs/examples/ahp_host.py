"""A small Agent Host Protocol host (0.7.0) over WebSocket that keeps the contract of AHP #446.

    python ahp_host.py --port 8765

Its agent is scripted by what the user writes: ``main TOOL`` calls the tool in the user's chat,
``worker TOOL`` spawns a worker chat by a tool call and calls the tool there. It calls the tool
whether it was listed or not, as a model may: what becomes of the call is for toolscope to say.

How a host keeps the contract is in three places, each marked with ``toolscope:`` below:

1. it hands every action that anybody dispatches to ``HostSession.dispatch`` and sends what that
   gives (`HostedSession.dispatch`);
2. it takes the agent's list of tools from ``HostSession.tools`` (`HostedSession.run_turn`);
3. it asks ``HostSession.on_tool_call`` about each call before it is announced
   (`HostedSession.call_tool`).
"""

import argparse
import asyncio
import json
import signal
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from toolscope import Effect, PolicyEngine, ToolCall
from toolscope.ahp.host import HostSession, Send, Step
from toolscope.errors import WireError

Json = dict[str, Any]

ROOT = "ahp-root://"
VERSION = "0.7.0"
PROVIDER = {
    "provider": "scripted",
    "displayName": "Scripted",
    "description": "does what the text says",
    "models": [{"id": "script", "provider": "scripted", "name": "Script"}],
}
DELEGATE = {"name": "delegate", "title": "Delegate", "description": "Spawns a worker chat"}
IDLE, IN_PROGRESS = 1, 8
STARTING = 0.02  # seconds


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.answer: Json = {"code": code, "message": message} | ({"data": data} if data else {})


class Connection:
    """One client's socket, the id it introduced itself with, and what it subscribed to."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.client: str | None = None
        self.channels: set[str] = set()
        self.outgoing: asyncio.Queue[Json] = asyncio.Queue()

    def send(self, message: Json) -> None:
        """Messages leave in the order of the calls; nobody waits for a slow client here."""
        self.outgoing.put_nowait({"jsonrpc": "2.0", **message})

    async def write(self) -> None:
        while True:
            message = await self.outgoing.get()
            await self.socket.send(json.dumps(message))


class Host:
    """All sessions and connections of this process."""

    def __init__(self, policy: PolicyEngine) -> None:
        self.policy = policy
        self.sessions: dict[str, HostedSession] = {}
        self.connections: set[Connection] = set()
        self.seq = 0

    # Sending --------------------------------------------------------------------------------

    def notify(self, channel: str, method: str, params: Json) -> None:
        """Sends a notification to all subscribers of a channel."""
        for connection in self.connections:
            if channel in connection.channels:
                connection.send({"method": method, "params": {"channel": channel, **params}})

    def envelope(self, action: Json, origin: Json | None = None) -> Json:
        self.seq += 1
        known = {} if origin is None else {"origin": origin}
        return {"action": action, "serverSeq": self.seq, **known}

    def find(self, channel: str) -> "HostedSession | None":
        """The session that a session's or a chat's channel belongs to."""
        for session in self.sessions.values():
            if channel == session.uri or channel in session.rules.chats:
                return session
        return None

    def snapshot(self, channel: str) -> Json | None:
        if channel == ROOT:
            state: Json = {"agents": [PROVIDER], "activeSessions": len(self.sessions)}
        elif (session := self.find(channel)) is not None:
            state = session.state() if channel == session.uri else session.chat_state(channel)
        else:
            return None
        return {"resource": channel, "state": state, "fromSeq": self.seq}

    # Receiving ------------------------------------------------------------------------------

    async def connect(self, socket: ServerConnection) -> None:
        """Serves one connection until it closes. Then its client leaves the sessions."""
        connection = Connection(socket)
        self.connections.add(connection)
        writing = asyncio.create_task(connection.write())
        try:
            async for text in socket:
                with suppress(ValueError):  # what is no JSON is passed over
                    self.receive(connection, json.loads(text))
        except ConnectionClosed:
            pass
        finally:
            writing.cancel()
            self.connections.discard(connection)
            for session in list(self.sessions.values()):
                self.leave(connection, session)

    def receive(self, connection: Connection, message: object) -> None:
        """Answers a request, or takes a notification."""
        if not isinstance(message, dict) or "method" not in message:
            return
        method, params = str(message["method"]), message.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" not in message:
            if method == "dispatchAction" and connection.client is not None:
                self.dispatch(connection, params)
            elif method == "unsubscribe":
                self.unsubscribe(connection, str(params.get("channel")))
            return
        try:
            answer = {"result": self.request(connection, method, params)}
        except RequestError as error:
            answer = {"error": error.answer}
        connection.send({"id": message["id"], **answer})

    def request(self, connection: Connection, method: str, params: Json) -> Json | None:
        channel = str(params.get("channel"))
        if connection.client is None and method not in ("initialize", "ping"):
            raise RequestError(-32600, "initialize comes first")
        match method:
            case "ping":
                return None
            case "initialize":
                return self.initialize(connection, params)
            case "listSessions":
                return {"items": [session.summary() for session in self.sessions.values()]}
            case "subscribe":
                connection.channels.add(channel)  # with the snapshot, in one step
                snapshot = self.snapshot(channel)
                if snapshot is None:
                    connection.channels.discard(channel)
                    raise RequestError(-32008, f"nothing is at {channel!r}")
                return {"snapshot": snapshot}
            case "createSession":
                self.create_session(connection, channel, params)
                return None
            case "disposeSession":
                self.dispose_session(channel)
                return None
            case _:
                raise RequestError(-32601, f"no method {method!r}")

    def initialize(self, connection: Connection, params: Json) -> Json:
        offered = [str(one) for one in params.get("protocolVersions") or ()]
        version = next((one for one in offered if one.split(".")[:2] == ["0", "7"]), None)
        if version is None:
            raise RequestError(-32005, "no common version", {"supportedVersions": [VERSION]})
        connection.client = str(params.get("clientId"))
        wanted = [str(one) for one in params.get("initialSubscriptions") or ()]
        snapshots = [found for one in wanted if (found := self.snapshot(one)) is not None]
        connection.channels.update(one["resource"] for one in snapshots)
        return {
            "protocolVersion": version,
            "serverSeq": self.seq,
            "serverInfo": {"name": "toolscope-example-host"},
            "snapshots": snapshots,
        }

    def create_session(self, connection: Connection, uri: str, params: Json) -> None:
        if uri in self.sessions:
            raise RequestError(-32003, f"the session {uri!r} exists")
        if params.get("provider", PROVIDER["provider"]) != PROVIDER["provider"]:
            raise RequestError(-32002, f"no provider {params.get('provider')!r}")
        client = params.get("activeClient")
        if isinstance(client, dict) and client.get("clientId") != connection.client:
            raise RequestError(-32602, "the active client is not the one of this connection")
        try:
            session = HostedSession(self, uri, client)
        except WireError as error:
            raise RequestError(-32602, str(error)) from error
        self.sessions[uri] = session
        self.notify(ROOT, "root/sessionAdded", {"summary": session.summary()})
        # A real host starts its agent here. A client sees the session become ready, or finds it
        # ready when it comes late: it has to read the snapshot and the actions alike.
        asyncio.get_running_loop().call_later(STARTING, session.begin)

    def dispose_session(self, uri: str) -> None:
        session = self.sessions.pop(uri, None)
        if session is None:
            raise RequestError(-32001, f"no session {uri!r}")
        session.end()
        self.notify(ROOT, "root/sessionRemoved", {"session": uri})

    def unsubscribe(self, connection: Connection, channel: str) -> None:
        connection.channels.discard(channel)
        if (session := self.sessions.get(channel)) is not None:
            self.leave(connection, session)

    def leave(self, connection: Connection, session: "HostedSession") -> None:
        """A client that is gone is no active client: its open calls fail in the same step."""
        others = (one for one in self.connections if one is not connection)
        if any(one.client == connection.client and session.uri in one.channels for one in others):
            return
        clients = [one["clientId"] for one in session.rules.to_json()["activeClients"]]
        if connection.client in clients:
            action = {"type": "session/activeClientRemoved", "clientId": connection.client}
            session.dispatch(session.uri, action)

    def dispatch(self, connection: Connection, params: Json) -> None:
        channel, action = str(params.get("channel")), params.get("action")
        session = self.find(channel)
        if session is None or not isinstance(action, dict):
            return  # an unknown channel gets no reply (AHP)
        origin = {"clientId": connection.client, "clientSeq": params.get("clientSeq")}
        step = session.dispatch(channel, action, origin)
        if step.refusal is not None:
            refused = {**self.envelope(action, origin), "rejectionReason": step.refusal}
            connection.send({"method": "action", "params": {"channel": channel, **refused}})


class HostedSession:
    """One session: its scripted agent, and the `HostSession` that says what may be sent."""

    def __init__(self, host: Host, uri: str, client: Json | None) -> None:
        self.host = host
        self.uri = uri
        self.created = now()
        self.members: Json = {"provider": "scripted", "title": "New", "status": IDLE}
        self.members["lifecycle"] = "creating"
        state = {"activeClients": [], "chats": [], "serverTools": [DELEGATE]}
        # toolscope: one object per session; the client of createSession is in it at once
        self.rules = HostSession(host.policy, uri, state, client=client)
        self.outcomes: dict[tuple[str, str], asyncio.Future[Json]] = {}
        self.turns: dict[str, asyncio.Task[None]] = {}

    def summary(self) -> Json:
        times = {"createdAt": self.created, "modifiedAt": now()}
        known = {key: self.members[key] for key in ("provider", "title", "status")}
        return {"resource": self.uri, **known, **times}

    def state(self) -> Json:
        return {**self.rules.to_json(), **self.members}

    def chat_state(self, chat: str) -> Json:
        return self.rules.chat_to_json(chat)

    def begin(self) -> None:
        """Adds the user's chat; from then on the session is ready."""
        if self.host.sessions.get(self.uri) is not self:
            return  # disposed of meanwhile
        chat = self.add_chat("Main", {"kind": "user"})
        self.members |= {"defaultChat": chat, "lifecycle": "ready"}
        self.dispatch(self.uri, {"type": "session/defaultChatChanged", "defaultChat": chat})
        self.dispatch(self.uri, {"type": "session/ready"})

    def end(self) -> None:
        for task in self.turns.values():
            task.cancel()

    def add_chat(self, title: str, origin: Json, **members: Any) -> str:
        uri = f"ahp-chat:/{uuid.uuid4()}"
        summary = {"resource": uri, "title": title, "status": IDLE, "modifiedAt": now()}
        summary |= {"origin": origin, **members}
        self.dispatch(self.uri, {"type": "session/chatAdded", "summary": summary})
        return uri

    # Sending --------------------------------------------------------------------------------

    def dispatch(self, channel: str, action: Json, origin: Json | None = None) -> Step:
        """Sends an action of the host or of a client, if it may be sent, and what follows."""
        client = None if origin is None else str(origin["clientId"])
        # toolscope: it follows the action, or refuses it, and says what is to be sent
        step = self.rules.dispatch(channel, action, client)
        self.send(step.sends, origin)
        for ended in step.ended:
            self.resolve(ended.chat, ended.call_id, {"error": {"message": ended.failure.message}})
        return step

    def send(self, sends: Iterable[Send], origin: Json | None = None) -> None:
        for one in sends:
            of_client = origin if one.client is not None else None
            envelope = self.host.envelope(one.action, of_client)
            self.host.notify(one.channel, "action", envelope)
            self.react(one)

    def react(self, sent: Send) -> None:
        """What the agent does about an action: it runs turns, and goes on with results."""
        action, chat = sent.action, sent.channel
        match action["type"]:
            case "chat/turnStarted" if sent.client is not None:
                text = str(action.get("message", {}).get("text", ""))
                turn = self.run_turn(chat, str(action["turnId"]), text)
                self.turns[chat] = asyncio.create_task(turn)
            case "chat/turnCancelled" if chat in self.turns:
                self.turns.pop(chat).cancel()
                self.set_status(chat, IDLE)
            case "chat/toolCallComplete":
                self.resolve(chat, str(action["toolCallId"]), action["result"])
            case "chat/toolCallConfirmed" if not action.get("approved"):
                refused = {"error": {"message": "The user refused this call."}}
                self.resolve(chat, str(action["toolCallId"]), refused)
            case _:
                pass

    def resolve(self, chat: str, call_id: str, result: Json) -> None:
        outcome = self.outcomes.get((chat, call_id))
        if outcome is not None and not outcome.done():
            outcome.set_result(result)

    # The agent ------------------------------------------------------------------------------

    async def run_turn(self, chat: str, turn: str, text: str) -> None:
        """One turn of the script in the user's chat."""
        self.set_status(chat, IN_PROGRESS)
        how, _, tool = text.partition(" ")
        if how == "main":
            said = await self.call_tool(chat, turn, tool)
        elif how == "worker":
            said = await self.delegate(chat, turn, tool)
        else:
            # toolscope: what a model would be handed for this chat
            listed = [one.name for one in self.rules.tools(chat)]
            said = f"Say 'main TOOL' or 'worker TOOL'. This chat has: {', '.join(listed)}"
        part = {"kind": "markdown", "id": f"part-{uuid.uuid4()}", "content": said}
        self.dispatch(chat, {"type": "chat/responsePart", "turnId": turn, "part": part})
        self.dispatch(chat, {"type": "chat/turnComplete", "turnId": turn, "duration": 1})
        self.set_status(chat, IDLE)

    def set_status(self, chat: str, status: int) -> None:
        changes = {"status": status, "modifiedAt": now()}
        self.dispatch(self.uri, {"type": "session/chatUpdated", "chat": chat, "changes": changes})

    async def delegate(self, chat: str, turn: str, tool: str) -> str:
        """Spawns a worker chat by a tool call, and calls the tool there."""
        call_id = f"call-{uuid.uuid4()}"
        call = ToolCall(id=call_id, name="delegate", arguments={"tool": tool})
        step = self.rules.on_tool_call(chat, turn, call)
        self.send(step.sends)
        if step.decision.failure is not None:
            return step.decision.failure.message
        self.send(self.rules.ready(chat, call_id).sends)
        origin = {"kind": "tool", "chat": chat, "toolCallId": call_id}
        worker = self.add_chat("Worker", origin, interactivity="read-only")
        block = {"type": "subagent", "resource": worker, "title": "Worker", "agentName": "worker"}
        of_call = {"turnId": turn, "toolCallId": call_id}
        self.dispatch(chat, {"type": "chat/toolCallContentChanged", **of_call, "content": [block]})
        message = {"text": f"use {tool}", "origin": {"kind": "tool"}}
        begin = {"type": "chat/turnStarted", "turnId": "turn-1", "startedAt": now()}
        self.dispatch(worker, {**begin, "message": message})
        how = "chat/turnCancelled"
        try:
            said = await self.call_tool(worker, "turn-1", tool)
            how = "chat/turnComplete"
        finally:
            self.dispatch(worker, {"type": how, "turnId": "turn-1", "duration": 1})
        result = {
            "success": True,
            "pastTenseMessage": "Delegated",
            "content": [block, {"type": "text", "text": said}],
        }
        self.dispatch(chat, {"type": "chat/toolCallComplete", **of_call, "result": result})
        return f"The worker says: {said}"

    async def call_tool(self, chat: str, turn: str, name: str) -> str:
        """Calls a tool; gives what the model is told."""
        call = ToolCall(id=f"call-{uuid.uuid4()}", name=name, arguments={})
        outcome = asyncio.get_running_loop().create_future()
        key = (chat, str(call.id))
        self.outcomes[key] = outcome  # before anything is sent: a client may answer at once
        try:
            # toolscope: the decision comes before the call is announced
            step = self.rules.on_tool_call(chat, turn, call)
            self.send(step.sends)
            if step.decision.failure is not None:
                return step.decision.failure.message
            if step.decision.effect is Effect.ALLOW:
                self.send(self.rules.ready(chat, key[1]).sends)
                if step.sends[0].action.get("contributor") is None:
                    self.run_here(chat, turn, key[1], name)
            result = await outcome
        finally:
            del self.outcomes[key]
        if "error" in result:
            return str(result["error"]["message"])
        texts = [one["text"] for one in result.get("content", ()) if one.get("type") == "text"]
        return " ".join(texts) or "done"

    def run_here(self, chat: str, turn: str, call_id: str, name: str) -> None:
        """The host's own tools: the script has none that does anything by itself."""
        content = [{"type": "text", "text": f"{name} did nothing"}]
        result = {"success": True, "pastTenseMessage": f"Ran {name}", "content": content}
        of_call = {"turnId": turn, "toolCallId": call_id}
        self.dispatch(chat, {"type": "chat/toolCallComplete", **of_call, "result": result})


async def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    options = argparse.ArgumentParser(description="An example host of the Agent Host Protocol.")
    options.add_argument("--port", type=int, default=0, help="0 takes a free one")
    port = options.parse_args().port
    host = Host(PolicyEngine.load())
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serve(host.connect, "127.0.0.1", port) as server:
        address = next(iter(server.sockets)).getsockname()
        print(f"ws://127.0.0.1:{address[1]}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
