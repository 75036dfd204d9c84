"""The plugin itself: settings, loading, and the two hooks."""

import logging
from pathlib import Path
from typing import Literal

import attrs

from toolscope.errors import ConfigurationError, Fault
from toolscope.hookspecs import ListAnswer, hookimpl
from toolscope.model import Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Verdict
from toolscope_rules.deciding import Decider
from toolscope_rules.diagnosis import Finding, diagnose, known_tools
from toolscope_rules.explaining import explain
from toolscope_rules.reading import read_document, read_policy
from toolscope_rules.rules import Policy

__all__ = ["RulesPlugin", "RulesSettings", "load_policy"]

logger = logging.getLogger("toolscope.rules")


@attrs.frozen(kw_only=True)
class RulesSettings:
    """The table ``[plugins.rules]``.

    ``file`` is the policy, relative to the configuration file; without it the plugin has no
    opinion. ``mode`` says what becomes of what may widen (a deny that matches no known tool):
    ``strict`` refuses the policy, ``lenient`` warns and keeps the rule armed.
    """

    file: Path | None = None
    mode: Literal["strict", "lenient"] = "strict"


class RulesPlugin:
    """Decides by the rules of a policy file. It is read once, when the engine is made.

    ``policy`` is for code that makes the policy itself; no file is read then.

    Raises:
        ConfigurationError: The file is broken or, in mode ``strict``, may allow more than meant.
    """

    name = "rules"
    Settings = RulesSettings

    def __init__(self, settings: RulesSettings | None = None, policy: Policy | None = None) -> None:
        settings = settings or RulesSettings()
        self.findings: tuple[Finding, ...] = ()
        if policy is None and settings.file is not None:
            policy, self.findings = load_policy(settings.file, mode=settings.mode)
        self.policy = policy or Policy()
        self.decider = Decider(self.policy)

    @hookimpl
    def filter_tools(self, tools: Toolset, scope: Scope) -> ListAnswer:
        """Names the tools that the policy denies whatever the arguments are."""
        return self.decider.listing(tools, scope)

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool, scope: Scope) -> Verdict | None:
        """The policy's deny or ask on a call of a listed tool."""
        return self.decider.on_call(call.arguments, tool, scope)

    def explain(self, call: ToolCall, tool: Tool, scope: Scope) -> tuple[str, ...]:
        """Which rules apply to a call and which do not, and what would have to change."""
        return explain(self.decider, call.arguments, tool, scope)

    def diagnose(self, tools: Toolset | None) -> tuple[Finding, ...]:
        """What is suspicious in the policy, beside the tools of a session where there is one."""
        return diagnose(self.policy, tools)


def load_policy(
    path: Path, *, mode: Literal["strict", "lenient"] = "strict"
) -> tuple[Policy, tuple[Finding, ...]]:
    """Reads a policy file, and says what is suspicious in it; warnings also go to the log.

    Raises:
        ConfigurationError: It is broken or, in mode ``strict``, may allow more than meant.
    """
    document, lines = read_document(path)
    policy, faults = read_policy(document, lines, source=path.name, folder=path.parent)
    if policy is None:
        raise ConfigurationError(f"the policy {path.name!r} is wrong", faults)
    if policy.known_tools is not None:
        try:
            known_tools(policy.known_tools)
        except ValueError as error:
            fault = Fault(path="known_tools", problem=str(error), source=path.name)
            raise ConfigurationError(f"the policy {path.name!r} is wrong", [fault]) from error
    findings = diagnose(policy)
    refused = [one.fault for one in findings if one.widens] if mode == "strict" else []
    if refused:
        raise ConfigurationError(
            f'the policy {path.name!r} may allow more than it was meant to (mode = "lenient" '
            "only warns)",
            refused,
        )
    for finding in findings:
        logger.warning("%s", finding)
    return policy, findings
