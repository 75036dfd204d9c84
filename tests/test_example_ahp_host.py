"""The example host over a real socket: what a client sees keeps the contract."""

import asyncio
import importlib.util
import io
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import serve

from tests.ahp_strategies import Json
from toolscope import Decision, Listing, Origin, PolicyEngine, Scope, ToolCall, Toolset
from toolscope.ahp.verify import Report, verify

FILE = Path(__file__).parent.parent / "docs" / "examples" / "ahp_host.py"
TOOLS = [
    {"name": "pick_file", "availability": "userChats", "inputSchema": {"type": "object"}},
    {"name": "lookup", "x-unknown": {"kept": True}},
]
SECONDS = 10


def example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("ahp_host", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ahp_host = example()


class SwitchedOff(PolicyEngine):
    """An engine that takes every chat for the user's: the contract is not kept with it."""

    def filter_tools(self, tools: Toolset, scope: Scope, prefer: str | None = None) -> Listing:
        """As for a user's chat."""
        return super().filter_tools(tools, attrs.evolve(scope, origin=Origin.USER), prefer)

    def on_tool_call(
        self, call: ToolCall, tools: Toolset, scope: Scope, *of: Any, **how: Any
    ) -> Decision:
        """As for a user's chat."""
        scope = attrs.evolve(scope, origin=Origin.USER)
        return super().on_tool_call(call, tools, scope, *of, **how)


class Client:
    """A client that executes what it is asked to, and records all that goes over its socket."""

    def __init__(self, socket: ClientConnection, id_: str, recording: list[Json]) -> None:
        self.socket = socket
        self.id = id_
        self.recording = recording
        self.waiting: dict[int, asyncio.Future[Json]] = {}
        self.requests = 0
        self.dispatched = 0
        self.executed: list[str] = []
        self.arrived = asyncio.Condition()
        self.seen: list[Json] = []

    async def read(self) -> None:
        async for text in self.socket:
            message = json.loads(text)
            self.recording.append({"client": self.id, "dir": "recv", "message": message})
            if "id" in message:
                self.waiting.pop(message["id"]).set_result(message)
            elif message["method"] == "action":
                await self.react(message["params"])
            async with self.arrived:
                self.seen.append(message)
                self.arrived.notify_all()

    async def react(self, envelope: Json) -> None:
        """Subscribes to new chats, and executes what the session asks this client to."""
        action = envelope["action"]
        if action["type"] == "session/chatAdded":
            params = {"channel": action["summary"]["resource"]}
            await self.send({"method": "subscribe", "id": self.next_id(), "params": params})
        request = action.get("request", {})
        if action["type"] == "session/inputNeededSet" and request["clientId"] == self.id:
            call = request["toolCall"]
            self.executed.append(call["toolName"])
            content = [{"type": "text", "text": f"{call['toolName']} result"}]
            result = {"success": True, "pastTenseMessage": "Ran", "content": content}
            complete = {"type": "chat/toolCallComplete", "turnId": request["turnId"]}
            of_call = {"toolCallId": call["toolCallId"], "result": result}
            await self.dispatch(request["chat"], {**complete, **of_call})

    def next_id(self) -> int:
        self.requests += 1
        self.waiting[self.requests] = asyncio.get_running_loop().create_future()
        return self.requests

    async def send(self, message: Json) -> None:
        self.recording.append({"client": self.id, "dir": "send", "message": message})
        await self.socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def request(self, method: str, channel: str, **params: Any) -> Json:
        id_ = self.next_id()
        answered = self.waiting[id_]
        await self.send({"method": method, "id": id_, "params": {"channel": channel, **params}})
        return await asyncio.wait_for(answered, SECONDS)

    async def result(self, method: str, channel: str, **params: Any) -> Any:
        answer = await self.request(method, channel, **params)
        assert "error" not in answer, answer
        return answer["result"]

    async def dispatch(self, channel: str, action: Json) -> None:
        self.dispatched += 1
        params = {"channel": channel, "clientSeq": self.dispatched, "action": action}
        await self.send({"method": "dispatchAction", "params": params})

    async def sees(self, wanted: Callable[[Json], bool]) -> Json:
        """The first notification that is wanted, seen already or still to come."""

        async def wait() -> Json:
            async with self.arrived:
                while True:
                    for message in self.seen:
                        if "params" in message and wanted(message["params"]):
                            return message["params"]  # type: ignore[no-any-return]
                    await self.arrived.wait()

        return await asyncio.wait_for(wait(), SECONDS)

    async def sees_action(self, type_: str, **members: Any) -> Json:
        def wanted(params: Json) -> bool:
            action = params.get("action", {})
            return bool(action.get("type") == type_ and members.items() <= action.items())

        return await self.sees(wanted)


@asynccontextmanager
async def running(policy: PolicyEngine | None = None) -> AsyncIterator[str]:
    host = ahp_host.Host(policy or PolicyEngine())
    async with serve(host.connect, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


@asynccontextmanager
async def client(
    address: str, id_: str = "desk-1", recording: list[Json] | None = None
) -> AsyncIterator[Client]:
    async with connect(address, proxy=None) as socket:
        made = Client(socket, id_, [] if recording is None else recording)
        reading = asyncio.create_task(made.read())
        about: Json = {"protocolVersions": ["0.7.0", "0.6.0"], "clientId": id_}
        about["initialSubscriptions"] = ["ahp-root://"]
        answer = await made.result("initialize", "ahp-root://", **about)
        assert answer["protocolVersion"] == "0.7.0"
        try:
            yield made
        finally:
            reading.cancel()


async def session_of(made: Client, uri: str, *, how: str = "create") -> str:
    """A session whose client contributes its tools; gives the user's chat."""
    entry = {"clientId": made.id, "displayName": "Desk", "tools": TOOLS}
    eager = {"activeClient": entry} if how == "create" else {}
    assert await made.result("createSession", uri, provider="scripted", **eager) is None
    state = await ready_state(made, uri)
    if how == "set":
        await made.dispatch(uri, {"type": "session/activeClientSet", "activeClient": entry})
        await made.sees_action("session/activeClientSet")
    else:
        assert state["activeClients"] == [entry]
    chat: str = state["defaultChat"]
    await made.result("subscribe", chat)
    return chat


async def ready_state(made: Client, uri: str) -> Json:
    """The session's state once it is ready; a client may subscribe before or after that."""
    for _ in range(100):
        state: Json = (await made.result("subscribe", uri))["snapshot"]["state"]
        if state["lifecycle"] == "ready":
            return state
        await asyncio.sleep(0.02)
    raise AssertionError("the session does not become ready")


async def says(made: Client, chat: str, text: str, turn: str = "turn-a") -> Json:
    """Starts a turn and waits for its end; gives the chat's last turn from a snapshot."""
    message = {"text": text, "origin": {"kind": "user"}}
    begin = {"type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-12-01T00:00:00Z"}
    await made.dispatch(chat, {**begin, "message": message})
    await made.sees_action("chat/turnComplete", turnId=turn)
    snapshot = (await made.result("subscribe", chat))["snapshot"]["state"]
    last: Json = snapshot["turns"][-1]
    return last


def checked(recording: list[Json]) -> Report:
    return verify(io.BytesIO("\n".join(map(json.dumps, recording)).encode()))


async def four_texts(how: str, policy: PolicyEngine | None = None) -> tuple[list[Json], Client]:
    """The four scripts, each in a session of its own; gives what was recorded."""
    recording: list[Json] = []
    async with running(policy) as address, client(address, recording=recording) as made:
        for number, text in enumerate(
            ("main pick_file", "main lookup", "worker lookup", "worker pick_file")
        ):
            uri = f"ahp-session:/{number}"
            chat = await session_of(made, uri, how=how)
            await says(made, chat, text, f"turn-{number}")
            state = (await made.result("subscribe", uri))["snapshot"]["state"]
            assert "inputNeeded" not in state
            for summary in state["chats"]:
                await made.result("subscribe", summary["resource"])
    return recording, made


def ended_calls(recording: list[Json]) -> list[tuple[str, bool, str | None]]:
    """Tool, success and client of each call in the last snapshots, but the spawning ones."""
    calls: dict[str, tuple[str, bool, str | None]] = {}
    for entry in recording:
        snapshot = (entry["message"].get("result") or {}).get("snapshot", {})
        for turn in snapshot.get("state", {}).get("turns", ()):
            for part in turn["responseParts"]:
                call = part.get("toolCall", {})
                if call and call["toolName"] != "delegate":
                    assert call["status"] == "completed"
                    named = call.get("contributor", {}).get("clientId")
                    calls[call["toolCallId"]] = (call["toolName"], call["success"], named)
    return list(calls.values())


# The contract -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["create", "set"])
def test_four_texts_end_as_the_contract_says(how: str) -> None:
    """In actions, snapshots and execution requests alike, however the tools were contributed."""
    recording, made = asyncio.run(four_texts(how))
    assert ended_calls(recording) == [
        ("pick_file", True, "desk-1"),
        ("lookup", True, "desk-1"),
        ("lookup", True, "desk-1"),
        ("pick_file", False, None),
    ]
    assert made.executed == ["pick_file", "lookup", "lookup"]
    report = checked(recording)
    assert report.breaches == ()
    assert report.chats == 6
    assert report.actions > 40


@pytest.mark.parametrize("how", ["create", "set"])
def test_with_the_engine_switched_off_the_same_run_is_found_broken(how: str) -> None:
    """So the tests above look at what they should."""
    recording, made = asyncio.run(four_texts(how, SwitchedOff()))
    assert made.executed.count("pick_file") == 2
    kinds = {one.kind.value for one in checked(recording).breaches}
    assert {"client_contributor", "execution_request", "successful"} <= kinds


def test_the_model_is_told() -> None:
    """The failure's text comes back through the worker, and to the user."""

    async def main() -> None:
        async with running() as address, client(address) as made:
            chat = await session_of(made, "ahp-session:/s")
            turn = await says(made, chat, "worker pick_file")
            said = turn["responseParts"][-1]["content"]
            assert said.startswith("The worker says: The tool 'pick_file' is not available")
            turn = await says(made, chat, "main lookup", "turn-b")
            assert turn["responseParts"][-1]["content"] == "lookup result"
            turn = await says(made, chat, "hello", "turn-c")
            assert turn["responseParts"][-1]["content"].endswith("delegate, pick_file, lookup")
            turn = await says(made, chat, "main delegate", "turn-d")
            assert turn["responseParts"][-1]["content"] == "delegate did nothing"

    asyncio.run(main())


def test_a_client_that_goes_away_in_the_middle_of_its_call() -> None:
    """The call fails, and another client sees it fail."""

    async def main() -> None:
        recording: list[Json] = []
        async with running() as address, client(address, "watcher", recording) as watcher:
            async with client(address) as made:
                chat = await session_of(made, "ahp-session:/s")
                made.react = lambda envelope: asyncio.sleep(0)  # type: ignore[method-assign]
                await watcher.result("subscribe", "ahp-session:/s")
                await watcher.result("subscribe", chat)
                begin = {
                    "type": "chat/turnStarted",
                    "turnId": "t",
                    "message": {"text": "main lookup"},
                }
                await made.dispatch(chat, begin)
                await watcher.sees_action("chat/toolCallReady")
            complete = await watcher.sees_action("chat/toolCallComplete")
            assert complete["action"]["result"]["error"]["code"] == "client_left"
            await watcher.sees_action("session/inputNeededRemoved")
            await watcher.sees_action("chat/turnComplete")
            assert checked(recording).breaches == ()

    asyncio.run(main())


def test_what_is_refused_is_echoed_to_its_sender_alone() -> None:
    """With the reason, and the state unchanged."""

    async def main() -> None:
        async with running() as address, client(address) as made, client(address, "b") as other:
            chat = await session_of(made, "ahp-session:/s")
            await other.result("subscribe", "ahp-session:/s")
            entry = {"clientId": "desk-1", "tools": []}
            action = {"type": "session/activeClientSet", "activeClient": entry}
            await other.dispatch("ahp-session:/s", action)
            refused = await other.sees(lambda params: "rejectionReason" in params)
            assert refused["rejectionReason"] == "a client speaks for itself only"
            assert refused["origin"] == {"clientId": "b", "clientSeq": 1}
            await other.dispatch("ahp-chat:/nowhere", {"type": "chat/draftChanged"})
            turn = await says(made, chat, "main lookup")
            assert turn["responseParts"][0]["toolCall"]["success"] is True
            assert not any("rejectionReason" in one.get("params", {}) for one in made.seen)

    asyncio.run(main())


def test_a_turn_that_is_cancelled() -> None:
    """The worker's turn ends as well, and nothing is left running."""

    async def main() -> None:
        recording: list[Json] = []
        async with running() as address, client(address, recording=recording) as made:
            chat = await session_of(made, "ahp-session:/s")
            made.react = lambda envelope: asyncio.sleep(0)  # type: ignore[method-assign]
            begin = {
                "type": "chat/turnStarted",
                "turnId": "t",
                "message": {"text": "worker lookup"},
            }
            await made.dispatch(chat, begin)
            await made.sees_action("session/inputNeededSet")
            await made.dispatch(chat, {"type": "chat/turnCancelled", "turnId": "t", "duration": 1})
            await made.sees_action("session/inputNeededRemoved")
            state = (await made.result("subscribe", "ahp-session:/s"))["snapshot"]["state"]
            for summary in state["chats"]:
                found = (await made.result("subscribe", summary["resource"]))["snapshot"]["state"]
                assert "activeTurn" not in found
            assert checked(recording).breaches == ()

    asyncio.run(main())


# The protocol -------------------------------------------------------------------------------


def test_requests_and_their_errors() -> None:
    """The codes are the protocol's."""

    async def code(made: Client, method: str, channel: str, **params: Any) -> int:
        answer = await made.request(method, channel, **params)
        number: int = answer["error"]["code"]
        return number

    async def main() -> None:
        async with running() as address:
            async with connect(address, proxy=None) as socket:
                early = Client(socket, "x", [])
                reading = asyncio.create_task(early.read())
                assert await early.result("ping", "ahp-root://") is None
                assert await code(early, "listSessions", "ahp-root://") == -32600
                wrong = {"protocolVersions": ["0.3.0"], "clientId": "x"}
                assert await code(early, "initialize", "ahp-root://", **wrong) == -32005
                await socket.send("no json")
                await socket.send("[1]")
                await socket.send('{"jsonrpc": "2.0", "id": 9, "result": null}')
                assert await early.result("ping", "ahp-root://") is None
                reading.cancel()
            async with client(address) as made:
                await session_of(made, "ahp-session:/s")
                assert await code(made, "createSession", "ahp-session:/s") == -32003
                assert await code(made, "createSession", "ahp-session:/t", provider="x") == -32002
                entry = {"clientId": "else", "tools": []}
                assert await code(made, "createSession", "t", activeClient=entry) == -32602
                entry = {"clientId": "desk-1"}
                assert await code(made, "createSession", "t", activeClient=entry) == -32602
                assert await code(made, "subscribe", "ahp-chat:/nowhere") == -32008
                assert await code(made, "reconnect", "ahp-root://") == -32601
                items = (await made.result("listSessions", "ahp-root://"))["items"]
                assert [one["resource"] for one in items] == ["ahp-session:/s"]
                await made.sees(lambda params: "summary" in params)
                assert await made.result("disposeSession", "ahp-session:/s") is None
                await made.sees(lambda params: params.get("session") == "ahp-session:/s")
                assert await code(made, "disposeSession", "ahp-session:/s") == -32001

    asyncio.run(main())


def test_a_session_becomes_ready_before_the_eyes_of_its_client() -> None:
    """A client that subscribes at once sees it; a session that is disposed of does not."""

    async def main() -> None:
        async with running() as address, client(address) as made:
            for uri in ("ahp-session:/gone", "ahp-session:/s"):
                await made.result("createSession", uri)
                await made.result("subscribe", uri)
                if uri.endswith("gone"):
                    await made.result("disposeSession", uri)
            added = await made.sees_action("session/chatAdded")
            assert added["channel"] == "ahp-session:/s"
            chat = added["action"]["summary"]["resource"]
            await made.sees_action("session/defaultChatChanged", defaultChat=chat)
            await made.sees_action("session/ready")

    asyncio.run(main())


def test_a_client_that_unsubscribes_leaves_the_session() -> None:
    """Its tools go with it."""

    async def main() -> None:
        async with running() as address, client(address) as made, client(address, "b") as other:
            await session_of(made, "ahp-session:/s")
            await other.result("subscribe", "ahp-session:/s")
            await made.send({"method": "unsubscribe", "params": {"channel": "ahp-session:/s"}})
            await other.sees_action("session/activeClientRemoved", clientId="desk-1")
            state = (await other.result("subscribe", "ahp-session:/s"))["snapshot"]["state"]
            assert state["activeClients"] == []

    asyncio.run(main())


def test_the_script_by_itself() -> None:
    """It prints its address, serves, and ends on SIGTERM."""
    with subprocess.Popen(
        [sys.executable, str(FILE), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()

        async def main() -> None:
            async with client(address) as made:
                chat = await session_of(made, "ahp-session:/s")
                await says(made, chat, "main lookup")

        try:
            asyncio.run(main())
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=SECONDS) == 0
