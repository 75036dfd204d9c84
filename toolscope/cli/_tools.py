"""``toolscope tools``: which tools each chat of a session may be shown, and why not the others."""

from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from toolscope.ahp.session import Chat, Session
from toolscope.cli._input import (
    ConfigOption,
    JsonOption,
    SampleOption,
    SessionArgument,
    find_chat,
    find_configuration,
    read_session,
)
from toolscope.cli._output import (
    fault_json,
    say_configuration,
    say_errors,
    verdict_json,
    write_heading,
    write_json,
    write_row,
)
from toolscope.engine import PolicyEngine
from toolscope.listings import Listing
from toolscope.model import Tool, Toolset

__all__ = ["tools"]


def tools(
    session: SessionArgument = None,
    /,
    *,
    chat: Annotated[
        str | None, Parameter(help="The URI of the one chat to show.", allow_leading_hyphen=True)
    ] = None,
    sample: SampleOption = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Show which tools each chat may be shown, and which are withheld and why.

    Exit status: 0, or 2 if the session or the configuration cannot be read.
    """
    configuration = find_configuration(config)
    engine = PolicyEngine.load(configuration.path)
    read = read_session(session, sample=sample)
    chats = list(read.chats.values()) if chat is None else [find_chat(read, chat)]
    listings = [(one, engine.filter_tools(read.toolset, one.scope)) for one in chats]
    say_configuration(configuration)
    say_errors(
        verdict
        for _, listing in listings
        for verdicts in listing.withheld.values()
        for verdict in verdicts
    )
    if json:
        write_json(_as_json(read, listings))
    else:
        _write(read, listings)
    return 0


def _as_json(session: Session, listings: Iterable[tuple[Chat, Listing]]) -> dict[str, Any]:
    return {
        "chats": [
            {
                "chat": chat.uri,
                "title": chat.title,
                "origin": None if chat.origin is None else str(chat.origin),
                "agent": None if chat.agent is None else chat.agent.name,
                "listed": list(dict.fromkeys(tool.name for tool in listing)),
                "withheld": [
                    {
                        "tool": tool.name,
                        "provider": str(tool.provider),
                        "verdicts": [verdict_json(one) for one in verdicts],
                    }
                    for tool, verdicts in listing.withheld.items()
                ],
            }
            for chat, listing in listings
        ],
        "warnings": [fault_json(one) for one in session.warnings],
        "errors": [fault_json(one) for one in session.errors],
    }


def _write(session: Session, listings: Iterable[tuple[Chat, Listing]]) -> None:
    toolset = session.toolset
    if not session.chats:
        write_heading("The session has no chats.")
    for chat, listing in listings:
        write_heading(chat.title or chat.uri)
        write_row("chat", chat.uri)
        write_row("origin", "absent" if chat.origin is None else str(chat.origin))
        write_row("agent", "none" if chat.agent is None else chat.agent.name)
        write_row("shown", _shown(toolset, listing), style="green")
        for tool, verdicts in listing.withheld.items():
            why = "; and by ".join(f"{one.plugin}: {one.verdict.reason}" for one in verdicts)
            write_row("withheld", f"{_named(toolset, tool)} by {why}", style="red")
        for tool in toolset:
            if tool in listing.shadowed:
                why = "another provider's tool has this name here"
                write_row("shadowed", f"{_named(toolset, tool)}: {why}", style="yellow")
        write_heading("")
    for label, faults in (("warning", session.warnings), ("error", session.errors)):
        for fault in faults:
            write_row(label, str(fault), style="yellow", indent=0)


def _shown(toolset: Toolset, listing: Listing) -> str:
    """The names; nothing to show and everything withheld are two different texts."""
    if not toolset:
        return "nothing: the session has no tools"
    if not listing:
        return f"nothing: all {len(toolset)} tools are withheld"
    return ", ".join(_named(toolset, tool) for tool in listing)


def _named(toolset: Toolset, tool: Tool) -> str:
    """The name, with the provider where several have a tool of this name."""
    several = len(toolset.by_name(tool.name)) > 1
    return f"{tool.name} ({tool.provider})" if several else tool.name
