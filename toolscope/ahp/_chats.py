"""The chats and agents of an AHP session: origins, ancestry, and who acts in a chat."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import attrs

from toolscope.ahp import wire
from toolscope.errors import Fault, WireError
from toolscope.model import UNKNOWN, Agent, Ancestor, Origin, Scope, narrower_origin

__all__ = ["Chat", "derive"]

_DEEPEST = 256
"""How many chats above a chat its ancestry names; beyond them it ends with UNKNOWN."""

_MOST_NAMED = 20


@attrs.frozen(kw_only=True)
class Chat:
    """One chat of a session: where tools would be used.

    ``ancestors`` are the ids beside ``scope.ancestry`` (None = unknown).
    """

    uri: str
    title: str | None
    origin: Origin | str | None
    scope: Scope
    agent: Agent | None
    ancestors: tuple[str | None, ...] = ()


def derive(
    state: wire.SessionState,
) -> tuple[Mapping[str, Chat], Mapping[str, Agent], list[Fault], list[Fault]]:
    """The chats and the agents of a session, what was read otherwise than written, and errors."""
    entries = _entries(state)
    warnings = [*state.warnings]
    for entry in entries.values():
        warnings.extend(entry.disagreement())
    agents = _Agents(state.customizations)
    errors: list[Fault] = []
    chosen = {uri: agents.of_chat(entry, entries, errors) for uri, entry in entries.items()}
    chats = _Chats()
    for uri, entry in entries.items():
        above = _above(entry, entries, chosen)
        chats[uri] = Chat(
            uri=uri,
            title=entry.title,
            origin=entry.kind,
            agent=chosen[uri],
            ancestors=tuple(id_ for id_, _ in above),
            scope=Scope(
                origin=entry.kind,
                agent=chosen[uri],
                ancestry=tuple(one for _, one in above),
                can_ask=bool(state.clients),
            ),
        )
    return MappingProxyType(chats), MappingProxyType(agents.resolvable()), warnings, errors


class _Chats(dict[str, Chat]):
    """The chats of a session; asking for one that is not there names those that are."""

    def __missing__(self, uri: object) -> Chat:
        known = ", ".join(repr(one) for one in list(self)[:_MOST_NAMED]) or "none"
        more = len(self) - _MOST_NAMED
        cure = f"chats are {known}" + (f" and {more} more" if more > 0 else "")
        raise WireError(
            "there is no such chat", [Fault(path="$.chats", problem=f"no chat {uri!r}", cure=cure)]
        )


# --------------------------------------------------------------------------------------------
# Chats
# --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Entry:
    """A chat by what is there of it: its ``ChatState``, its ``ChatSummary``, or both."""

    path: str
    state: wire.ChatState
    summary: wire.ChatState

    @property
    def title(self) -> str | None:
        return self.state.title if self.state.title is not None else self.summary.title

    @cached_property
    def kind(self) -> Origin | str | None:
        """The origin; where the two sources disagree, the narrower one counts."""
        return narrower_origin(_kind(self.state), _kind(self.summary))

    @cached_property
    def origin(self) -> wire.ChatOrigin | None:
        """The origin that counts, with the chat it names."""
        first = self.state.origin
        return first if first is not None and first.kind == self.kind else self.summary.origin

    def disagreement(self) -> Iterator[Fault]:
        """The warning that the two sources give different origins."""
        if _kind(self.state) != _kind(self.summary):
            yield Fault(
                path=f"{self.path}.origin",
                problem=f"ChatState and ChatSummary of {self.state.resource!r} disagree",
                cure=f"{str(self.kind)!r} counts",
            )


def _kind(chat: wire.ChatState) -> Origin | str | None:
    return None if chat.origin is None else chat.origin.kind


def _entries(state: wire.SessionState) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for index, chat in enumerate(state.chats):
        path = "$" if state.lone_chat else f"$.chats[{index}]"
        other = entries.get(chat.resource)
        if other is None:
            entries[chat.resource] = _Entry(path=path, state=chat, summary=chat)
        elif chat.summary:
            entries[chat.resource] = attrs.evolve(other, summary=chat)
        else:
            entries[chat.resource] = attrs.evolve(other, state=chat, path=path)
    return entries


def _above(
    entry: _Entry, entries: Mapping[str, _Entry], agents: Mapping[str, Agent | None]
) -> list[tuple[str | None, Ancestor]]:
    """The chats above, nearest first, each with its id; UNKNOWN where the row breaks off."""
    above: list[tuple[str | None, Ancestor]] = []
    seen = {entry.state.resource}
    while entry.origin is not None and entry.origin.chat is not None:
        uri = entry.origin.chat
        if uri in seen or uri not in entries or len(above) == _DEEPEST:
            return [*above, (None, UNKNOWN)]  # type: ignore[list-item]
        seen.add(uri)
        entry = entries[uri]
        agent = agents[uri]
        above.append((uri, Ancestor(origin=entry.kind, agent=agent.name if agent else None)))
    return above


# --------------------------------------------------------------------------------------------
# Agents
# --------------------------------------------------------------------------------------------


class _Agents:
    """The agents that a session's customizations define (AHP ``AgentCustomization``)."""

    def __init__(self, customizations: Sequence[wire.Customization]) -> None:
        self._found: list[tuple[wire.Customization, bool]] = []
        self._by_uri: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        self._spawned: dict[str, dict[str, list[tuple[str | None, str]]]] = {}
        self._collect(customizations, enabled=True)

    def _collect(self, customizations: Sequence[wire.Customization], *, enabled: bool) -> None:
        """An agent is enabled where it is so itself, and whatever contains it."""
        for one in customizations:
            if one.type == "agent":
                place = len(self._found)
                self._found.append((one, enabled and one.enabled))
                if one.uri is not None:
                    self._by_uri.setdefault(one.uri, []).append(place)
                if one.name is not None:
                    self._by_name.setdefault(one.name, []).append(place)
            self._collect(one.children, enabled=enabled and one.enabled)

    def resolvable(self) -> dict[str, Agent]:
        agents: dict[str, Agent] = {}
        for one, enabled in self._found:
            if enabled and one.uri is not None and len(self._by_uri[one.uri]) == 1:
                agent = Agent(name=one.name or one.uri, tools=one.tools)
                agents[one.uri if agent.name in agents else agent.name] = agent
        return agents

    def of_chat(
        self, entry: _Entry, entries: Mapping[str, _Entry], errors: list[Fault]
    ) -> Agent | None:
        """The agent of a chat, None where none is named.

        It is the one that the message of the active turn selects, else of the last turn. A chat
        that a tool spawned and that selects none takes the customization that bears the
        ``agentName`` of its spawning call's result, where there is one.
        """
        turn = entry.state.selecting_turn
        if turn is not None and turn.agent is not None:
            places = self._by_uri.get(turn.agent, [])
            return self._resolve(turn.agent, places, entry, errors)
        names = self._names_in_parent(entry, entries)
        if len(names) > 1:
            return _unresolved(" or ".join(names), "is not one but several", entry, errors)
        for name in names:
            if places := self._by_name.get(name, []):
                return self._resolve(name, places, entry, errors)
        return None

    def _names_in_parent(self, entry: _Entry, entries: Mapping[str, _Entry]) -> list[str]:
        """The agent names that the results of the spawning call give to this chat, each once."""
        origin = entry.origin
        if origin is None or origin.kind is not Origin.TOOL or origin.chat is None:
            return []
        spawned = self._spawned.get(origin.chat)
        if spawned is None:
            spawned = self._spawned[origin.chat] = {}
            parent = entries.get(origin.chat)
            for call in parent.state.tool_calls if parent else ():
                for worker in call.subagents:
                    if worker.resource is not None and worker.agent_name is not None:
                        named = spawned.setdefault(worker.resource, [])
                        named.append((call.id, worker.agent_name))
        return list(
            dict.fromkeys(
                name
                for call_id, name in spawned.get(entry.state.resource, ())
                if origin.tool_call_id is None or origin.tool_call_id == call_id
            )
        )

    def _resolve(
        self, named: str, places: Sequence[int], entry: _Entry, errors: list[Fault]
    ) -> Agent | None:
        if not places:
            return _unresolved(named, "is not among the customizations", entry, errors)
        if len(places) > 1:
            return _unresolved(named, "is there twice among the customizations", entry, errors)
        one, enabled = self._found[places[0]]
        if not enabled:
            return _unresolved(named, "is disabled", entry, errors)
        return Agent(name=one.name or named, tools=one.tools)


def _unresolved(named: str, problem: str, entry: _Entry, errors: list[Fault]) -> Agent:
    """An agent that is named and cannot be resolved: it has no tools, never all of them."""
    errors.append(
        Fault(
            path=entry.path,
            problem=f"the agent {named!r} of chat {entry.state.resource!r} {problem}",
            cure="the chat gets no tools until the agent can be resolved",
        )
    )
    return Agent(name=named, tools=frozenset())
