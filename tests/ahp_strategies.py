"""Hypothesis strategies that make AHP documents, and the folder of the protocol's own cases."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

Json: TypeAlias = dict[str, Any]

AHP = Path(__file__).parent.parent.parent / "shared" / "ahp"
needs_ahp = pytest.mark.skipif(
    not AHP.is_dir(), reason=f"the protocol's own cases are not at {AHP}; see the README"
)


def ahp_cases(folder: str) -> Iterator[tuple[str, Json]]:
    """The protocol's cases of one folder by file name; none where the folder is missing."""
    for path in sorted((AHP / folder).glob("*.json")):
        yield path.name, json.loads(path.read_text())


texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.sampled_from(["look", "pick", "shell", "edit", "ask"])
client_ids = st.sampled_from(["desk-1", "web-2", "mcp:github", "a/b"])
uris = st.sampled_from([f"ahp-chat:/{name}" for name in "abcdef"])
availabilities = st.sampled_from(["session", "userChats", "adminChats"])
origin_kinds = st.sampled_from(["user", "fork", "sideChat", "tool", "dream"])

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def with_unknown(known: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """The same objects, some with members that no version of the protocol has."""
    unknown = st.dictionaries(texts.map(lambda text: f"x-{text}"), json_values, max_size=2)
    return st.tuples(unknown, known).map(lambda pair: {**pair[0], **pair[1]})


def tools() -> st.SearchStrategy[Json]:
    """A ``ToolDefinition``."""
    flags = st.booleans()
    hints = st.fixed_dictionaries(
        {},
        optional={
            "title": texts,
            "readOnlyHint": flags,
            "destructiveHint": flags,
            "idempotentHint": flags,
            "openWorldHint": flags,
        },
    )
    schema = st.just({"type": "object"}) | st.dictionaries(texts, json_values, max_size=3)
    return with_unknown(
        st.fixed_dictionaries(
            {"name": names},
            optional={
                "title": texts,
                "description": texts,
                "inputSchema": schema,
                "outputSchema": schema,
                "annotations": with_unknown(hints),
                "availability": availabilities,
                "_meta": schema,
            },
        )
    )


def tool_lists() -> st.SearchStrategy[list[Json]]:
    """Tools of one provider: each name once."""
    return st.lists(tools(), max_size=4, unique_by=lambda tool: tool["name"])


def clients() -> st.SearchStrategy[Json]:
    """A ``SessionActiveClient``."""
    return with_unknown(
        st.fixed_dictionaries(
            {"clientId": client_ids, "tools": tool_lists()}, optional={"displayName": texts}
        )
    )


agent_uris = st.sampled_from([f"file:///agents/{name}.md" for name in "xyz"])
agent_names = st.sampled_from(["Reviewer", "Writer", "Planner"])


def turns() -> st.SearchStrategy[Json]:
    """A turn whose message may select an agent and whose calls may have spawned chats."""
    message = st.fixed_dictionaries(
        {"text": texts}, optional={"agent": st.fixed_dictionaries({"uri": agent_uris})}
    )
    subagent = st.fixed_dictionaries(
        {"type": st.just("subagent"), "resource": uris}, optional={"agentName": agent_names}
    )
    content = st.lists(subagent | st.just({"type": "text", "text": "hello"}), max_size=2)
    call = st.fixed_dictionaries(
        {"toolCallId": st.sampled_from(["call-1", "call-2"]), "content": content}
    )
    part = call.map(lambda one: {"kind": "toolCall", "toolCall": one}) | st.just(
        {"kind": "markdown", "content": "text"}
    )
    return with_unknown(
        st.fixed_dictionaries(
            {"id": texts, "message": message, "responseParts": st.lists(part, max_size=2)}
        )
    )


def chats() -> st.SearchStrategy[Json]:
    """A ``ChatSummary`` or a ``ChatState``."""
    origin = st.fixed_dictionaries(
        {"kind": origin_kinds},
        optional={"chat": uris, "toolCallId": st.just("call-1"), "turnId": texts},
    )
    summary = st.fixed_dictionaries(
        {"resource": uris}, optional={"title": texts, "origin": with_unknown(origin)}
    )
    rest = st.fixed_dictionaries(
        {"turns": st.lists(turns(), max_size=2)}, optional={"activeTurn": turns()}
    )
    state = st.tuples(summary, rest).map(lambda pair: {**pair[0], **pair[1]})
    return with_unknown(summary | state)


def customizations() -> st.SearchStrategy[Json]:
    """A plugin or directory with agents, an agent alone, or something of an unknown type."""
    agent = st.fixed_dictionaries(
        {"type": st.just("agent"), "uri": agent_uris, "name": agent_names},
        optional={"tools": st.lists(names, max_size=3), "enabled": st.booleans()},
    )
    container = st.fixed_dictionaries(
        {"type": st.sampled_from(["plugin", "directory"]), "children": st.lists(agent, max_size=2)},
        optional={"enabled": st.booleans()},
    )
    return with_unknown(agent | container | st.just({"type": "future/thing"}))


def sessions() -> st.SearchStrategy[Json]:
    """A ``SessionState`` that is well formed; a chat may be there as state and as summary."""
    return with_unknown(
        st.fixed_dictionaries(
            {
                "activeClients": st.lists(
                    clients(), max_size=2, unique_by=lambda one: one["clientId"]
                ),
                "chats": st.lists(
                    chats(), max_size=5, unique_by=lambda one: (one["resource"], "turns" in one)
                ),
            },
            optional={
                "title": texts,
                "defaultChat": uris,
                "serverTools": tool_lists(),
                "customizations": st.lists(customizations(), max_size=3),
            },
        )
    )
