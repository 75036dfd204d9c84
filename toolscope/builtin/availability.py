"""The built-in plugin ``availability``: a tool says where in a session it may be used.

The contract is AHP issue #446: a tool marked ``userChats`` is not shown in a chat whose origin is
``tool`` (P1); a call of it that is produced anyway is ended by the host, and names no client (P2);
a tool without the mark is not affected (P3).
"""

from typing import Literal

import attrs

from toolscope.hookspecs import ListAnswer, hookimpl
from toolscope.model import Availability, Origin, Toolset
from toolscope.verdicts import deny

__all__ = ["AvailabilityPlugin"]

USER_CHATS_ONLY = deny(
    "it is only available in chats that the user drives, and this chat was started by a tool; do "
    "the task without it, or report to the chat that started this one that the user has to do it",
    rule="userChats",
)


@attrs.frozen
class AvailabilitySettings:
    """``absent_origin``: how a chat without an origin counts; ``user`` is #446 read literally."""

    absent_origin: Literal["user", "tool"] = "user"


class AvailabilityPlugin:
    """Withholds ``userChats`` tools in chats that a tool spawned.

    An unknown availability counts as ``userChats`` and an unknown origin as ``tool``: a value that
    a later protocol adds can only be narrower than what is known today.
    """

    name = "availability"
    Settings = AvailabilitySettings

    def __init__(self, settings: AvailabilitySettings | None = None) -> None:
        self.settings = settings or AvailabilitySettings()

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: Origin | str | None) -> ListAnswer:
        """Names every tool that counts as ``userChats`` where the chat counts as a tool's."""
        if Origin.counted(self.settings.absent_origin if origin is None else origin) != Origin.TOOL:
            return {}
        session = Availability.SESSION
        return {tool: USER_CHATS_ONLY for tool in tools if tool.availability != session}
