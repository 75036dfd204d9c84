"""The values a rule sees: tools, toolsets, agents, scopes and calls.

All of them are immutable. What comes from outside (schemas, arguments, attributes) is frozen
deeply when it enters, so that no rule can change what another rule or the host will see.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, Never, Self, TypeAlias, overload

import attrs

from toolscope._frozen import (
    EMPTY,
    MAX_DEPTH,
    FrozenDict,
    FrozenList,
    Json,
    canonical_json,
    freeze,
    thaw,
)
from toolscope.errors import ScopeError, ToolsetError

__all__ = [
    "HOST",
    "MODEL",
    "UNKNOWN",
    "Agent",
    "Ancestor",
    "Annotations",
    "Availability",
    "FrozenDict",
    "FrozenList",
    "InvalidArguments",
    "Json",
    "Origin",
    "Provider",
    "ProviderKind",
    "Scope",
    "Tool",
    "ToolCall",
    "Toolset",
    "Unknown",
    "canonical_json",
    "freeze",
    "narrower_availability",
    "narrower_origin",
    "thaw",
]


def _freeze_optional_mapping(value: Mapping[str, Any] | None) -> FrozenDict | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ToolsetError(
            f"a tool's schema, meta or raw is a {type(value).__name__}, not a mapping"
        )
    try:
        frozen: FrozenDict = freeze(value)
    except ValueError as error:
        raise ToolsetError(f"a tool's schema, meta or raw is not JSON: {error}") from error
    return frozen


# --------------------------------------------------------------------------------------------
# Where a tool may be used, and how a chat came to exist
# --------------------------------------------------------------------------------------------


class Availability(StrEnum):
    """Where in a session a tool may be used (AHP issue #446). Absent means ``SESSION``."""

    SESSION = "session"
    USER_CHATS = "userChats"

    @staticmethod
    def read(value: str) -> "Availability | str":
        """The member for a known text; any other text as it is."""
        return _AVAILABILITIES.get(value, value)

    @staticmethod
    def counted(value: str) -> "Availability":
        """How a value counts: an unknown one as ``USER_CHATS``, for it can only be narrower."""
        return Availability.SESSION if value == "session" else Availability.USER_CHATS


class Origin(StrEnum):
    """How a chat came to exist (AHP ``ChatOriginKind``). ``None`` in its place means absent."""

    USER = "user"
    FORK = "fork"
    SIDE_CHAT = "sideChat"
    TOOL = "tool"

    @staticmethod
    def read(value: str) -> "Origin | str":
        """The member for a known text; any other text as it is."""
        return _ORIGINS.get(value, value)

    @staticmethod
    def counted(value: str) -> "Origin":
        """How a value counts: an unknown one as ``TOOL``: no person may be driving it."""
        return _ORIGINS.get(value, Origin.TOOL)


_AVAILABILITIES: Final[Mapping[str, Availability]] = {a.value: a for a in Availability}
_ORIGINS: Final[Mapping[str, Origin]] = {o.value: o for o in Origin}


def narrower_availability(
    first: Availability | str, second: Availability | str
) -> Availability | str:
    """The narrower of two claims about one tool."""
    return second if Availability.counted(first) is Availability.SESSION else first


def narrower_origin(first: Origin | str | None, second: Origin | str | None) -> Origin | str | None:
    """The narrower of two claims about one chat: what counts as ``TOOL``, else the first known."""
    if first is not None and Origin.counted(first) is Origin.TOOL:
        return first
    if second is not None and (first is None or Origin.counted(second) is Origin.TOOL):
        return second
    return first


# --------------------------------------------------------------------------------------------
# Providers
# --------------------------------------------------------------------------------------------


class ProviderKind(StrEnum):
    """Who executes a tool."""

    HOST = "host"
    CLIENT = "client"
    MCP = "mcp"
    MODEL = "model"


def _text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} is a {type(value).__name__}, not text")


