"""Reads typed members out of JSON, strictly, and notes every fault with its path."""

from collections.abc import Iterator, Mapping
from json import dumps
from typing import Any, Final, TypeAlias

from toolscope.ahp._json import json_kind, step
from toolscope.ahp._views import (
    ActiveClient,
    ChatOrigin,
    ChatState,
    Contributor,
    Customization,
    SessionState,
    Subagent,
    ToolCallState,
    Turn,
)
from toolscope.errors import Fault
from toolscope.model import (
    HOST,
    Annotations,
    Deferred,
    Origin,
    Provider,
    Tool,
    checked_tool,
)

__all__ = ["Reader"]

_Json: TypeAlias = dict[str, Any]


class Reader:
    """Reads typed members out of JSON that it owns, and notes what is wrong."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self._annotations: dict[tuple[str | None, bool, bool, bool, bool], Annotations] = {}

    # One member of an object ----------------------------------------------------------------

    def fault(self, path: str, problem: str, cure: str | None = None) -> None:
        self.faults.append(Fault(path=path, problem=problem, cure=cure))

    def _not(self, json: _Json, key: str, path: str, allowed: str) -> None:
        """Notes a member that is not of the type that was expected; drops a null."""
        if key not in json:
            return
        value = json[key]
        where = path + step(key)
        if value is None:
            del json[key]
            problem = "null is read as absent"
            self.warnings.append(Fault(path=where, problem=problem, cure="leave the key out"))
            return
        shown = dumps(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "..."
        self.fault(where, f"{shown} is {json_kind(value)}", f"allowed is {allowed}")

    def text(self, json: _Json, key: str, path: str) -> str | None:
        value = json.get(key)
        if type(value) is str:
            return value
        self._not(json, key, path, _ALLOWED[str])
        return None

    def number(self, json: _Json, key: str, path: str) -> int | None:
        value = json.get(key)
        if type(value) is int:
            return value
        self._not(json, key, path, _ALLOWED[int])
        return None

    def object(self, json: _Json, key: str, path: str) -> _Json | None:
        value = json.get(key)
        if type(value) is dict:
            return value
        self._not(json, key, path, _ALLOWED[dict])
        return None

    def array(self, json: _Json, key: str, path: str) -> list[Any] | None:
        value = json.get(key)
        if type(value) is list:
            return value
        self._not(json, key, path, _ALLOWED[list])
        return None

    def objects(self, json: _Json, key: str, path: str) -> Iterator[tuple[_Json, str]]:
        """The objects of an array, each with its path."""
        for index, one in enumerate(self.array(json, key, path) or ()):
            where = f"{path}.{key}[{index}]"
            if type(one) is dict:
                yield one, where
            else:
                self.fault(where, f"it is {json_kind(one)}", "allowed is an object")

    def demanded(self, json: _Json, key: str, path: str, *, empty: bool = False) -> str:
        """A text that must be there, and by default not be empty; "" where it is not."""
        value = self.text(json, key, path)
        if value is None:
            self.there(json, key, path)
        elif not value and not empty:
            self.fault(path + step(key), "it is empty", "give it a text")
        return value or ""

    def there(self, json: _Json, key: str, path: str) -> None:
        """Notes a demanded member that is absent (a null has been dropped by now)."""
        if key not in json:
            self.fault(path + step(key), "it is missing", "this key is demanded")

    def once(self, seen: set[str], name: str, path: str, what: str) -> None:
        if name and name in seen:
            self.fault(path, f"{what} {name!r} is there twice")
        seen.add(name)

    # Tools and clients ----------------------------------------------------------------------

    def typed(self, json: _Json, kinds: Mapping[str, type], path: str) -> None:
        """Notes each member that these kinds name and that is not of its kind; drops nulls."""
        for key, kind in kinds.items():
            if type(json.get(key)) is not kind:
                self._not(json, key, path, _ALLOWED[kind])

    def tool(self, json: _Json, path: str, provider: Provider) -> Tool | None:
        return self.plain_tool(json, provider) or self.odd_tool(json, path, provider)

    def odd_tool(self, value: Any, path: str, provider: Provider) -> Tool | None:
        """Notes what is odd in a definition; the tool, where nulls were all that was."""
        if not isinstance(value, dict):
            self.fault(path, f"it is {json_kind(value)}", "allowed is an object")
            return None
        self.typed(value, _TOOL, path)
        hints = value.get("annotations")
        if isinstance(hints, dict):
            self.typed(hints, _HINTS, f"{path}.annotations")
        if not value.get("name"):
            self.demanded(value, "name", path)
        return self.plain_tool(value, provider)

    def plain_tool(self, json: _Json, provider: Provider) -> Tool | None:
        """The tool of a definition in which nothing is odd, else None."""
        kind_of = _TOOL.get
        for key, value in json.items():
            kind = kind_of(key)
            if kind is not None and type(value) is not kind:
                return None
        get = json.get
        name, hints = get("name"), get("annotations")
        annotations = _NO_HINTS if hints is None else self.annotations(hints)
        if not name or annotations is None:
            return None
        schema, result, meta = get("inputSchema"), get("outputSchema"), get("_meta")
        return checked_tool(
            name,
            provider,
            get("title"),
            get("description"),
            None if schema is None else Deferred(schema),
            None if result is None else Deferred(result),
            annotations,
            get("availability", "session"),
            None if meta is None else Deferred(meta),
            Deferred(json),
        )

    def annotations(self, hints: _Json) -> Annotations | None:
        """The annotations of hints in which nothing is odd, else None. Equal ones are shared."""
        kind_of = _HINTS.get
        for name, value in hints.items():
            kind = kind_of(name)
            if kind is not None and type(value) is not kind:
                return None
        get = hints.get
        key = (
            get("title"),
            get("readOnlyHint", False),
            get("destructiveHint", True),
            get("idempotentHint", False),
            get("openWorldHint", True),
        )
        annotations = self._annotations.get(key)
        if annotations is None:
            title, read_only, destructive, idempotent, open_world = key
            annotations = self._annotations[key] = Annotations(
                title=title,
                read_only=read_only,
                destructive=destructive,
                idempotent=idempotent,
                open_world=open_world,
            )
        return annotations

    def tools(self, json: _Json, key: str, path: str, provider: Provider) -> tuple[Tool, ...]:
        tools = []
        plain_tool = self.plain_tool
        for index, one in enumerate(self.array(json, key, path) or ()):
            tool = plain_tool(one, provider) if type(one) is dict else None
            if tool is None:
                tool = self.odd_tool(one, f"{path}.{key}[{index}]", provider)
            if tool is not None:
                tools.append(tool)
        if len({tool.name for tool in tools}) != len(tools):
            self.named_twice(json, key, path, provider)
        return tuple(tools)

    def named_twice(self, json: _Json, key: str, path: str, provider: Provider) -> None:
        """Notes each tool whose name an earlier one of this provider has."""
        names: set[str] = set()
        for index, one in enumerate(json[key]):
            name = one.get("name") if isinstance(one, dict) else None
            if isinstance(name, str):
                where = f"{path}.{key}[{index}].name"
                self.once(names, name, where, f"the tool of '{provider}' named")

    def client(self, json: _Json, path: str) -> ActiveClient:
        id_ = self.demanded(json, "clientId", path)
        provider = Provider.client(id_ or "unnamed")
        tools = self.tools(json, "tools", path, provider)
        self.there(json, "tools", path)
        name = self.text(json, "displayName", path)
        return ActiveClient(json=json, id=id_, display_name=name, tools=tools)

    # Chats ----------------------------------------------------------------------------------

    def chat(self, json: _Json, path: str, resource: str | None = None) -> ChatState:
        summary = not _ONLY_IN_STATES & json.keys()
        if resource is None:
            resource = self.demanded(json, "resource", path, empty=True)
        origin = self.object(json, "origin", path)
        active = self.object(json, "activeTurn", path)
        return ChatState(
            json=json,
            resource=resource,
            title=self.text(json, "title", path),
            origin=None if origin is None else self.origin(origin, f"{path}.origin"),
            summary=summary,
            turns=tuple(self.turn(one, where) for one, where in self.objects(json, "turns", path)),
            active_turn=None if active is None else self.turn(active, f"{path}.activeTurn"),
        )

    def origin(self, json: _Json, path: str) -> ChatOrigin:
        return ChatOrigin(
            json=json,
            kind=Origin.read(self.demanded(json, "kind", path)),
            chat=self.text(json, "chat", path),
            tool_call_id=self.text(json, "toolCallId", path),
            turn_id=self.text(json, "turnId", path),
        )

    def turn(self, json: _Json, path: str) -> Turn:
        calls = []
        for part, where in self.objects(json, "responseParts", path):
            if self.text(part, "kind", where) == "toolCall":
                call = self.object(part, "toolCall", where)
                if call is not None:
                    calls.append(self.tool_call(call, f"{where}.toolCall"))
        return Turn(
            json=json,
            id=self.text(json, "id", path),
            agent=self.selected_agent(json, path),
            tool_calls=tuple(calls),
        )

    def selected_agent(self, json: _Json, path: str) -> str | None:
        message = self.object(json, "message", path)
        agent = None if message is None else self.object(message, "agent", f"{path}.message")
        if agent is None:
            return None
        return self.text(agent, "uri", f"{path}.message.agent") or ""

    def subagents(self, json: _Json, path: str) -> tuple[Subagent, ...]:
        """The worker chats that a call's content names."""
        subagents = []
        for content, where in self.objects(json, "content", path):
            if self.text(content, "type", where) == "subagent":
                resource = self.text(content, "resource", where)
                agent = self.text(content, "agentName", where)
                subagents.append(Subagent(json=content, resource=resource, agent_name=agent))
        return tuple(subagents)

    def tool_call(self, json: _Json, path: str) -> ToolCallState:
        return ToolCallState(
            json=json,
            id=self.text(json, "toolCallId", path),
            name=self.text(json, "toolName", path),
            status=self.text(json, "status", path),
            contributor=self.contributor(json, path),
            subagents=self.subagents(json, path),
        )

    def contributor(self, json: _Json, path: str) -> Contributor | None:
        contributor = self.object(json, "contributor", path)
        if contributor is None:
            return None
        path += ".contributor"
        kind = self.text(contributor, "kind", path)
        client = self.text(contributor, "clientId", path)
        return Contributor(json=contributor, kind=kind, client_id=client)

    # Sessions -------------------------------------------------------------------------------

    def session(self, json: _Json, path: str) -> SessionState | None:
        if "state" in json and "fromSeq" in json:
            self.fault(path, "it is a snapshot, not a session", "give what is under its 'state'")
            return None
        if "resource" in json and "activeClients" not in json and "chats" not in json:
            chat = self.chat(json, path)
            return SessionState(json=json, chats=(chat,), lone_chat=True)
        clients = []
        ids: set[str] = set()
        for one, where in self.objects(json, "activeClients", path):
            client = self.client(one, where)
            self.once(ids, client.id, f"{where}.clientId", "the client")
            clients.append(client)
        self.there(json, "activeClients", path)
        chats = []
        seen: dict[bool, set[str]] = {True: set(), False: set()}
        for one, where in self.objects(json, "chats", path):
            chat = self.chat(one, where)
            self.once(seen[chat.summary], chat.resource, f"{where}.resource", "the chat")
            chats.append(chat)
        self.there(json, "chats", path)
        return SessionState(
            json=json,
            title=self.text(json, "title", path),
            default_chat=self.text(json, "defaultChat", path),
            server_tools=self.tools(json, "serverTools", path, HOST),
            clients=tuple(clients),
            chats=tuple(chats),
            customizations=self.customizations(json, "customizations", path),
        )

    def customizations(self, json: _Json, key: str, path: str) -> tuple[Customization, ...]:
        rows = self.objects(json, key, path)
        return tuple(self.customization(one, where) for one, where in rows)

    def customization(self, json: _Json, path: str) -> Customization:
        tools = None
        self.typed(json, _SWITCH, path)
        type_ = self.text(json, "type", path)
        if type_ == "agent":
            tools = self.allowed_tools(json, path)
        return Customization(
            json=json,
            type=type_,
            id=self.text(json, "id", path),
            uri=self.text(json, "uri", path),
            name=self.text(json, "name", path),
            enabled=json.get("enabled", True),
            tools=tools,
            children=self.customizations(json, "children", path),
        )

    def allowed_tools(self, json: _Json, path: str) -> frozenset[str] | None:
        """The names of an agent's ``tools``; absent and empty are no restriction (AHP)."""
        entries = self.array(json, "tools", path) or ()
        for index, entry in enumerate(entries):
            if type(entry) is not str:
                where = f"{path}.tools[{index}]"
                self.fault(where, f"it is {json_kind(entry)}", "allowed is text")
        return frozenset(one for one in entries if type(one) is str) or None


_ONLY_IN_STATES: Final = frozenset({"turns", "activeTurn"})
_NO_HINTS: Final = Annotations()
_LONGEST_SHOWN: Final = 60
_ALLOWED: Final[Mapping[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    dict: "an object",
    list: "an array",
}
_TOOL: Final[Mapping[str, type]] = {
    "name": str,
    "title": str,
    "description": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
    "availability": str,
    "_meta": dict,
}
_SWITCH: Final[Mapping[str, type]] = {"enabled": bool}
_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}
