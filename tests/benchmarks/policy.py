"""The policy that is measured: five rules about lists, five about calls, written three times.

Once by hand in one function each (``bare``: no plugins, no reasons), once as toolscope plugins, and
in `tests.benchmarks.peers` for each peer. The forms are checked to decide alike before anything is
timed.
"""

import re
from collections.abc import Sequence

from toolscope import (
    HOST,
    Agent,
    Annotations,
    Provider,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    Verdict,
    deny,
    hookimpl,
)

OPERATORS = frozenset({"ops", "root"})
PROGRAMS = frozenset({"rm", "dd", "mkfs", "shutdown"})
RESERVED = re.compile(r"(admin|root|billing)_|.*_(purge|wipe)$")
UNSTABLE = frozenset({"experimental", "deprecated"})
PLACES = ("/etc/", "/proc/", "/sys/")
DOMAINS = frozenset({"example.test", "example.invalid"})
LIMIT = 1000


def tools(count: int) -> list[Tool]:
    """``count`` tools of a host, a client and two MCP servers, one in seven ``userChats``."""
    providers = (HOST, Provider.client("desk"), Provider.mcp("files"), Provider.mcp("mail"))
    return [
        Tool(
            name=f"admin_tool_{i}" if i % 13 == 0 else f"tool_{i}",
            provider=providers[i % 4],
            description=f"Does the thing number {i}.",
            annotations=Annotations(read_only=i % 2 == 0, destructive=i % 5 == 0),
            availability="userChats" if i % 7 == 0 else "session",
            tags=["experimental"] if i % 11 == 0 else [],
        )
        for i in range(count)
    ]


def scope(count: int, *, seed: int = 0) -> Scope:
    """A worker of an agent that may use nine tools in ten; another seed is another allowlist."""
    allowed = [
        f"admin_tool_{i}" if i % 13 == 0 else f"tool_{i}"
        for i in range(count)
        if (i + seed) % 10 != 3
    ]
    return Scope(
        origin="tool",
        agent=Agent(name=f"worker-{seed}", tools=allowed),
        subject="ann",
        attributes={"stage": "production"},
    )


# --- by hand ----------------------------------------------------------------------------------


def permitted(tool: Tool, scope: Scope) -> bool:
    """The five list rules, as somebody would write them without a library."""
    if tool.availability != "session" and scope.origin == "tool":
        return False
    if scope.agent is not None and scope.agent.tools is not None:
        entries = scope.agent.tools
        if (
            tool.name not in entries
            and f"{tool.provider}/*" not in entries
            and f"{tool.provider}/{tool.own_name}" not in entries
        ):
            return False
    if RESERVED.match(tool.name) and scope.origin != "user":
        return False
    if tool.annotations.destructive and tool.provider.kind == "client" and scope.origin == "tool":
        return False
    return scope.origin == "user" or tool.tags.isdisjoint(UNSTABLE)


def bare_list(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
    """The list by hand."""
    return [tool for tool in tools if permitted(tool, scope)]


def bare_call(call: ToolCall, tool: Tool, scope: Scope) -> bool:
    """The five call rules by hand."""
    arguments = call.arguments
    if arguments.get("command", "").partition(" ")[0] in PROGRAMS:
        return False
    if arguments.get("path", "").startswith(PLACES):
        return False
    if arguments.get("amount", 0) > LIMIT:
        return False
    recipient = arguments.get("to")
    if recipient is not None and recipient.rpartition("@")[2] not in DOMAINS:
        return False
    return not (tool.annotations.destructive and scope.subject not in OPERATORS)


# --- as plugins -------------------------------------------------------------------------------

ADMIN = deny("reserved tools are only used in chats of the user; report instead")
DESTRUCTIVE = deny("a worker does not use a client's destructive tools; report instead")
EXPERIMENTAL = deny("experimental tools are only used in chats of the user; use others")
PROGRAM = deny("this program is never run; use the file tools")
PLACE = deny("system folders are not touched; work in the project")
AMOUNT = deny("amounts above 1000 are not allowed; split or ask")
RECIPIENT = deny("mail goes to known domains only")
OPERATOR = deny("destructive tools are for operators; ask one of them")


class Admin:
    name = "admin"

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: str | None) -> dict[Tool, Verdict]:
        if origin == "user":
            return {}
        return {tool: ADMIN for tool in tools if RESERVED.match(tool.name)}

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool, scope: Scope) -> Verdict | None:
        return OPERATOR if tool.annotations.destructive and scope.subject not in OPERATORS else None


class Destructive:
    name = "destructive"

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: str | None) -> dict[Tool, Verdict]:
        if origin != "tool":
            return {}
        return {
            tool: DESTRUCTIVE
            for tool in tools
            if tool.annotations.destructive and tool.provider.kind == "client"
        }

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        return PROGRAM if call.arguments.get("command", "").partition(" ")[0] in PROGRAMS else None


class Experimental:
    name = "experimental"

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: str | None) -> dict[Tool, Verdict]:
        if origin == "user":
            return {}
        return {tool: EXPERIMENTAL for tool in tools if not tool.tags.isdisjoint(UNSTABLE)}

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        return PLACE if call.arguments.get("path", "").startswith(PLACES) else None


class Amount:
    name = "amount"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        return AMOUNT if call.arguments.get("amount", 0) > LIMIT else None


class Recipient:
    name = "recipient"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        recipient = call.arguments.get("to")
        if recipient is not None and recipient.rpartition("@")[2] not in DOMAINS:
            return RECIPIENT
        return None


def plugins() -> list[object]:
    """The three list rules beside the two built-ins, and the five call rules."""
    return [Admin(), Destructive(), Experimental(), Amount(), Recipient()]