@attrs.frozen(kw_only=True, slots=True, cache_hash=True)
class Provider:
    """Who executes a tool: the host, a client, an MCP server, or the vendor of the model.

    Tools that the model's vendor runs can only be withheld: no call of theirs passes the host.
    """

    kind: ProviderKind = attrs.field(converter=ProviderKind)
    id: str | None = attrs.field(default=None)
    _string: str = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        named = self.kind in (ProviderKind.CLIENT, ProviderKind.MCP)
        if named and (not isinstance(self.id, str) or not self.id):
            raise ToolsetError(f"a provider of kind '{self.kind}' needs an id")
        if not named and self.id is not None:
            raise ToolsetError(f"a provider of kind '{self.kind}' has no id")
        text = self.kind.value
        if self.id is not None:
            text = f"{text}:{self.id.replace('%', '%25').replace('/', '%2F')}"
        object.__setattr__(self, "_string", text)

    @classmethod
    def client(cls, id: str) -> Self:  # noqa: A002  (the wire's word)
        """The client with this id."""
        return cls(kind=ProviderKind.CLIENT, id=id)

    @classmethod
    def mcp(cls, id: str) -> Self:  # noqa: A002
        """The MCP server with this id."""
        return cls(kind=ProviderKind.MCP, id=id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The provider of a text form: ``host``, ``client:ID``, ``mcp:ID`` or ``model``.

        In an id, ``/`` is written ``%2F`` and ``%`` is written ``%25``.

        Raises:
            ToolsetError: The text is none of these forms.
        """
        kind, colon, id_ = text.partition(":")
        if not colon and kind in ("host", "model"):
            return cls(kind=ProviderKind(kind))
        if colon and kind in ("client", "mcp") and id_ and "/" not in id_:
            return cls(kind=ProviderKind(kind), id=id_.replace("%2F", "/").replace("%25", "%"))
        raise ToolsetError(
            f"{text!r} is no provider; allowed are 'host', 'client:ID', 'mcp:ID' and 'model', "
            "with '/' in an ID written as '%2F'"
        )

    def __str__(self) -> str:
        return self._string


HOST: Final = Provider(kind=ProviderKind.HOST)
MODEL: Final = Provider(kind=ProviderKind.MODEL)


# --------------------------------------------------------------------------------------------
# Tools
# --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Annotations:
    """A provider's hints about its tool; absent ones are the worst case (AHP ``ToolAnnotations``)."""

    title: str | None = None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


_NO_ANNOTATIONS: Final = Annotations()


def _availability(value: str) -> Availability | str:
    if not isinstance(value, str):
        raise ToolsetError(
            f"availability is a {type(value).__name__}; allowed is text: 'session' or 'userChats'"
        )
    return Availability.read(value)


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ToolsetError(f"{value!r} is one text where several are expected; put it in a list")
    texts = tuple(value)
    if not all(isinstance(one, str) for one in texts):
        raise ToolsetError("a tool's tags and former names are texts")
    return texts


def _text_set(value: Iterable[str]) -> frozenset[str]:
    return frozenset(_texts(value))


class Deferred:
    """JSON that the reader made itself, so nobody else can change it: frozen on first use.

    Freezing the schemas of a session at once costs more than reading it; most are never looked at.
    """

    __slots__ = ("value",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value


def _mapping_or_deferred(
    value: Mapping[str, Any] | Deferred | None,
) -> FrozenDict | Deferred | None:
    return value if isinstance(value, Deferred) else _freeze_optional_mapping(value)


@attrs.frozen(kw_only=True, eq=False, slots=True, weakref_slot=True)
class Tool:
    """One tool of one provider. Compared and hashed by identity; a copy is the tool itself.

    ``name`` is what the model sees, ``own_name`` what the provider calls it. ``raw`` is the mapping
    the tool was read from, ``source`` the host's own object for it. A tool never leaves its
    process: processes exchange JSON.
    """

    name: str
    own_name: str = ""
    provider: Provider = HOST
    title: str | None = None
    description: str | None = None
    _input_schema: FrozenDict | Deferred | None = attrs.field(
        default=None, converter=_mapping_or_deferred, repr=False
    )
    _output_schema: FrozenDict | Deferred | None = attrs.field(
        default=None, converter=_mapping_or_deferred, repr=False
    )
    annotations: Annotations = _NO_ANNOTATIONS
    availability: Availability | str = attrs.field(
        default=Availability.SESSION, converter=_availability
    )
    tags: frozenset[str] = attrs.field(default=frozenset(), converter=_text_set)
    former_names: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    _meta: FrozenDict | Deferred | None = attrs.field(
        default=None, converter=_mapping_or_deferred, repr=False
    )
    _raw: FrozenDict | Deferred | None = attrs.field(
        default=None, converter=_mapping_or_deferred, repr=False
    )
    source: Any = attrs.field(default=None, repr=False)
    _digests: dict[str, str] = attrs.field(init=False, factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ToolsetError("a tool's name is a text of at least one character")
        if not self.own_name:
            object.__setattr__(self, "own_name", self.name)

    def _thing(self, slot: str) -> FrozenDict | None:
        value = getattr(self, slot)
        if type(value) is Deferred:
            # Two threads that meet here store equal values.
            value = _freeze_optional_mapping(value.value)
            object.__setattr__(self, slot, value)
        frozen: FrozenDict | None = value
        return frozen

    @property
    def input_schema(self) -> FrozenDict | None:
        """The JSON Schema of the arguments, or None where the provider gives none."""
        return self._thing("_input_schema")

    @property
    def output_schema(self) -> FrozenDict | None:
        """The JSON Schema of the structured result, or None where the provider gives none."""
        return self._thing("_output_schema")

    @property
    def meta(self) -> FrozenDict | None:
        """The provider's ``_meta`` mapping, or None."""
        return self._thing("_meta")

    @property
    def raw(self) -> FrozenDict | None:
        """The mapping the tool was read from, unknown keys included, or None."""
        return self._thing("_raw")

    @property
    def identity(self) -> str:
        """``PROVIDER/OWN_NAME``: the one text that names this tool in a toolset."""
        return f"{self.provider}/{self.own_name}"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what the model sees of the tool: name, texts, schemas, annotations."""
        digests = self._digests
        if "seen" not in digests:
            a = self.annotations
            seen = [
                self.name, self.title, self.description, self.input_schema, self.output_schema,
                [a.title, a.read_only, a.destructive, a.idempotent, a.open_world],
            ]  # fmt: skip
            digests["seen"] = hashlib.sha256(canonical_json(seen).encode()).hexdigest()
        return digests["seen"]

    def same_to_rules(self, other: "Tool") -> bool:
        """Whether no rule could tell the two tools apart; ``source`` does not count."""
        return self is other or all(
            getattr(self, name) == getattr(other, name) for name in _SEEN_BY_RULES
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a Tool does not leave its process; send its JSON and read it there")


_SEEN_BY_RULES: Final = (
    "name", "own_name", "provider", "title", "description", "input_schema", "output_schema",
    "annotations", "availability", "tags", "former_names", "meta", "raw",
)  # fmt: skip


class Toolset(Sequence[Tool]):
    """Every tool the host could run for a session, in the host's order. Immutable.

    Shown, deferred or withheld makes no difference; tools that only carry the run's answer to its
    end are left out. Engines keep what they computed for a toolset; keep it too: see `renewed`.

    Raises:
        ToolsetError: The same provider and own name twice, or something that is no `Tool`.
    """

    __slots__ = ("__weakref__", "_by_name", "_positions", "_shared_names", "_tools", "ones")

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = tuple(tools)
        for tool in self._tools:
            if type(tool) is not Tool:
                raise ToolsetError(f"a toolset holds Tool objects, not a {type(tool).__name__}")
        self._positions = {tool: position for position, tool in enumerate(self._tools)}
        identities = {(t.provider._string, t.own_name) for t in self._tools}  # noqa: SLF001
        if len(identities) != len(self._tools):
            raise ToolsetError(_twice(self._tools))
        grouped: dict[str, tuple[Tool, ...]] = {tool.name: (tool,) for tool in self._tools}
        self._shared_names: tuple[str, ...] = ()
        if len(grouped) != len(self._tools):
            groups: dict[str, list[Tool]] = {}
            for tool in self._tools:
                groups.setdefault(tool.name, []).append(tool)
            grouped = {name: tuple(group) for name, group in groups.items()}
            self._shared_names = tuple(name for name, group in grouped.items() if len(group) > 1)
        self._by_name = grouped
        self.ones = int.from_bytes(b"\x01" * len(self._tools), "little")
        """One byte a tool, each 1: the mask of all tools (see `toolscope.listings.Answer`)."""

    def by_name(self, name: str) -> tuple[Tool, ...]:
        """The tools with this model-facing name, in order; empty where there is none."""
        return self._by_name.get(name, ())

    @property
    def names(self) -> Mapping[str, tuple[Tool, ...]]:
        """Every model-facing name with its tools, in order of first appearance."""
        return MappingProxyType(self._by_name)

    @property
    def shared_names(self) -> tuple[str, ...]:
        """The names that more than one tool bears, in order of first appearance."""
        return self._shared_names

    @property
    def positions(self) -> Mapping[Tool, int]:
        """Every tool with its place, counted from 0."""
        return MappingProxyType(self._positions)

    def renewed(self, tools: Iterable[Tool]) -> "Toolset":
        """This toolset if ``tools`` are the same to every rule, else a new one.

        Hosts rebuild their lists every step; whoever keeps the last toolset and renews it keeps
        all that was computed for it. ``source`` does not count: map a listing back by position.
        """
        given = tuple(tools)
        if len(given) == len(self._tools) and all(
            type(new) is Tool and old.same_to_rules(new)
            for old, new in zip(self._tools, given, strict=True)
        ):
            return self
        return Toolset(given)

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, index: int | slice) -> Tool | tuple[Tool, ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __contains__(self, tool: object) -> bool:
        return tool in self._positions

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a Toolset does not leave its process; send its JSON and read it there")

    def __repr__(self) -> str:
        return f"<Toolset of {len(self._tools)} tools>"


def _twice(tools: Sequence[Tool]) -> str:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for tool in tools:
        if tool.identity in seen:
            twice[tool.identity] = None
        seen.add(tool.identity)
    named = ", ".join(repr(identity[:200]) for identity in list(twice)[:5])
    return f"the same provider and own name twice: {named}; a provider's own names are unique"


# --------------------------------------------------------------------------------------------
# Agents, scopes
# --------------------------------------------------------------------------------------------


def _allowlist(value: Iterable[str] | None) -> frozenset[str] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ScopeError(
            f"an agent's tools are {value!r}; allowed is a set of entries, or None for no allowlist"
        )
    entries = frozenset(value)
    if not all(isinstance(entry, str) for entry in entries):
        raise ScopeError("an entry of an agent's tools is no text")
    return entries


@attrs.frozen(kw_only=True, cache_hash=True)
class Agent:
    """Who acts in a chat, and the tools its definition names.

    ``tools`` is None where there is no allowlist; the empty set allows nothing. An entry is exact:
    ``PROVIDER/OWN_NAME`` or ``PROVIDER/*`` when it begins with a provider's text form, ``*`` for
    all tools, else a model-facing name. An allowlist is the agent's own and is not inherited.
    """

    name: str = attrs.field(validator=_text)
    tools: frozenset[str] | None = attrs.field(default=None, converter=_allowlist)


Attributes: TypeAlias = Mapping[str, str | AbstractSet[str]]


def _attributes(value: Mapping[str, str | Iterable[str]]) -> FrozenDict:
    if not isinstance(value, Mapping):
        raise ScopeError(f"attributes are a {type(value).__name__}, not a mapping")
    if not value:
        return EMPTY
    frozen: dict[str, str | frozenset[str]] = {}
    for key, item in value.items():
        items = (item,) if isinstance(item, str) else item
        if (
            not isinstance(key, str)
            or not isinstance(items, (tuple, list, AbstractSet))
            or not all(isinstance(one, str) for one in items)
        ):
            raise ScopeError(
                f"attribute {key!r} is a {type(item).__name__}; allowed is a text or a set of texts"
            )
        frozen[key] = item if isinstance(item, str) else frozenset(items)
    return FrozenDict(frozen)


def _origin(value: str | None) -> Origin | str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ScopeError(f"origin is a {type(value).__name__}; allowed is text, or None for absent")
    return Origin.read(value)


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN
"""Ends an ancestry whose next chat is named but missing, or would close a cycle."""


@attrs.frozen(kw_only=True, cache_hash=True)
class Ancestor:
    """What a rule may know of a chat above: its origin, its agent's name, its attributes."""

    origin: Origin | str | None = attrs.field(default=None, converter=_origin)
    agent: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
    attributes: FrozenDict = attrs.field(default=EMPTY, converter=_attributes)


Ancestry: TypeAlias = tuple[Ancestor | Literal[Unknown.UNKNOWN], ...]


def _ancestry(value: Iterable[Ancestor | Literal[Unknown.UNKNOWN]]) -> Ancestry:
    ancestry = tuple(value)
    for place, one in enumerate(ancestry):
        if type(one) is not Ancestor and (one is not UNKNOWN or place != len(ancestry) - 1):
            raise ScopeError("an ancestry is a row of Ancestor values; UNKNOWN may only end it")
    return ancestry


def _true_or_false(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if type(value) is not bool:
        raise ScopeError(f"{attribute.name} is {value!r}; allowed are True and False")


@attrs.frozen(kw_only=True, cache_hash=True)
class Scope:
    """Where a tool would be used. It holds no chat id, so chats with equal scopes share all memos.

    ``origin`` is the chat's own (None = absent), ``ancestry`` the chats above it, nearest first.
    ``can_ask`` says that an ask raised here reaches a person, here or forwarded. ``subject`` is on
    whose behalf the chat runs; ``attributes`` are the host's own facts, texts or sets of texts.

    Raises:
        ScopeError: A part is not well formed.
    """

    origin: Origin | str | None = attrs.field(default=None, converter=_origin)
    agent: Agent | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Agent))
    )
    ancestry: Ancestry = attrs.field(default=(), converter=_ancestry)
    can_ask: bool = attrs.field(default=False, validator=_true_or_false)
    subject: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
    attributes: FrozenDict = attrs.field(default=EMPTY, converter=_attributes)

    def child(self, declared: "Scope | None" = None) -> "Scope":
        """The scope of a chat that a tool call in this scope spawns.

        Its origin is ``TOOL`` whatever is declared, its ancestry this chat and all above it. It can
        ask only if both can. Subject and attributes are inherited where not declared; the agent is
        the declared one.
        """
        declared = declared or _NOTHING_DECLARED
        above = Ancestor(
            origin=self.origin,
            agent=self.agent.name if self.agent else None,
            attributes=self.attributes,
        )
        return Scope(
            origin=Origin.TOOL,
            agent=declared.agent,
            ancestry=(above, *self.ancestry),
            can_ask=self.can_ask and declared.can_ask,
            subject=self.subject if declared.subject is None else declared.subject,
            attributes={**self.attributes, **declared.attributes},
        )

    def to_json(self) -> dict[str, Any]:
        """The scope as a JSON object; `from_json` reads it back. Absent parts are left out."""
        saved: dict[str, Any] = {"schema": _SCOPE_SCHEMA, "can_ask": self.can_ask}
        if self.origin is not None:
            saved["origin"] = str(self.origin)
        if self.agent is not None:
            tools = self.agent.tools
            saved["agent"] = {
                "name": self.agent.name,
                **({} if tools is None else {"tools": sorted(tools)}),
            }
        saved["ancestry"] = [
            "unknown"
            if one is UNKNOWN
            else {
                **({} if one.origin is None else {"origin": str(one.origin)}),
                **({} if one.agent is None else {"agent": one.agent}),
                "attributes": _attributes_to_json(one.attributes),
            }
            for one in self.ancestry
        ]
        if self.subject is not None:
            saved["subject"] = self.subject
        saved["attributes"] = _attributes_to_json(self.attributes)
        return saved

    @classmethod
    def from_json(cls, saved: object) -> "Scope":
        """The scope that `to_json` gave.

        Raises:
            ScopeError: ``saved`` is None (the scope was lost), or not such an object. A chat whose
                scope cannot be read is shown no tools; there is no default in its place.
        """
        if saved is None:
            raise ScopeError("the saved scope is missing; show no tools until the host sets one")
        top = _members(saved, "the saved scope", _SCOPE_KEYS)
        if top.get("schema") != _SCOPE_SCHEMA:
            raise ScopeError(
                f"the saved scope has schema {top.get('schema')!r}; this version reads "
                f"{_SCOPE_SCHEMA}"
            )
        agent = None
        if "agent" in top:
            members = _members(top["agent"], "its agent", frozenset({"name", "tools"}))
            tools = members.get("tools")
            if "tools" in members and not isinstance(tools, (list, tuple)):
                raise ScopeError("the saved scope's agent has tools that are no array")
            if not isinstance(members.get("name"), str):
                raise ScopeError("the saved scope's agent has no name")
            agent = Agent(name=members["name"], tools=tools)
        rows = top.get("ancestry", ())
        if not isinstance(rows, (list, tuple)):
            raise ScopeError("the saved scope has an ancestry that is no array")
        try:
            return cls(
                origin=_present(top, "origin"),
                agent=agent,
                ancestry=tuple(_ancestor_from_json(row) for row in rows),
                can_ask=top.get("can_ask", False),
                subject=_present(top, "subject"),
                attributes=_attributes_from_json(top),
            )
        except TypeError as error:
            raise ScopeError(f"the saved scope cannot be read: {error}") from error


_NOTHING_DECLARED: Final = Scope()
_SCOPE_SCHEMA: Final = 1
_SCOPE_KEYS: Final = frozenset(
    {"schema", "origin", "agent", "ancestry", "can_ask", "subject", "attributes"}
)


def _members(value: object, what: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ScopeError(f"{what} is a {type(value).__name__}, not a JSON object")
    if unknown := sorted(str(key) for key in value.keys() - known):
        raise ScopeError(f"{what} has unknown members {unknown}; it was not saved by this version")
    return value


def _present(members: Mapping[str, Any], key: str) -> Any:
    """The member, None where it is absent; a null is no way to write absent."""
    if key in members and members[key] is None:
        raise ScopeError(f"the saved scope has null under '{key}'; absent members are left out")
    return members.get(key)


def _attributes_to_json(attributes: FrozenDict) -> dict[str, str | list[str]]:
    return {
        key: item if isinstance(item, str) else sorted(item) for key, item in attributes.items()
    }


def _attributes_from_json(members: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes: Mapping[str, Any] = _present(members, "attributes") or {}
    return attributes


def _ancestor_from_json(row: object) -> Ancestor | Literal[Unknown.UNKNOWN]:
    if row == "unknown":
        return UNKNOWN
    members = _members(row, "an ancestor", frozenset({"origin", "agent", "attributes"}))
    return Ancestor(
        origin=_present(members, "origin"),
        agent=_present(members, "agent"),
        attributes=_attributes_from_json(members),
    )


# --------------------------------------------------------------------------------------------
# Calls
# --------------------------------------------------------------------------------------------


class InvalidArguments(FrozenDict):
    """Stands, empty, for arguments that are no JSON object; ``why`` says what is wrong with them.

    A call with such arguments is denied before any rule is asked (``arguments_invalid``).
    """

    __slots__ = ("why",)
    why: str

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.why,)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("the same key twice in one object")
    return members


def _no_constant(text: str) -> Never:
    raise ValueError("NaN and infinities are not JSON")


def _arguments(value: object) -> FrozenDict:
    if type(value) is FrozenDict or type(value) is InvalidArguments:
        return value
    try:
        if isinstance(value, (str, bytes)):
            value = json.loads(value, object_pairs_hook=_unique, parse_constant=_no_constant)
        if not isinstance(value, Mapping):
            return InvalidArguments("they are no JSON object")
        frozen: FrozenDict = freeze(value)
    except json.JSONDecodeError:
        return InvalidArguments("they are no JSON")
    except RecursionError:
        return InvalidArguments(f"nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:
        return InvalidArguments(str(error))
    return frozen


def _chat_ids(value: Iterable[str | None]) -> tuple[str | None, ...]:
    if isinstance(value, str):
        raise TypeError("ancestors is one text where a row of chat ids is expected")
    return tuple(value)


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call that a model produced.

    ``arguments`` takes a mapping or the JSON text of one; anything else becomes
    `InvalidArguments`. ``provider`` is that of the tool that was picked, None where the model gave
    a name only. ``ancestors`` are the chat ids beside ``scope.ancestry`` (None = unknown), ``via``
    is the id of the outer call that this one came through; it has no effect on the decision.
    """

    id: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
    name: str = attrs.field(validator=_text)
    provider: Provider | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Provider))
    )
    arguments: FrozenDict = attrs.field(default=EMPTY, converter=_arguments, repr=False)
    chat: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
    ancestors: tuple[str | None, ...] = attrs.field(default=(), converter=_chat_ids)
    via: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
