"""``toolscope call``: what becomes of one call, and what a host emits for a denied one."""

import json as jsonlib
from typing import Annotated, Any, Final

import anyio
from cyclopts import Parameter

from toolscope.ahp.calls import denied_actions
from toolscope.ahp.session import Session
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
    say_configuration,
    say_errors,
    verdict_json,
    write_heading,
    write_json,
    write_row,
)
from toolscope.engine import PolicyEngine
from toolscope.model import ToolCall
from toolscope.verdicts import Decision, Effect

__all__ = ["STATUS", "call"]

STATUS: Final = {Effect.ALLOW: 0, Effect.DENY: 1, Effect.ASK: 3}
"""The exit status of each effect."""

_STYLES: Final = {Effect.ALLOW: "green", Effect.DENY: "red", Effect.ASK: "yellow"}


def _option(text: str) -> Parameter:
    return Parameter(help=text, allow_leading_hyphen=True)


def call(
    session: SessionArgument = None,
    /,
    *,
    chat: Annotated[str, _option("The URI of the chat that the call was produced in.")],
    tool: Annotated[str, _option("The name of the tool, as the model wrote it.")],
    arguments: Annotated[str, _option("The arguments as JSON text, as the model wrote it.")] = "{}",
    turn: Annotated[
        str | None,
        _option("The id of the turn, for the actions. Else that of the active turn, or 'turn'."),
    ] = None,
    call_id: Annotated[str, _option("The id of the call, for the actions.")] = "call",
    sample: SampleOption = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Decide one call, and show the AHP actions that end it where it is denied.

    Exit status: 0 allow, 1 deny, 3 ask, 2 if something cannot be read.
    """
    configuration = find_configuration(config)
    engine = PolicyEngine.load(configuration.path)
    read = read_session(session, sample=sample)
    where = find_chat(read, chat)
    produced = ToolCall(
        id=call_id, name=tool, arguments=arguments, chat=chat, ancestors=where.ancestors
    )
    decision = anyio.run(engine.on_tool_call_async, produced, read.toolset, where.scope)
    actions: list[dict[str, Any]] = []
    if decision.effect is Effect.DENY:
        in_turn = turn if turn is not None else _active_turn(read, chat)
        actions = denied_actions(decision, turn=in_turn, call_id=call_id)
    say_configuration(configuration)
    say_errors(decision.verdicts)
    if json:
        write_json(_as_json(decision, actions))
    else:
        _write(decision, actions)
    return STATUS[decision.effect]


def _active_turn(session: Session, chat: str) -> str:
    """The id of the turn that runs in this chat; a placeholder where none does."""
    running = (
        one.active_turn.id
        for one in session.state.chats
        if one.resource == chat and one.active_turn is not None
    )
    return next(filter(None, running), "turn")


def _as_json(decision: Decision, actions: list[dict[str, Any]]) -> dict[str, Any]:
    failure = decision.failure
    return {
        "effect": str(decision.effect),
        "code": None if failure is None else str(failure.code),
        "reason": None if failure is None else failure.message,
        "final": None if failure is None else failure.final,
        "provider": None if decision.provider is None else str(decision.provider),
        "verdicts": [verdict_json(one) for one in decision.verdicts],
        "actions": actions,
    }


def _write(decision: Decision, actions: list[dict[str, Any]]) -> None:
    failure = decision.failure
    write_row(str(decision.effect), decision.call.name, style=_STYLES[decision.effect], indent=0)
    if decision.provider is not None:
        write_row("runs at", str(decision.provider))
    for one in decision.verdicts:
        rule = f" ({one.verdict.rule})" if one.verdict.rule else ""
        write_row("because", f"{one.plugin}{rule}: {one.verdict.reason}")
    if failure is None:
        return
    write_row("code", f"{failure.code}, {'final' if failure.final else 'not final'}")
    write_row("tell it", failure.message)
    write_heading("")
    write_heading("The host ends the call itself, with these actions:")
    for number, action in enumerate(actions, 1):
        write_row(str(number), jsonlib.dumps(action), width=1)
