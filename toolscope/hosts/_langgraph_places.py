"""Where in LangGraph a hook was called: the chat, its scope and the task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import attrs
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from toolscope import scopes
from toolscope.hosts._langchain_tools import keep
from toolscope.hosts._marks import ORIGIN_KEY
from toolscope.model import UNKNOWN, Agent, Origin, Scope, narrower_origin

__all__ = ["DeclaredScope", "Place", "Places", "current_config"]

DeclaredScope: TypeAlias = Scope | Callable[[RunnableConfig], Scope]
"""The scope of the chats of an agent, or what makes it from the config of a run."""


@attrs.define(eq=False)
class Place:
    """Where a hook was called: the chat, its scope, the chats above it, and the task."""

    chat: str | None
    ancestors: tuple[str | None, ...]
    scope: Scope
    task: str


class Places:
    """Tells places, from what is declared and from what the run's config says of itself."""

    def __init__(self, declared: DeclaredScope) -> None:
        self._declared = declared
        self._scopes: dict[tuple[object, ...], Scope] = {}

    def place(
        self, config: RunnableConfig, messages: Sequence[Any], message: AIMessage | None
    ) -> Place:
        """The place of a call in ``message``, which is one of the chat's ``messages``."""
        settings: Mapping[str, Any] = config.get("configurable") or {}
        metadata = config.get("metadata") or {}
        alone = message is not None and _alone(metadata, message)
        scope = self.scope(config, alone=alone)
        way = settings.get("checkpoint_ns") or ""
        thread = settings.get("thread_id")
        chat: str | None = None if thread is None else str(thread)
        ancestors: tuple[str | None, ...] = ()
        if scope.ancestry:
            chat, ancestors = _chats(chat, way, messages)
        elif chat is None:
            chat = _first_id(messages)
        return Place(chat, ancestors, scope, way.rpartition("|")[2] or uuid4().hex)

    def scope(self, config: RunnableConfig, *, alone: bool = True) -> Scope:
        """The scope of the chat that goes on; only a call that is alone in its task can ask."""
        settings: Mapping[str, Any] = config.get("configurable") or {}
        metadata: Mapping[str, Any] = config.get("metadata") or {}
        declared = self._declared if isinstance(self._declared, Scope) else self._declared(config)
        way = settings.get("checkpoint_ns")
        key = (
            declared,
            metadata.get("lc_agent_name"),
            settings.get(ORIGIN_KEY),
            scopes.current(),
            settings.get("ls_agent_type") == "subagent"
            or (way is not None and "|" in way and bool(_tools_above(way))),
            declared.can_ask and bool(settings.get("__pregel_checkpointer")) and alone,
        )
        known = self._scopes.get(key)
        if known is None:
            known = _scope_of(*key)
            keep(self._scopes, key, known)
        return known


def _scope_of(
    declared: Scope,
    name: object,
    claim: str | None,
    outer: Scope | None,
    spawned: bool,
    can_ask: bool,
) -> Scope:
    agent = declared.agent
    if agent is None and isinstance(name, str) and name:
        agent = Agent(name=name)
    # A LangGraph server takes a run's config from its clients: a claim may narrow, never widen.
    narrows = claim is not None and Origin.counted(claim) is Origin.TOOL
    scope = attrs.evolve(
        declared,
        origin=narrower_origin(declared.origin, claim) if narrows else declared.origin,
        agent=agent,
        can_ask=can_ask,
    )
    if outer is not None:
        return outer.child(scope)
    if spawned:
        origin = narrower_origin(scope.origin, Origin.TOOL)
        return attrs.evolve(scope, origin=origin, ancestry=(UNKNOWN,))
    return scope


def current_config() -> RunnableConfig:
    """The config of the run that goes on; empty outside of any."""
    try:
        return get_config()
    except RuntimeError:  # outside of any run
        return {}


def _tools_above(way: str) -> list[str]:
    """The ways to the tools that a run is in, innermost first.

    A run below a node 'tools' was started by a tool; other nodes above are handoffs.
    """
    above = way.split("|")[:-1]
    ends = [end for end, one in enumerate(above, start=1) if one.partition(":")[0] == "tools"]
    return ["|".join(above[:end]) for end in reversed(ends)]


def _chats(
    thread: str | None, way: str, messages: Sequence[Any]
) -> tuple[str | None, tuple[str | None, ...]]:
    """The id of a chat that a tool started, and the ids of those above it, nearest first."""
    ways = _tools_above(way)
    if not ways and scopes.current() is None:
        return thread or _first_id(messages), ()  # its ancestry is declared: a chat of its own
    if not ways:
        # The tool that it runs in is no node of LangGraph's: nothing tells the chats above.
        return f"{thread or ''}|{way.rpartition('|')[0] or _first_id(messages) or way}", ()
    chat, *above = [f"{thread or ''}|{one}" for one in ways]
    return chat, (*above, thread)


def _first_id(messages: Sequence[Any]) -> str | None:
    for message in messages:
        if getattr(message, "id", None):
            return message.id  # type: ignore[no-any-return]
    return None


def _alone(metadata: Mapping[str, Any], message: AIMessage) -> bool:
    """Whether a call has a task of its own; in a bare ``ToolNode`` a message's calls share one.

    LangGraph gives a task its answers in order, so parallel calls in it could take each other's.
    """
    path = metadata.get("langgraph_path") or ("",)
    return path[0] == "__pregel_push" or len(message.tool_calls) == 1
