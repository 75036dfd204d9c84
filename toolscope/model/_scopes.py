"""Where a tool would be used: origins, agents, scopes, and the JSON form of a scope."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum, StrEnum
from typing import Any, Final, Literal, TypeAlias

import attrs

from toolscope._frozen import EMPTY, FrozenDict
from toolscope.errors import ScopeError


def text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} is a {type(value).__name__}, not text")


def optional_text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None and not isinstance(value, str):
        text(instance, attribute, value)


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


_ORIGINS: Final[Mapping[str, Origin]] = {o.value: o for o in Origin}


def narrower_origin(first: Origin | str | None, second: Origin | str | None) -> Origin | str | None:
    """The narrower of two claims about one chat: what counts as ``TOOL``, else the first known."""
    if first is not None and Origin.counted(first) is Origin.TOOL:
        return first
    if second is not None and (first is None or Origin.counted(second) is Origin.TOOL):
        return second
    return first


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

    name: str = attrs.field(validator=text)
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
    agent: str | None = attrs.field(default=None, validator=optional_text)
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
    subject: str | None = attrs.field(default=None, validator=optional_text)
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
        if lost := sorted({"can_ask", "ancestry", "attributes"} - top.keys()):
            raise ScopeError(f"the saved scope lacks {lost}; it was not saved whole")
        agent = None
        if "agent" in top:
            members = _members(top["agent"], "its agent", frozenset({"name", "tools"}))
            tools = members.get("tools")
            if "tools" in members and not isinstance(tools, (list, tuple)):
                raise ScopeError("the saved scope's agent has tools that are no array")
            if not isinstance(members.get("name"), str):
                raise ScopeError("the saved scope's agent has no name")
            if not all(isinstance(entry, str) for entry in tools or ()):
                raise ScopeError("the saved scope's agent has a tool that is no text")
            agent = Agent(name=members["name"], tools=tools)
        rows = top["ancestry"]
        if not isinstance(rows, (list, tuple)):
            raise ScopeError("the saved scope has an ancestry that is no array")
        try:
            return cls(
                origin=_present(top, "origin"),
                agent=agent,
                ancestry=tuple(_ancestor_from_json(row) for row in rows),
                can_ask=top["can_ask"],
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
    if not isinstance(members.get("attributes"), Mapping):
        raise ScopeError("the saved scope has attributes that are missing or no JSON object")
    attributes: Mapping[str, Any] = members["attributes"]
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
