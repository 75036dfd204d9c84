"""The toolscope plugin ``readonly``: chats that a tool started get trusted read-only tools only.

A worker runs without anybody watching. What it may be shown is what its provider calls read-only,
and a hint is only as good as who gives it: the settings say whose hints count.
"""

from typing import Literal

import attrs

from toolscope.hookspecs import ListAnswer, hookimpl
from toolscope.model import Origin, Provider, Tool, Toolset
from toolscope.verdicts import Verdict, deny

__all__ = ["ReadonlyPlugin", "ReadonlySettings"]

NOT_READ_ONLY = deny(
    "it may change something, and a chat that was started by a tool may only read; report what "
    "should be changed to the chat that started this one",
    rule="read-only",
)
NOT_TRUSTED = deny(
    "its provider is not trusted to call its own tools read-only in a chat that was started by a "
    "tool; use another tool, or leave the task to the chat that started this one",
    rule="trusted",
)


def _providers(
    instance: object, attribute: "attrs.Attribute[frozenset[str]]", value: frozenset[str]
) -> None:
    for text in value:
        Provider.parse(text)  # says what is allowed


@attrs.frozen(kw_only=True)
class ReadonlySettings:
    """The table ``[plugins.readonly]``.

    ``trusted`` names the providers whose ``read_only`` hint counts, in their text form (``host``,
    ``client:ID``, ``mcp:ID``, ``model``). ``absent_origin`` is how a chat without an origin
    counts, as in ``[plugins.availability]``: set both alike.
    """

    trusted: frozenset[str] = attrs.field(default=frozenset({"host"}), validator=_providers)
    absent_origin: Literal["user", "tool"] = "user"


class ReadonlyPlugin:
    """Withholds, in chats that a tool started, what is not read-only or whose word does not count.

    An absent hint is the worst case (not read-only), an unknown origin counts as ``tool``.
    """

    name = "readonly"
    Settings = ReadonlySettings

    def __init__(self, settings: ReadonlySettings | None = None) -> None:
        self.settings = settings or ReadonlySettings()
        self.trusted = frozenset(Provider.parse(text) for text in self.settings.trusted)

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: Origin | str | None) -> ListAnswer:
        """Names every tool that is not known to be harmless, where the chat counts as a tool's."""
        if Origin.counted(self.settings.absent_origin if origin is None else origin) != Origin.TOOL:
            return {}
        verdicts = ((tool, self._objection(tool)) for tool in tools)
        return {tool: verdict for tool, verdict in verdicts if verdict is not None}

    def _objection(self, tool: Tool) -> Verdict | None:
        if not tool.annotations.read_only:
            return NOT_READ_ONLY
        if tool.provider not in self.trusted:
            return NOT_TRUSTED
        return None
