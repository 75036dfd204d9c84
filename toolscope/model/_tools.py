"""Tools, their providers, and the toolset of a session."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Never, Self, overload
from weakref import WeakKeyDictionary

import attrs

from toolscope._frozen import FrozenDict, FrozenList, digest, freeze
from toolscope.errors import ToolsetError


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


_AVAILABILITIES: Final[Mapping[str, Availability]] = {a.value: a for a in Availability}


def narrower_availability(
    first: Availability | str, second: Availability | str
) -> Availability | str:
    """The narrower of two claims about one tool."""
    return second if Availability.counted(first) is Availability.SESSION else first


class ProviderKind(StrEnum):
    """Who executes a tool."""

    HOST = "host"
    CLIENT = "client"
    MCP = "mcp"
    MODEL = "model"


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


def _freeze_mapping(value: Mapping[str, Any]) -> FrozenDict:
    if not isinstance(value, Mapping):
        raise ToolsetError(
            f"a tool's schema, meta or raw is a {type(value).__name__}, not a mapping"
        )
    try:
        frozen: FrozenDict = freeze(value)
    except ValueError as error:
        raise ToolsetError(f"a tool's schema, meta or raw is not JSON: {error}") from error
    return frozen


def _hint(instance: object, attribute: "attrs.Attribute[bool]", value: object) -> None:
    if type(value) is not bool:
        raise ToolsetError(f"the hint {attribute.name} is {value!r}; allowed are True and False")


@attrs.frozen(kw_only=True)
class Annotations:
    """A provider's hints about its tool; absent = the worst case (AHP ``ToolAnnotations``)."""

    title: str | None = None
    read_only: bool = attrs.field(default=False, validator=_hint)
    destructive: bool = attrs.field(default=True, validator=_hint)
    idempotent: bool = attrs.field(default=False, validator=_hint)
    open_world: bool = attrs.field(default=True, validator=_hint)


_NO_ANNOTATIONS: Final = Annotations()


def _availability(value: str) -> Availability | str:
    if not isinstance(value, str):
        raise ToolsetError(
            f"availability is a {type(value).__name__}; allowed is text: 'session' or 'userChats'"
        )
    return Availability.read(value)


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    if value == ():
        return ()
    if isinstance(value, str):
        raise ToolsetError(f"{value!r} is one text where several are expected; put it in a list")
    texts = tuple(value)
    if not all(isinstance(one, str) for one in texts):
        raise ToolsetError("a tool's tags and former names are texts")
    return texts


def _text_set(value: Iterable[str]) -> frozenset[str]:
    return frozenset() if value == frozenset() else frozenset(_texts(value))


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
    if value is None or isinstance(value, Deferred):
        return value
    return _freeze_mapping(value)


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
        for what in ("own_name", "title", "description"):
            value = getattr(self, what)
            if value is not None and not isinstance(value, str):
                raise ToolsetError(f"a tool's {what} is a {type(value).__name__}, not text")
        if not isinstance(self.provider, Provider):
            raise ToolsetError(
                f"a tool's provider is a {type(self.provider).__name__}; Provider.parse reads texts"
            )
        if not isinstance(self.annotations, Annotations):
            raise ToolsetError(f"a tool's annotations are a {type(self.annotations).__name__}")
        if not self.own_name:
            object.__setattr__(self, "own_name", self.name)

    def _thing(self, slot: str) -> FrozenDict | None:
        value = getattr(self, slot)
        if type(value) is Deferred:
            # Two threads that meet here store equal values.
            value = _freeze_mapping(value.value)
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
        return f"{self.provider._string}/{self.own_name}"  # noqa: SLF001  (saves a call a call)

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
            digests["seen"] = digest(seen)
        return digests["seen"]

    def same_to_rules(self, other: "Tool") -> bool:
        """Whether no rule could tell the two tools apart; ``source`` does not count."""
        if self is other:
            return True
        mine, theirs = _seen_by_rules(self), _seen_by_rules(other)
        # Equality of all parts at once is found without a step of Python for each.
        return mine == theirs and all(map(_same_types, mine, theirs))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a Tool does not leave its process; send its JSON and read it there")


def _same_types(one: Any, other: Any) -> bool:
    """Whether values that are equal are also the same JSON: ``1 == True == 1.0``, to Python."""
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other
    if kind is FrozenDict:
        for key, value in one.items():
            if type(value) is not str and not _same_types(value, other[key]):
                return False
    elif kind is FrozenList:
        for value, its in zip(one, other, strict=True):
            if type(value) is not str and not _same_types(value, its):
                return False
    return True


_seen_by_rules: Final = attrgetter(
    "name", "own_name", "provider", "title", "description", "input_schema", "output_schema",
    "annotations", "availability", "tags", "former_names", "meta", "raw",
)  # fmt: skip


(
    _set_name, _set_own_name, _set_provider, _set_title, _set_description, _set_input_schema,
    _set_output_schema, _set_annotations, _set_availability, _set_tags, _set_former_names,
    _set_meta, _set_raw, _set_source, _set_digests,
) = (getattr(Tool, field.name).__set__ for field in attrs.fields(Tool))  # fmt: skip


def checked_tool(
    name: str,
    provider: Provider,
    title: str | None,
    description: str | None,
    input_schema: Deferred | None,
    output_schema: Deferred | None,
    annotations: Annotations,
    availability: str,
    meta: Deferred | None,
    raw: Deferred,
) -> Tool:
    """A tool of parts that the reader has checked already.

    The constructor would check them again, which costs as much as reading them.
    """
    tool = object.__new__(Tool)
    _set_name(tool, name)
    _set_own_name(tool, name)
    _set_provider(tool, provider)
    _set_title(tool, title)
    _set_description(tool, description)
    _set_input_schema(tool, input_schema)
    _set_output_schema(tool, output_schema)
    _set_annotations(tool, annotations)
    _set_availability(tool, Availability.read(availability))
    _set_tags(tool, _NO_TAGS)
    _set_former_names(tool, ())
    _set_meta(tool, meta)
    _set_raw(tool, raw)
    _set_source(tool, None)
    _set_digests(tool, {})
    return tool


_NO_TAGS: Final = frozenset[str]()


class Toolset(Sequence[Tool]):
    """Every tool the host could run for a session, in the host's order. Immutable.

    Shown, deferred or withheld makes no difference; tools that only carry the run's answer to its
    end are left out. Engines keep what they computed for a toolset; keep it too: see `renewed`.

    Raises:
        ToolsetError: The same provider and own name twice, or something that is no `Tool`.
    """

    __slots__ = (
        "__weakref__",
        "_by_name",
        "_shared_names",
        "_tools",
        "memos",
        "ones",
        "positions",
        "recent",
    )

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = tuple(tools)
        for tool in self._tools:
            if type(tool) is not Tool:
                raise ToolsetError(f"a toolset holds Tool objects, not a {type(tool).__name__}")
        self.positions: Mapping[Tool, int] = MappingProxyType(
            {tool: position for position, tool in enumerate(self._tools)}
        )
        """Every tool with its place, counted from 0."""
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
        self.memos: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """What engines know of this toolset, by engine. Kept here so that it goes with it: a
        listing refers to its toolset, and a memo in the engine would keep both for ever."""
        self.recent: tuple[object, Any] | None = None
        """A token of the engine that asked last, with its memo: saves a third of a denial."""

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
        return tool in self.positions

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
