"""LangChain and bare LangGraph: one middleware that filters and decides.

::

    create_agent = attach(langchain.agents.create_agent, PolicyEngine.load())
    agent = create_agent(model, tools=[...])

Every agent made with the attached `create_agent` is protected, workers that a tool runs included.
`coverage` takes a compiled agent and lists what stays unprotected.
"""

import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from toolscope import scopes
from toolscope.calls import CallState
from toolscope.hosts._langchain_asks import Person, Questions
from toolscope.hosts._langchain_tools import HostTool, Snapshot, Snapshots, keep
from toolscope.hosts._langgraph_places import DeclaredScope, Places, current_config
from toolscope.hosts._langgraph_reach import uncovered
from toolscope.hosts._point import EnforcementPoint, Policy, failed_decision
from toolscope.listings import Listing
from toolscope.model import Scope, ToolCall, Toolset, thaw
from toolscope.verdicts import Decision, Effect

__all__ = ["CODE_KEY", "DeclaredScope", "Toolscope", "attach", "coverage"]

_log = logging.getLogger("toolscope")

CODE_KEY: Final = "dev.toolscope/code"
"""The key in a failed result's ``artifact`` that holds the failure's code, for programs."""

F = TypeVar("F", bound=Callable[..., Any])


def attach(create_agent: F, policy: Policy, *, scope: DeclaredScope = Scope()) -> F:  # noqa: B008
    """``create_agent``, with `Toolscope` as the last middleware of every agent it makes.

    An agent that is given a `Toolscope` keeps that one. What an agent reaches and was not made this
    way is logged as a warning; `coverage` lists it.
    """
    middleware = Toolscope(policy, scope=scope)

    @functools.wraps(create_agent)
    def create(*args: Any, **arguments: Any) -> Any:
        given = tuple(arguments.get("middleware") or ())
        arguments["middleware"] = with_toolscope(given, middleware)
        agent = create_agent(*args, **arguments)
        tools = arguments.get("tools", args[1] if len(args) > 1 else None)
        warn_of([*repeated(tools or ()), *coverage(agent)])
        return agent

    return create  # type: ignore[return-value]  # the signature is that of create_agent


def with_toolscope(
    given: Sequence[AgentMiddleware[Any, Any, Any]], ours: "Toolscope"
) -> list[AgentMiddleware[Any, Any, Any]]:
    """These middlewares with one `Toolscope` among them, last where there was none."""
    if any(isinstance(one, Toolscope) for one in given):
        return list(given)
    return [*given, ours]


def coverage(agent: Any) -> tuple[str, ...]:
    """What a compiled agent or graph reaches unprotected, one sentence each; empty = nothing found.

    It finds agents that tools, nodes and sub-agent middlewares refer to. It cannot find an agent
    that a tool looks up while it runs.
    """
    return uncovered(agent, Toolscope)


def repeated(tools: Sequence[Any]) -> list[str]:
    """What is lost of the tools that an agent is given: the host merges those of one name."""
    names = [getattr(one, "name", None) or getattr(one, "__name__", None) for one in tools]
    return [
        f"a tool {name!r} that another one replaces; the host keeps the last of each name"
        for name, count in Counter(names).items()
        if name is not None and count > 1
    ]


def warn_of(lines: Sequence[str]) -> None:
    """Writes what is unprotected to the log, where an agent is made."""
    for line in lines:
        _log.warning("not covered by toolscope: %s", line)


@attrs.frozen(eq=False)
class _Shown:
    """The host's objects that may be shown, and what they were chosen from."""

    hosts: list[HostTool] = attrs.field(factory=list)
    snapshot: Snapshot | None = None
    listing: Listing | None = None


@attrs.define(eq=False)
class _Submitted:
    """One call as it is asked about."""

    call: ToolCall
    call_id: str
    """The host's id of the call, whatever the number of its execution."""
    tools: Toolset
    scope: Scope
    task: tuple[str | None, str]
    """The chat and the task that the call is executed in."""
    execution: object
    """LangGraph starts a task anew with each answer."""
    produced: ToolCall | None
    """The call as the request has it, where an edit in the state makes another tool's of it."""


_Handled: TypeAlias = ToolMessage | Command[Any]


