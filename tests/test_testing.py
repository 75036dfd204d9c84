"""The public checks for plugin authors: each passes a sound plugin and names what a bad one did."""

from typing import Any

import pytest

from toolscope.errors import ToolsetError
from toolscope.hookspecs import hookimpl
from toolscope.model import HOST, Availability, Provider, Scope, Tool, ToolCall, Toolset
from toolscope.testing import assert_order_irrelevant, assert_pure, tool, toolset
from toolscope.verdicts import Verdict, deny

SHELL = deny("it runs programs; ask for the one you need")


class NoShell:
    name = "no-shell"

    @hookimpl
    def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
        return {tool: SHELL for tool in tools if tool.name == "shell"}


def test_tool_reads_a_provider_from_its_text_form() -> None:
    """Fields are those of Tool; the host is the provider where none is named."""
    made = tool("copy", "client:desk/1".replace("/", "%2F"), availability="userChats")
    assert made.provider == Provider.client("desk/1")
    assert made.availability is Availability.USER_CHATS
    assert tool("read").provider == HOST
    with pytest.raises(ToolsetError, match="'desk' is no provider"):
        tool("copy", "desk")


def test_toolset_takes_names_for_tools_of_the_host() -> None:
    """In the order given."""
    copy = tool("copy", "client:desk")
    assert [one.identity for one in toolset("read", copy, "write")] == [
        "host/read",
        "client:desk/copy",
        "host/write",
    ]


def test_a_pure_plugin_passes() -> None:
    """As a class and as an object, with tools that it withholds and others."""
    assert_pure(NoShell, toolset("read", "shell", "write"))
    assert_pure(NoShell(), toolset("read", "shell"), Scope(origin="tool"))


def test_a_plugin_that_looks_at_neighbours_fails() -> None:
    """The message says which tool, what was said of it in the whole list, and in which other."""

    class Lonely:
        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return {tool: SHELL for tool in tools if len(tools) > 1}

    with pytest.raises(AssertionError) as caught:
        assert_pure(Lonely, toolset("read", "shell"))
    assert str(caught.value) == (
        "plugin 'Lonely' is not pure tool by tool: of 'host/read' it says 'it runs programs; ask "
        "for the one you need' in the whole list, and nothing in the list of 'host/read' alone"
    )


def test_a_plugin_that_remembers_fails() -> None:
    """What it says of the same list must be the same the second time."""

    class Forgetful:
        asked = 0

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            self.asked += 1
            return dict.fromkeys(tools, SHELL) if self.asked == 1 else {}

    with pytest.raises(AssertionError, match="and nothing in the whole list, asked again"):
        assert_pure(Forgetful, toolset("read"))


def test_a_plugin_that_fails_is_no_pure_one() -> None:
    """The error is in the message, with the list that it failed on."""

    class Broken:
        @hookimpl
        def filter_tools(self, tools: Toolset) -> Any:
            return None

    with pytest.raises(AssertionError, match="plugin 'Broken' failed on the whole list: filter_to"):
        assert_pure(Broken, toolset("read"))


def test_plugins_that_share_nothing_pass_in_any_order() -> None:
    """Listings and decisions are compared."""

    class Other(NoShell):
        name = "other"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return SHELL

    calls = [ToolCall(name="read"), ToolCall(name="shell"), ToolCall(name="none")]
    assert_order_irrelevant([NoShell, Other()], toolset("read", "shell"), calls=calls)
    assert_order_irrelevant([], toolset("read"))


def test_plugins_that_change_what_they_share_fail() -> None:
    """The message says which outcome the order changed."""
    asked: list[str] = []

    class Counting:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def on_tool_call(self) -> Verdict | None:
            asked.append(self.name)
            return SHELL if len(asked) > 2 else None

    with pytest.raises(AssertionError, match=r"order of plugins \['a', 'b'\] changes call 'read'"):
        assert_order_irrelevant(
            [Counting("a"), Counting("b")], toolset("read"), calls=[ToolCall(name="read")]
        )
