"""``toolscope explain``: what every plugin says of one call, and why."""

from collections.abc import Iterable
from typing import Annotated, Any, Protocol, runtime_checkable

import anyio
import attrs
from cyclopts import Parameter

from toolscope import _chain
from toolscope._config import Configuration
from toolscope._plugins import Assembly, assemble
from toolscope.ahp.session import Session
from toolscope.cli._input import (
    ConfigOption,
    JsonOption,
    SampleOption,
    SessionArgument,
    UsageError,
    find_chat,
    find_configuration,
    read_session,
)
from toolscope.cli._output import (
    say_configuration,
    verdict_json,
    write_heading,
    write_json,
    write_row,
)
from toolscope.engine import PolicyEngine
from toolscope.errors import ConfigurationError, nearest
from toolscope.model import InvalidArguments, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Decision, PluginVerdict

__all__ = ["Explaining", "explain"]


@runtime_checkable
class Explaining(Protocol):
    """A plugin that says more of a call than its verdicts do. It may; no plugin has to."""

    def explain(self, call: ToolCall, tool: Tool, scope: Scope) -> Iterable[str]:
        """Which of its rules apply and which do not, and what would have to change; by lines."""


@attrs.frozen(kw_only=True)
class _Said:
    """What one plugin says: of the tool in a list, of the call, and of itself."""

    plugin: str
    listing: tuple[PluginVerdict, ...]
    call: tuple[PluginVerdict, ...]
    lines: tuple[str, ...]


def explain(
    session: SessionArgument = None,
    /,
    *,
    chat: Annotated[
        str, Parameter(help="The URI of the chat of the call.", allow_leading_hyphen=True)
    ],
    tool: Annotated[
        str,
        Parameter(help="The name of the tool, as the model wrote it.", allow_leading_hyphen=True),
    ],
    arguments: Annotated[
        str, Parameter(help="The arguments as JSON text.", allow_leading_hyphen=True)
    ] = "{}",
    sample: SampleOption = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Explain one call: what each plugin says of it, which rules apply, and what would change it.

    Exit status: 0, 2 if something cannot be read.
    """
    configuration = find_configuration(config)
    assembly = _assembled(configuration)
    engine = PolicyEngine.load(configuration.path)
    read = read_session(session, sample=sample)
    where = find_chat(read, chat)
    call = ToolCall(name=tool, arguments=arguments, chat=chat, ancestors=where.ancestors)
    found = _tools(read, tool)
    decision = anyio.run(engine.on_tool_call_async, call, read.toolset, where.scope)
    timeout = configuration.async_timeout
    explained = [
        (one, anyio.run(_explained, assembly, call, one, where.scope, read.toolset, timeout))
        for one in found
    ]
    say_configuration(configuration)
    if json:
        write_json(_as_json(decision, explained))
    else:
        _write(decision, explained)
    return 0


def _assembled(configuration: Configuration) -> Assembly:
    assembly = assemble(configuration)
    if assembly.faults:
        raise ConfigurationError("the policy cannot be loaded", assembly.faults)
    return assembly


def _tools(session: Session, name: str) -> tuple[Tool, ...]:
    found = session.toolset.by_name(name)
    if not found:
        near = nearest(name, session.toolset.names)
        known = f"the nearest are {', '.join(map(repr, near))}" if near else "none is like it"
        raise UsageError(f"no tool {name!r} in this session; {known}")
    return found


async def _explained(
    assembly: Assembly, call: ToolCall, tool: Tool, scope: Scope, tools: Toolset, timeout: float
) -> list[_Said]:
    """What each installed plugin says, in order of names; one that does not run says why."""
    said = []
    for record in assembly.records:
        if not record.active:
            idle = (f"it does not run: {record.why_not}",)
            said.append(_Said(plugin=record.name, listing=(), call=(), lines=idle))
            continue
        listing = [
            rule.answer(tools, rule.key(scope)).verdict(tool)
            for rule in assembly.hooks.list_rules
            if rule.plugin == record.name
        ]
        on_call: list[PluginVerdict] = []
        lines: tuple[str, ...] = ()
        if not isinstance(call.arguments, InvalidArguments):
            rules = [rule for rule in assembly.hooks.call_rules if rule.plugin == record.name]
            on_call, pending = _chain.ask_call(rules, call, tool, scope)
            if pending:
                on_call += await _chain.await_call(pending, timeout, enter=lambda: None)
            lines = _lines(assembly.plugins[record.name], call, tool, scope)
        said.append(
            _Said(
                plugin=record.name,
                listing=tuple(one for one in listing if one is not None),
                call=tuple(on_call),
                lines=lines,
            )
        )
    return said


def _lines(plugin: object, call: ToolCall, tool: Tool, scope: Scope) -> tuple[str, ...]:
    if not isinstance(plugin, Explaining):
        return ()
    try:
        return tuple(map(str, plugin.explain(call, tool, scope)))
    except Exception as error:  # noqa: BLE001  (a stranger's code; the answer goes on without it)
        return (f"its explanation failed: {type(error).__name__}: {error}",)


def _as_json(decision: Decision, explained: list[tuple[Tool, list[_Said]]]) -> dict[str, Any]:
    return {
        "effect": str(decision.effect),
        "reason": None if decision.failure is None else decision.failure.message,
        "tools": [
            {
                "tool": tool.name,
                "provider": str(tool.provider),
                "plugins": [
                    {
                        "plugin": one.plugin,
                        "listing": [verdict_json(verdict) for verdict in one.listing],
                        "call": [
                            {"effect": str(verdict.verdict.effect), **verdict_json(verdict)}
                            for verdict in one.call
                        ],
                        "explanation": list(one.lines),
                    }
                    for one in said
                ],
            }
            for tool, said in explained
        ],
    }


def _write(decision: Decision, explained: list[tuple[Tool, list[_Said]]]) -> None:
    write_row(str(decision.effect), decision.call.name, indent=0)
    if decision.failure is not None:
        write_row("tell it", decision.failure.message)
    for tool, said in explained:
        write_heading("")
        write_heading(f"{tool.name} of {tool.provider}")
        for one in said:
            opinions = [f"withholds it{_why(verdict)}" for verdict in one.listing]
            opinions += [f"says {v.verdict.effect}{_why(v)}" for v in one.call]
            write_row(one.plugin, "; ".join(opinions) or "has no opinion", width=14)
            for line in one.lines:
                write_row("", line, width=16)


def _why(one: PluginVerdict) -> str:
    rule = f" ({one.verdict.rule})" if one.verdict.rule else ""
    return f"{rule}: {one.verdict.reason if one.error is None else one.error}"
