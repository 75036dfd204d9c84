"""The vocabulary of the cases. A word that is not here fails the case: it is never skipped."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["EXPECTED", "POLICY", "RULE", "UnknownWord", "check_words", "choose", "policy"]


class UnknownWord(Exception):
    """A case uses a word that the runner does not know."""


STORY: Final = {
    "note", "asks", "mounted", "mounts", "made_by", "restored", "visible_to", "deferred",
    "launch_options", "new_context_object", "why",
}  # fmt: skip
"""Words that only tell the story."""

CASE: Final = {"tools", "context", "policy", "events", "expected"}
TOOL: Final = {
    "name", "from", "own_name", "availability", "role", "tags", "annotations", "former_names",
    "description", "input_schema",
}  # fmt: skip
CONTEXT: Final = {"chats", "agents", "clients", "grants", "trusted_servers", "grace_s"}
CHAT: Final = {"origin", "parent", "agent", "approver", "history"}
AGENT: Final = {"allow", "deny"}
GRANT: Final = {"tool", "server", "given_in", "reach", "args"}
POLICY: Final = {"default", "rules", "limits", "audit"}
RULE: Final = {
    "id", "effect", "tool", "server", "agent", "reach", "declared_in", "unless_tag", "annotation",
    "only_trusted", "reason", "timeout_s", "args",
}  # fmt: skip
LIMIT: Final = {"tool", "max", "per"}
EVENT: Final[Mapping[str, set[str]]] = {
    "list": {"chat", "tool_choice", "callback"},
    "filter_again": {"chat", "callback"},
    "search_result": {"chat", "candidates", "callback"},
    "check_request": {"chat", "tool_choice", "provider_needs_nonempty_tools", "callback"},
    "call": {
        "chat", "call_id", "tool", "args", "server", "via", "callback", "rewritten_to",
    },
    "calls": {"chat", "calls", "callback"},
    "answer": {"call_id", "answer", "reach", "args", "chat"},
    "answers": {"answers"},
    "callback_answers_late": {"call_id", "answer"},
    "cancel": {"call_id"},
    "result": {"call_id"},
    "client_completes": {"client", "call_id"},
    "endpoint_call": {"server", "tool", "args"},
    "client_contributes": {"client", "tools"},
    "client_leaves": {"client"},
    "tools_arrive": {"tools"},
    "change_agent": {"agent", "allow"},
    "time_passes": {"seconds"},
    "end_chat": {"chat"},
    "save_and_restore": {"chat"},
    "restore": {"chat", "saved_scope"},
    "load_policy": {"known_tools", "mode", "policy"},
}  # fmt: skip
EXPECTED: Final = {
    "listed", "hidden", "collision", "decision", "result", "same_as", "decisions", "results",
    "result_for", "executions", "results_per_call", "state", "outcome", "names", "suggests",
    "errors_name", "error_names", "flags", "request_tools", "tool_choice", "warning",
    "error_before_request", "retryable", "repeat", "prompts", "within_s", "reason_kind",
    "message_has", "message_lacks", "message_names_reset", "audit_has", "audit_lacks",
    "client_asked", "executed_by", "refused", "placeholder", "dropped_extra", "listed_distinct",
}  # fmt: skip


def check_words(case: Mapping[str, Any]) -> None:
    """Raises `UnknownWord` for the first key that is not known."""
    _keys("the case", case, CASE)
    for tool in case.get("tools", ()):
        _keys("a tool", tool, TOOL)
    context = case.get("context", {})
    _keys("the context", context, CONTEXT)
    _all("a chat", context.get("chats", {}).values(), CHAT)
    _all("an agent", context.get("agents", {}).values(), AGENT)
    _all("a grant", context.get("grants", ()), GRANT)
    policy(case.get("policy", {}))
    for event in case.get("events", ()):
        do = choose("an event", event.get("do"), EVENT)
        _keys(f"the event {do}", event, EVENT[do] | {"id", "do"})
        _all("a call", event.get("calls", ()), EVENT["call"] | {"id", "do"})
    for expected in case.get("expected", ()):
        _keys("expected", expected, EXPECTED | {"event", "acceptable"})
        _all("acceptable", expected.get("acceptable", ()), EXPECTED)


def policy(table: Mapping[str, Any]) -> None:
    """The same for a policy."""
    _keys("the policy", table, POLICY)
    _all("a rule", table.get("rules", ()), RULE)
    _all("a limit", table.get("limits", ()), LIMIT)


def choose(what: str, word: Any, known: Iterable[str]) -> str:
    """The word, if it is one of those that are known."""
    if not isinstance(word, str) or word not in known:
        raise UnknownWord(f"{what}: {word!r}")
    return word


def _keys(what: str, table: Mapping[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known and key not in STORY:
            raise UnknownWord(f"{what}: {key!r}")


def _all(what: str, tables: Iterable[Mapping[str, Any]], known: set[str]) -> None:
    for table in tables:
        _keys(what, table, known)