class Toolscope(AgentMiddleware[Any, Any, Any]):
    """Filters the tools of every model call, and decides every tool call before it runs.

    Put it last: the last middleware sees the tools that the others add, and the call that they
    leave. One instance may serve any number of agents.

    For bare LangGraph, `tool_node` makes a node that decides, and `listed` filters what is given to
    ``bind_tools``.

    Args:
        policy: The engine, a ledger over one, or a callable that returns the engine.
        scope: The declared scope of the chats of its agents, or a callable that makes it from the
            run's config. An origin under ``configurable`` (`ORIGIN_KEY`) counts where it narrows,
            and a run inside a tool is a child whatever is declared. With ``can_ask`` and a
            checkpointer, an ask interrupts the run; it is answered with
            ``Command(resume={"type": "approve"})`` or ``{"type": "reject", "message": ...}``.
    """

    def __init__(self, policy: Policy, *, scope: DeclaredScope = Scope()) -> None:  # noqa: B008
        super().__init__()
        self.tools = []
        self._point = EnforcementPoint(policy)
        self._places = Places(scope)
        self._snapshots = Snapshots(self._point)
        self._kept: dict[int, _Shown] = {}
        self._listed: dict[str, Snapshot] = {}
        self._questions: dict[tuple[str | None, str], Questions] = {}

    # ----------------------------------------------------------------------------------------
    # The list
    # ----------------------------------------------------------------------------------------

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Calls the model with the tools that may be shown."""
        narrowed, snapshot = self._narrowed(request)
        response = handler(narrowed)
        self._remember(response, snapshot)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """As `wrap_model_call`."""
        narrowed, snapshot = self._narrowed(request)
        response = await handler(narrowed)
        self._remember(response, snapshot)
        return response

    def _narrowed(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], Snapshot | None]:
        tools = request.tools
        shown = self._shown(tools)
        if len(shown.hosts) == len(tools):
            return request, shown.snapshot
        changes: dict[str, Any] = {"tools": list(shown.hosts)}
        if _forced(request.tool_choice) not in (None, *map(_name, shown.hosts)):
            changes["tool_choice"] = None
        return request.override(**changes), shown.snapshot

    def _remember(self, response: object, snapshot: Snapshot | None) -> None:
        """Keeps the list that a message was produced with, for the calls in it."""
        for message in getattr(response, "result", None) or (response,):
            if isinstance(message, AIMessage) and message.id and snapshot is not None:
                keep(self._listed, message.id, snapshot)

    def listed(self, tools: Sequence[HostTool]) -> list[HostTool]:
        """The tools that may be shown in the run that is going on, for ``bind_tools``.

        For bare LangGraph: call it in the node that calls the model, each time.
        """
        return list(self._shown(tools).hosts)

    def _shown(self, hosts: Sequence[HostTool]) -> "_Shown":
        """What may be shown of the tools of the run that is going on."""
        try:
            snapshot = self._snapshots.of(hosts)
            scope = self._places.scope(current_config())
            listing = self._point.filter_tools(snapshot.toolset, scope)
            known = self._kept.get(id(listing))
            if known is None or known.snapshot is not snapshot or known.listing is not listing:
                known = _Shown(_listed_hosts(hosts, snapshot, listing), snapshot, listing)
                keep(self._kept, id(listing), known)
        except Exception:  # noqa: BLE001  (the edge to the host: an error of ours shows nothing)
            _log.exception("toolscope failed to filter a tool list; it is sent empty")
            return _Shown()
        return known

    # ----------------------------------------------------------------------------------------
    # The calls
    # ----------------------------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Handled]
    ) -> _Handled:
        """Runs the call with the arguments that were decided, or returns a failed result."""
        submitted = self._submit(request)
        if submitted is None:
            return _failed(request, failed_decision(ToolCall(name="?"), Scope()))
        call, tools, scope = submitted.call, submitted.tools, submitted.scope
        produced = submitted.produced
        decision = self._point.on_tool_call(call, tools, scope, produced=produced)
        if decision.effect is Effect.ASK:
            person = self._person(submitted)
            while decision.effect is Effect.ASK:
                person.answer(decision)
                decision = self._point.on_tool_call(call, tools, scope, produced=produced)
        if decision.effect is not Effect.ALLOW:
            return _failed(request, decision)
        if self._questions:
            self._pass_over(submitted)
        try:
            with scopes.inside(scope):
                result = handler(_with_arguments(request, decision))
        except BaseException as error:
            self._ended(submitted, error)
            raise
        self._ended(submitted, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Handled]]
    ) -> _Handled:
        """As `wrap_tool_call`, with awaitable rules awaited."""
        submitted = self._submit(request)
        if submitted is None:
            return _failed(request, failed_decision(ToolCall(name="?"), Scope()))
        call, tools, scope = submitted.call, submitted.tools, submitted.scope
        produced = submitted.produced
        decision = await self._point.on_tool_call_async(call, tools, scope, produced=produced)
        if decision.effect is Effect.ASK:
            person = self._person(submitted)
            while decision.effect is Effect.ASK:
                person.answer(decision)
                decision = await self._point.on_tool_call_async(
                    call, tools, scope, produced=produced
                )
        if decision.effect is not Effect.ALLOW:
            return _failed(request, decision)
        if self._questions:
            self._pass_over(submitted)
        try:
            with scopes.inside(scope):
                result = await handler(_with_arguments(request, decision))
        except BaseException as error:
            self._ended(submitted, error)
            raise
        self._ended(submitted, result)
        return result

    def tool_node(self, tools: Sequence[Any], **arguments: Any) -> ToolNode:
        """LangGraph's ``ToolNode`` with these tools, each call decided; for bare LangGraph."""
        return ToolNode(
            tools,
            wrap_tool_call=self.wrap_tool_call,
            awrap_tool_call=self.awrap_tool_call,
            **arguments,
        )

    # ----------------------------------------------------------------------------------------
    # One call
    # ----------------------------------------------------------------------------------------

    def _submit(self, request: ToolCallRequest) -> _Submitted | None:
        """The call to ask about; None where it cannot even be read."""
        try:
            return self._submitted(request)
        except Exception:  # noqa: BLE001  (as above: nothing was permitted)
            _log.exception("toolscope failed to read a call; it is denied")
            return None

    def _submitted(self, request: ToolCallRequest) -> _Submitted:
        runtime = request.runtime
        config = current_config() if runtime is None else runtime.config
        messages = _messages(request.state)
        message = _last_answer(messages)
        place = self._places.place(config, messages, message)
        name, arguments, host = _final_form(request)
        snapshot = None if message is None else self._listed.get(message.id or "")
        tool = snapshot.tool_of(host) if snapshot is not None and host is not None else None
        if snapshot is None or tool is None:
            registry: list[HostTool] = [] if runtime is None else list(runtime.tools)
            if host is not None and not any(one is host for one in registry):
                registry.append(host)
            snapshot = self._snapshots.of(registry)
            tool = None if host is None else snapshot.tool_of(host)
            if host is not None and tool is None:  # it was changed where it is
                snapshot = self._snapshots.of(registry, anew=True)
                tool = snapshot.tool_of(host)
        # What is decided is the tool that runs, whatever name the call bears by now.
        name = name if tool is None else tool.name
        submitted = f"{request.tool_call.get('id')}@{place.task}"
        call = ToolCall(
            id=self._unspent(place.chat, submitted),
            name=name,
            arguments=arguments,
            chat=place.chat,
            ancestors=place.ancestors,
        )
        execution = (config.get("configurable") or {}).get("__pregel_scratchpad")
        task = (place.chat, place.task)
        call_id = str(request.tool_call.get("id"))
        produced = None
        if request.tool_call["name"] != call.name and request.tool is not host:
            # A reviewer's edit names another tool. Whether it will be applied cannot be seen here.
            produced = attrs.evolve(
                call, name=request.tool_call["name"], arguments=request.tool_call["args"]
            )
        toolset = snapshot.toolset
        return _Submitted(call, call_id, toolset, place.scope, task, execution, produced)

    def _unspent(self, chat: str | None, submitted: str) -> str:
        """The id of this execution: the host repeats a call that failed or was interrupted."""
        call_id, times = submitted, 1
        while self._point.ledger.state(chat, call_id) in (CallState.FAILED, CallState.CANCELLED):
            times += 1
            call_id = f"{submitted}#{times}"
        return call_id

    def _ended(self, submitted: _Submitted, outcome: object) -> None:
        call = submitted.call
        if isinstance(outcome, GraphInterrupt):
            # The tool, or a run in it, waits for a person; the answer makes it run anew.
            self._point.cancelled(call)
            self._questions_of(submitted).interrupted()
            return
        if isinstance(outcome, ToolMessage):
            failed = outcome.status == "error"
        else:
            failed = isinstance(outcome, BaseException) and not isinstance(outcome, ParentCommand)
        self._point.completed(call, failed=failed)
        if failed and submitted.task in self._questions:
            self._questions_of(submitted).failed(submitted.call_id)

    def _person(self, submitted: _Submitted) -> Person:
        return Person(self._point, self._questions_of(submitted), submitted.call_id)

    def _questions_of(self, submitted: _Submitted) -> Questions:
        questions = self._questions.get(submitted.task)
        if questions is None:
            questions = Questions()
            keep(self._questions, submitted.task, questions)
        questions.begin(submitted.execution)
        return questions

    def _pass_over(self, submitted: _Submitted) -> None:
        if submitted.task in self._questions:
            self._questions_of(submitted).pass_over()


