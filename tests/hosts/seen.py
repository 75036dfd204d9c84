"""A rule that the tests of several hosts share."""

from typing import Any

from toolscope import Tool, ToolCall, Verdict, ask, deny, hookimpl


class Seen:
    """Keeps the calls it is asked about; asks about refunds above 100 and denies above 1000."""

    name = "seen"

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict | None:
        self.calls.append((tool.name, dict(call.arguments)))
        amount = call.arguments.get("amount", 0)
        if amount > 1000:
            return deny("nobody refunds more than 1000")
        return ask("a large refund needs a person") if amount > 100 else None
