"""Every exception that toolscope raises, and what the caller can do about it.

::

    ToolscopeError
    ├── ConfigurationError     a configuration or a plugin's settings are wrong: mend the file
    ├── PluginError            an object is no acceptable plugin: mend the plugin
    ├── ToolsetError           the host's tools contradict each other: mend the host
    ├── ApprovalError          an approval cannot be read or used: ask again
    ├── LedgerError            a saved ledger or a store cannot be used: treat its calls as settled
    ├── ScopeError             a scope is missing or unreadable: show nothing until it is there
    ├── RecursionRefused       a hook asked the engine that is asking it: decide without the engine
    └── WireError              a protocol document is broken: mend the sender

A rule that fails never surfaces here: the engine turns it into a deny (law L4).
"""

from collections.abc import Iterable, Sequence

import attrs

__all__ = [
    "ApprovalError",
    "ConfigurationError",
    "Fault",
    "LedgerError",
    "PluginError",
    "RecursionRefused",
    "ScopeError",
    "ToolscopeError",
    "ToolsetError",
    "WireError",
    "nearest",
]


def nearest(name: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The names among ``known`` that are most like ``name``, best first; at most ``count``.

    Letter case does not count. Names of more than 200 characters are never compared: likeness
    costs time that grows with the product of the lengths.
    """
    from difflib import get_close_matches

    if len(name) > _LONGEST_COMPARED:
        return ()
    by_folded: dict[str, list[str]] = {}
    for one in known:
        if len(one) <= _LONGEST_COMPARED:
            by_folded.setdefault(one.casefold(), []).append(one)
    close = get_close_matches(name.casefold(), by_folded, n=count, cutoff=0.6)
    return tuple(one for folded in close for one in by_folded[folded])[:count]


_LONGEST_COMPARED = 200


@attrs.frozen(kw_only=True)
class Fault:
    """One thing that is wrong in a document, with the place and the cure.

    ``path`` is the place inside the document (``plugins.rules.mode``, ``$.chats[0].origin``),
    ``source`` the file or entry it came from, ``problem`` what is wrong (it quotes the value) and
    ``cure`` what is allowed, or what to do.
    """

    path: str
    problem: str
    cure: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.source, self.path) if part)
        text = f"{place}: {self.problem}" if place else self.problem
        return f"{text}; {self.cure}" if self.cure else text


class ToolscopeError(Exception):
    """The root of all errors of this package."""


class _FaultsError(ToolscopeError):
    """An error that reports every fault of one document at once."""

    def __init__(self, title: str, faults: Sequence[Fault]) -> None:
        self.title = title
        self.faults = tuple(faults)
        super().__init__(title, self.faults)

    def __str__(self) -> str:
        if len(self.faults) == 1:
            return f"{self.title}: {self.faults[0]}"
        return "\n".join(
            [f"{self.title}: {len(self.faults)} faults", *(f"  {f}" for f in self.faults)]
        )


class ConfigurationError(_FaultsError):
    """The configuration, or what it selects, cannot be used. ``faults`` lists all that is wrong."""


class WireError(_FaultsError):
    """A protocol document cannot be read. ``faults`` lists all that is wrong, by JSON path."""


class PluginError(ToolscopeError):
    """An object is not acceptable as a plugin. ``plugin`` is its name."""

    def __init__(self, plugin: str, problem: str) -> None:
        self.plugin = plugin
        self.problem = problem
        super().__init__(plugin, problem)

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.problem}"


class ToolsetError(ToolscopeError):
    """The tools of a session contradict each other, or a tool is not well formed."""


class ApprovalError(ToolscopeError):
    """An approval is not well formed, cannot be read, or answers a call that waits for none."""


class LedgerError(ToolscopeError):
    """What a ledger remembers cannot be read or kept. No call was permitted on its account."""


class ScopeError(ToolscopeError):
    """A scope is missing, unreadable or not well formed; there is no default in its place."""


class RecursionRefused(ToolscopeError):  # noqa: N818  (a refusal that the rule author reads)
    """A hook asked the engine that is asking it. Decide from the hook's own arguments."""
