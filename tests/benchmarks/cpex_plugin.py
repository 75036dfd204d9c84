"""The policy of `tests.benchmarks.policy` as one plugin of the peer cpex."""

from typing import Any

from cpex.framework import Plugin, PluginViolation
from cpex.framework.hooks.tools import ToolPreInvokePayload, ToolPreInvokeResult

from tests.benchmarks.policy import DOMAINS, LIMIT, OPERATORS, PLACES, PROGRAMS


class BenchmarkPlugin(Plugin):
    """All rules in one plugin: the cheapest form that this peer has."""

    async def tool_pre_invoke(
        self, payload: ToolPreInvokePayload, context: Any
    ) -> ToolPreInvokeResult:
        facts = payload.args or {}
        if "list" in facts:
            refused = (
                facts["availability_in"] == "userChats@tool"
                or not facts["listed"]
                or facts["reserved_in"] != "user"
                or facts["destructive_of"] == "True@client@tool"
                or facts["experimental_in"] != "user"
            )
        else:
            refused = (
                facts["program"] in PROGRAMS
                or facts["path"].startswith(PLACES)
                or facts["amount"] > LIMIT
                or facts["domain"] not in DOMAINS
                or facts["destructive_subject"] not in OPERATORS
            )
        if not refused:
            return ToolPreInvokeResult(continue_processing=True)
        return ToolPreInvokeResult(
            continue_processing=False,
            violation=PluginViolation(
                reason="policy", description="policy", code="DENIED", details={}
            ),
        )
