"""The laws of toolscope once more, written from the design alone.

Nothing here imports the package: strings and dicts go in, strings and dicts come out. Where the
engine and this file disagree, one of them has misread the design.

A tool is ``{"name", "provider", "availability"}`` (availability None = absent), a chat is
``{"origin", "tools", "can_ask"}`` (origin None = absent, tools None = no allowlist), a plugin is
``{"name", "list", "call"}`` where both answers are one of the words in `LIST_ANSWERS` and
`CALL_ANSWERS`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LIST_ANSWERS = ("nothing", "deny", "ask", "raise", "wrong")
CALL_ANSWERS = ("nothing", "ask", "deny", "raise", "wrong", "hang")

# What an answer amounts to. In a listing only a deny is an answer, so an ask is a fault there.
_LISTED_AS = {
    "nothing": "allow",
    "deny": "deny",
    "ask": "fault",
    "raise": "fault",
    "wrong": "fault",
}
_CALLED_AS = {
    "nothing": "allow",
    "ask": "ask",
    "deny": "deny",
    "raise": "fault",
    "wrong": "fault",
    "hang": "fault",
}


def in_tool_chat(origin: str | None, absent_origin: str = "user") -> bool:
    """Whether a chat counts as spawned by a tool; a kind nobody knows counts as one."""
    kind = absent_origin if origin is None else origin
    return kind not in ("user", "fork", "sideChat")


def available(availability: str | None, *, tool_chat: bool) -> bool:
    """Whether a tool may be used here; an availability nobody knows is as narrow as userChats."""
    return availability in (None, "session") or not tool_chat


def allowlisted(tool: Mapping[str, Any], tools: frozenset[str] | None) -> bool:
    """Whether an agent's own list names the tool, by model-facing name, provider or wildcard."""
    if tools is None:
        return True
    own = tool.get("own_name", tool["name"])
    provider = tool["provider"]
    for entry in tools:
        if entry == "*":
            return True
        head, slash, tail = entry.partition("/")
        if head.startswith(("client:", "mcp:")) or (slash and head in ("host", "model")):
            if head == provider and tail in ("*", own):
                return True
        elif entry == tool["name"]:
            return True
    return False


def judge(
    tool: Mapping[str, Any],
    chat: Mapping[str, Any],
    plugins: Sequence[Mapping[str, str]] = (),
    *,
    absent_origin: str = "user",
) -> dict[str, Any]:
    """Say what becomes of a tool in a chat, and of one call of it.

    Returns ``{"listed", "effect", "code", "provider", "named"}``: `code` is None unless denied,
    `named` holds the plugins whose verdicts count for the code (or that ask).
    """
    denies = set()
    if not available(tool["availability"], tool_chat=in_tool_chat(chat["origin"], absent_origin)):
        denies.add("availability")
    if not allowlisted(tool, chat["tools"]):
        denies.add("allowlist")
    faults = set()
    for plugin in plugins:
        match _LISTED_AS[plugin["list"]]:
            case "deny":
                denies.add(plugin["name"])
            case "fault":
                faults.add(plugin["name"])
    if denies or faults:  # L3: withheld, so no rule is asked about the call
        code = "tool_not_available" if denies else "policy_error"
        return _denied(code, denies or faults, listed=False)

    asks = set()
    for plugin in plugins:
        match _CALLED_AS[plugin["call"]]:
            case "deny":
                denies.add(plugin["name"])
            case "ask":
                asks.add(plugin["name"])
            case "fault":
                faults.add(plugin["name"])
    if denies:
        return _denied("tool_denied", denies, listed=True)
    if faults:
        return _denied("policy_error", faults, listed=True)
    if asks and not chat["can_ask"]:
        return _denied("approval_unavailable", asks, listed=True)
    effect = "ask" if asks else "allow"
    return {
        "listed": True,
        "effect": effect,
        "code": None,
        "provider": tool["provider"],
        "named": frozenset(asks),
    }


def _denied(code: str, named: Iterable[str], *, listed: bool) -> dict[str, Any]:
    return {
        "listed": listed,
        "effect": "deny",
        "code": code,
        "provider": None,
        "named": frozenset(named),
    }


def route(survivors: Sequence[Mapping[str, Any]], prefer: str | None) -> dict[str, Any]:
    """Say which of the tools that were not withheld keep their names.

    Returns ``{"listed": indices, "shadowed": indices, "collisions": names}``.
    """
    listed: list[int] = []
    shadowed: list[int] = []
    collisions: list[str] = []
    for name in dict.fromkeys(tool["name"] for tool in survivors):
        offers = [i for i, tool in enumerate(survivors) if tool["name"] == name]
        ordered = [i for i in offers if _ranked(survivors[i])]
        unordered = [i for i in offers if not _ranked(survivors[i])]
        owner = min(((_rank(survivors[i], prefer), i) for i in ordered), default=(0, -1))[1]
        # A provider that offers two tools of one name keeps both: they collide.
        winner = [i for i in ordered if survivors[i]["provider"] == survivors[owner]["provider"]]
        left = sorted(winner + unordered)
        listed += left
        shadowed += [i for i in ordered if i not in winner]
        if len(left) > 1:
            collisions.append(name)
    return {
        "listed": sorted(listed),
        "shadowed": sorted(shadowed),
        "collisions": sorted(collisions),
    }


def _rank(tool: Mapping[str, Any], prefer: str | None) -> int:
    if tool["provider"] == "host":
        return 0
    return 1 if tool["provider"] == f"client:{prefer}" else 2


def _ranked(tool: Mapping[str, Any]) -> bool:
    return bool(tool["provider"] == "host" or tool["provider"].startswith("client:"))
