"""``toolscope check``: whether the configuration is valid, and allowlists name tools that exist."""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from typing import Any, Protocol, runtime_checkable

from toolscope._config import Configuration
from toolscope._plugins import assemble
from toolscope.ahp.session import Session
from toolscope.builtin.allowlist import Entries
from toolscope.cli._input import (
    ConfigOption,
    JsonOption,
    SampleOption,
    SessionArgument,
    find_configuration,
    read_session,
)
from toolscope.cli._output import complain, say_configuration, write_json, write_row
from toolscope.engine import PolicyEngine
from toolscope.errors import ConfigurationError, nearest
from toolscope.model import Tool, Toolset

__all__ = ["Diagnosing", "check"]


@runtime_checkable
class Diagnosing(Protocol):
    """A plugin that looks for what is suspicious in its policy. It may; no plugin has to."""

    def diagnose(self, tools: Toolset | None) -> Iterable[object]:
        """What it finds, one text each, beside the tools of a session (None = there is none)."""


def check(
    session: SessionArgument = None,
    /,
    *,
    sample: SampleOption = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Check the configuration and, of a session, the allowlists of its agents.

    Reports what else claims the package toolscope, allowlist entries that match no tool, and what
    plugins find suspicious in their policies.

    Exit status: 0 clean, 1 findings, 2 if the configuration or the session is broken.
    """
    try:
        configuration = find_configuration(config)
        PolicyEngine.load(configuration.path)
    except ConfigurationError as error:
        complain(str(error))
        if json:
            write_json({"valid": False, "unmatched": [], "findings": []})
        return 2
    unmatched: list[dict[str, Any]] = []
    tools: Toolset | None = None
    if session is not None or sample:
        read = read_session(session, sample=sample)
        tools = read.toolset
        unmatched = list(_unmatched(read))
    findings = list(_findings(configuration, tools))
    others = _other_claims()
    say_configuration(configuration)
    if others:
        complain(
            f"the package 'toolscope' is also claimed by {', '.join(map(repr, others))}, whose "
            "files may have replaced this one's; install toolscope-policy in an environment "
            "without it"
        )
    if json:
        write_json({"valid": not others, "unmatched": unmatched, "findings": findings})
    else:
        _write(others, unmatched, findings)
    return 1 if others or unmatched or findings else 0


def _findings(configuration: Configuration, tools: Toolset | None) -> Iterator[dict[str, str]]:
    """What each active plugin finds suspicious in its policy."""
    for name, plugin in assemble(configuration).plugins.items():
        if not isinstance(plugin, Diagnosing):
            continue
        try:
            found = [str(finding) for finding in plugin.diagnose(tools)]
        except Exception as error:  # noqa: BLE001  (a stranger's code; the others are still asked)
            found = [f"its diagnosis failed: {type(error).__name__}: {error}"]
        for text in found:
            yield {"plugin": name, "finding": text}


def _other_claims() -> list[str]:
    """The distributions that install a package ``toolscope`` beside this one."""
    claims = {name for name in packages_distributions().get("toolscope", ()) if name}
    return sorted(name for name in claims if _normal(name) != "toolscope-policy")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _unmatched(session: Session) -> Iterator[dict[str, Any]]:
    """Every allowlist entry that matches no tool of the session, with the nearest that would."""
    for agent in session.agents.values():
        for entry in sorted(agent.tools or ()):
            entries = Entries(frozenset({entry}))
            if not entries.everything and not any(
                _matches(entries, one) for one in session.toolset
            ):
                near = nearest(entry, _possible_entries(entry, session.toolset))
                yield {"agent": agent.name, "name": entry, "nearest": list(near)}


def _matches(entries: Entries, tool: Tool) -> bool:
    return (
        tool.name in entries.names
        or tool.provider in entries.providers
        or (tool.provider, tool.own_name) in entries.tools
    )


def _possible_entries(entry: str, toolset: Toolset) -> list[str]:
    if "/" not in entry:
        return [tool.name for tool in toolset]
    possible = [tool.identity for tool in toolset] + [f"{tool.provider}/*" for tool in toolset]
    return list(dict.fromkeys([*possible, *(tool.name for tool in toolset)]))


def _write(
    others: list[str], unmatched: list[dict[str, Any]], findings: list[dict[str, str]]
) -> None:
    write_row("configuration", "valid", indent=0, width=13)
    claim = f"also claimed by {', '.join(others)}" if others else "claimed by nothing else"
    write_row("package", claim, indent=0, width=13)
    for one in unmatched:
        near = f"; nearest are {', '.join(one['nearest'])}" if one["nearest"] else ""
        text = f"{one['name']} in the allowlist of {one['agent']} matches no tool{near}"
        write_row("unmatched", text, style="yellow", indent=0, width=13)
    for finding in findings:
        text = f"{finding['plugin']}: {finding['finding']}"
        write_row("suspicious", text, style="yellow", indent=0, width=13)
