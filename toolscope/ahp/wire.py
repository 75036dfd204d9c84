"""The shapes of the Agent Host Protocol that toolscope reads: strict about types, losing nothing.

A value read here is a view of a JSON document that it alone holds. `write` gives that document
back: every key survives, known or not, and what was absent stays absent. Only ``null`` under a
key that is typed here is read as absent, recorded in ``warnings`` and not written (AHP never emits
it there); ``null`` anywhere else is kept. Values are made by the readers: to change a document,
change its JSON and read it again.

Demanded are ``activeClients`` and ``chats``, a chat's ``resource``, an origin's ``kind``, a tool's
``name``, a client's ``clientId`` and ``tools``; all else may be absent. Whatever is wrong, one
`WireError` lists all of it. Unknown kinds and values are read, never refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import attrs

from toolscope._frozen import thaw
from toolscope.ahp._action_reader import ActionReader
from toolscope.ahp._json import json_kind, own
from toolscope.ahp._views import (
    Action,
    ActiveClient,
    ChatOrigin,
    ChatState,
    Contributor,
    Customization,
    Envelope,
    SessionState,
    Subagent,
    ToolCallState,
    Turn,
    View,
)
from toolscope.errors import WireError
from toolscope.model import HOST, Provider, Tool

__all__ = [
    "Action",
    "ActiveClient",
    "ChatOrigin",
    "ChatState",
    "Contributor",
    "Customization",
    "Document",
    "Envelope",
    "SessionState",
    "Subagent",
    "ToolCallState",
    "Turn",
    "read_action",
    "read_chat",
    "read_client",
    "read_customization",
    "read_envelope",
    "read_session",
    "read_tool",
    "write",
]

Document: TypeAlias = str | bytes | Mapping[str, Any]
"""A JSON object: its text, its UTF-8 bytes, or a mapping (which is copied)."""

_Json: TypeAlias = dict[str, Any]
_T = TypeVar("_T")


def write(value: "View | Tool") -> dict[str, Any]:
    """The JSON object of a value that was read here: a copy, ready for ``json.dumps``.

    Raises:
        ValueError: A `Tool` that was not read from the wire.
    """
    if isinstance(value, Tool):
        if value.raw is None:
            raise ValueError(
                f"the tool {value.name!r} was not read from the wire; it has no raw form"
            )
        return thaw(value.raw)  # type: ignore[no-any-return]
    return thaw(value._json)  # type: ignore[no-any-return]  # noqa: SLF001


def read_session(document: Document) -> SessionState:
    """Reads a ``SessionState``, or a lone ``ChatState`` as the one chat of an empty session.

    An entry of ``chats`` may be a ``ChatSummary`` or a ``ChatState``; a chat may be there once as
    each.

    Raises:
        WireError: Something in it is wrong; all faults, by JSON path.
    """
    title = "the session cannot be read"
    return _read(document, title, ActionReader.session)


def read_chat(document: Document) -> ChatState:
    """Reads a ``ChatState`` or a ``ChatSummary``.

    Raises:
        WireError: Something in it is wrong.
    """
    return _read(document, "the chat cannot be read", ActionReader.chat)


def read_client(document: Document) -> ActiveClient:
    """Reads a ``SessionActiveClient`` (of ``session/activeClientSet`` or ``createSession``).

    Raises:
        WireError: Something in it is wrong.
    """
    return _read(document, "the client cannot be read", ActionReader.client)


def read_tool(document: Document, provider: Provider = HOST) -> Tool:
    """Reads a ``ToolDefinition`` as a tool of this provider; its ``raw`` is the whole definition.

    Raises:
        WireError: Something in it is wrong.
    """

    def tool(reader: ActionReader, json: _Json, path: str) -> Tool | None:
        return reader.tool(json, path, provider)

    return _read(document, "the tool cannot be read", tool)


def read_customization(document: Document) -> Customization:
    """Reads a ``Customization`` of any type, with its children.

    Raises:
        WireError: Something in it is wrong.
    """
    return _read(document, "the customization cannot be read", ActionReader.customization)


def read_action(document: Document) -> Action:
    """Reads a ``StateAction`` of any type; an unknown type is kept as it is.

    Raises:
        WireError: Something in it is wrong.
    """
    return _read(document, "the action cannot be read", ActionReader.action)


def read_envelope(document: Document) -> Envelope:
    """Reads an ``ActionEnvelope``.

    Raises:
        WireError: Something in it is wrong.
    """
    return _read(document, "the envelope cannot be read", ActionReader.envelope)


def _read(
    document: Document, title: str, read: Callable[[ActionReader, _Json, str], _T | None]
) -> _T:
    reader = ActionReader()
    json = own(document, title)
    value = None
    if isinstance(json, dict):
        value = read(reader, json, "$")
    else:
        reader.fault("$", f"it is {json_kind(json)}", "allowed is an object")
    if reader.faults or value is None:
        raise WireError(title, reader.faults)
    if reader.warnings and isinstance(value, View):
        value = attrs.evolve(value, warnings=tuple(reader.warnings))
    return value