def _listed_hosts(
    hosts: Sequence[HostTool], snapshot: Snapshot, listing: Listing
) -> list[HostTool]:
    """The host's objects that stand for listed tools, in the host's order, each once."""
    if len(listing) == len(hosts) and not listing.collisions:
        return list(hosts)
    collided = {tool for tools in listing.collisions.values() for tool in tools}
    # LangChain gives a tool no second name, so tools that share one are left out.
    sent = {id(tool) for tool in listing if tool not in collided}
    left: list[HostTool] = []
    tools = snapshot.tools
    for host in hosts:
        place = id(tools[id(host)][1])
        if place in sent:
            sent.discard(place)
            left.append(host)
    return left


def _messages(state: object) -> Sequence[Any]:
    if isinstance(state, _MAPPING):
        state = state.get("messages")
    elif not isinstance(state, _SEQUENCE):
        state = getattr(state, "messages", None)
    return state if isinstance(state, _SEQUENCE) else ()


_MAPPING: Final = (dict, Mapping)
_SEQUENCE: Final = (list, Sequence)
"""What the host nearly always gives comes first: the abstract class alone answers slowly."""


def _last_answer(messages: Sequence[Any]) -> AIMessage | None:
    """The message of the model that came last."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message
    return None


def _final_form(request: ToolCallRequest) -> tuple[str, Any, BaseTool | None]:
    """The name, arguments and tool that run: a reviewer's edit may still be applied below us."""
    call, tool = request.tool_call, request.tool
    name, arguments = call["name"], call["args"]
    state = request.state
    edits = state.get("hitl_edited_tool_calls") if isinstance(state, _MAPPING) else None
    edit = edits.get(call.get("id")) if edits else None
    if edit is None:
        return name, arguments, tool
    if edit["name"] != name:
        registry = request.runtime.tools if request.runtime is not None else []
        tool = next((one for one in registry if one.name == edit["name"]), None)
    return edit["name"], edit["args"], tool


def _with_arguments(request: ToolCallRequest, decision: Decision) -> ToolCallRequest:
    arguments = thaw(decision.call.arguments)
    return request.override(tool_call={**request.tool_call, "args": arguments})


def _failed(request: ToolCallRequest, decision: Decision) -> ToolMessage:
    failure = decision.failure
    return ToolMessage(
        content="" if failure is None else failure.message,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call.get("id") or "",
        status="error",
        artifact=None if failure is None else {CODE_KEY: str(failure.code)},
    )


def _name(host: HostTool) -> str | None:
    if isinstance(host, BaseTool):
        return host.name
    function = host.get("function")
    name = (function if isinstance(function, dict) else host).get("name") or host.get("type")
    return name if isinstance(name, str) else None


_NOT_FORCED: Final = frozenset({"auto", "any", "none", "required"})


def _forced(choice: object) -> str | None:
    """The one tool that a choice forces, in the shapes that LangChain's models take."""
    if isinstance(choice, dict):
        function = choice.get("function")
        named = (function if isinstance(function, dict) else choice).get("name")
        return named if isinstance(named, str) else None
    return choice if isinstance(choice, str) and choice not in _NOT_FORCED else None
