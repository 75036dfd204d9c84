"""Listings: the outcome for one tool list, and how names are settled among its tools."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Never, overload

import attrs

from toolscope._frozen import digest
from toolscope.model import Provider, ProviderKind, Scope, Tool, Toolset
from toolscope.verdicts import PluginVerdict, Unlisted, Verdict, why_unlisted

if TYPE_CHECKING:
    from toolscope.requests import ListingDiff, RequestCheck

__all__ = ["Answer", "Listing", "make_listing"]


@attrs.frozen(eq=False, slots=False)
class Answer:
    """What one ``filter_tools`` hookimpl said of one toolset: what it withholds, and why."""

    plugin: str
    verdicts: Mapping[Tool, Verdict]
    error: str | None = None
    mask: int = attrs.field(default=0, repr=False)
    """One byte a tool, in the toolset's order; 1 = withheld. OR of masks is union of answers."""

    def verdict(self, tool: Tool) -> PluginVerdict | None:
        """The verdict on this tool, or None where it is not withheld by this plugin."""
        verdict = self.verdicts.get(tool)
        if verdict is None:
            return None
        return PluginVerdict(plugin=self.plugin, verdict=verdict, error=self.error)


class Listing(Sequence[Tool]):
    """The outcome for one tool list: the tools to send, in the toolset's order.

    Attributes:
        toolset: All the tools that were asked about.
        scope: The scope it was made for.
        shadowed: Tools that no rule withholds but that lost their name to another provider's tool.
        collisions: Names that more than one listed tool bears. The adapter qualifies them; a call
            that names no provider is denied.
    """

    toolset: Toolset
    scope: Scope
    shadowed: frozenset[Tool]
    collisions: Mapping[str, tuple[Tool, ...]]
    _answers: tuple[Answer, ...]
    _tools: tuple[Tool, ...]
    _found: dict[tuple[str, Provider | None], Tool | Unlisted]

    def __init__(
        self,
        *,
        toolset: Toolset,
        scope: Scope,
        answers: tuple[Answer, ...],
        tools: tuple[Tool, ...],
        shadowed: frozenset[Tool],
        collisions: Mapping[str, tuple[Tool, ...]],
    ) -> None:
        # An engine hands one listing to everybody who asks, observers included.
        vars(self).update(
            toolset=toolset,
            scope=scope,
            shadowed=shadowed,
            collisions=collisions,
            _answers=answers,
            _tools=tools,
            _found={},
        )

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Listing cannot be changed")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError("a Listing cannot be changed")

    def verdicts(self, tool: Tool) -> tuple[PluginVerdict, ...]:
        """Who withholds this tool and why, in order of plugin names; empty where nobody does."""
        found = (answer.verdict(tool) for answer in self._answers)
        return tuple(verdict for verdict in found if verdict is not None)

    @cached_property
    def withheld(self) -> Mapping[Tool, tuple[PluginVerdict, ...]]:
        """Every withheld tool with its verdicts, in the toolset's order. Made on first use."""
        withheld = {tool for answer in self._answers for tool in answer.verdicts}
        return MappingProxyType(
            {tool: self.verdicts(tool) for tool in self.toolset if tool in withheld}
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of what the model sees, in order. Equal inputs give it in any process."""
        return digest([tool.digest for tool in self._tools])

    def resolve(self, name: str, provider: Provider | None = None) -> Tool | None:
        """The one listed tool of this name (and provider); None for none, and for several."""
        found = self.lookup(name, provider)
        return found if isinstance(found, Tool) else None

    def lookup(self, name: str, provider: Provider | None = None) -> "Tool | Unlisted":
        """The listed tool that a call of this name is about, or why there is none."""
        key = (name, provider)
        found = self._found.get(key)
        if found is None:
            candidates = tuple(_candidates(self.toolset, name, provider))
            listed = [tool for tool in candidates if tool in self]
            if len(listed) == 1:
                found = listed[0]
            else:
                denies = [verdict for tool in candidates for verdict in self.verdicts(tool)]
                found = why_unlisted(name, candidates, listed, denies)
            # Only names that exist are kept, so a model that makes names up fills no memory.
            if candidates:
                self._found[key] = found
        return found

    def check_request(
        self,
        *,
        tool_choice: str | None = None,
        history_tool_names: Iterable[str] = (),
        needs_tools: bool = False,
    ) -> "RequestCheck":
        """Looks at a model request before it is sent with this listing.

        ``tool_choice`` is ``auto``, ``none``, ``required``, ``any`` or the name of a tool that the
        request forces; ``history_tool_names`` are the tools that its history calls. With
        ``needs_tools`` the provider refuses a request without a tool section. Strict providers
        refuse what is found here, so the check says what to send instead.
        """
        from toolscope.requests import check_request

        names = frozenset(tool.name for tool in self._tools)
        taken = self.toolset.names
        return check_request(names, taken, tool_choice, history_tool_names, needs_tools)

    def diff(self, other: "Listing") -> "ListingDiff":
        """What changed from here to ``other``: why a prompt cache broke. Falsy = nothing."""
        from toolscope.requests import diff

        return diff(self._tools, other)

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tool, ...]: ...
    def __getitem__(self, index: int | slice) -> Tool | tuple[Tool, ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __contains__(self, tool: object) -> bool:
        return (
            isinstance(tool, Tool)
            and tool in self.toolset
            and tool not in self.shadowed
            and not any(tool in answer.verdicts for answer in self._answers)
        )

    def __repr__(self) -> str:
        return f"<Listing of {len(self._tools)} of {len(self.toolset)} tools>"


def _candidates(toolset: Toolset, name: str, provider: Provider | None) -> Iterable[Tool]:
    named = toolset.by_name(name)
    return named if provider is None else [tool for tool in named if tool.provider == provider]


def make_listing(
    toolset: Toolset, scope: Scope, answers: tuple[Answer, ...], prefer: str | None
) -> Listing:
    """Combines the answers about one toolset: a tool that any of them names is withheld.

    Names are settled among the survivors only (AHP: filter each contribution, then route).
    ``prefer`` is the id of the client that started the turn.
    """
    denied = 0
    for answer in answers:
        denied |= answer.mask
    if denied:
        size = len(toolset)
        listed = (toolset.ones ^ denied).to_bytes(size, "little")
        tools = tuple(compress(toolset, listed))
    else:
        tools = toolset[:]
    shadowed: set[Tool] = set()
    collisions: dict[str, tuple[Tool, ...]] = {}
    if toolset.shared_names:
        names = toolset.names
        positions = toolset.positions
        for name in toolset.shared_names:
            left = [tool for tool in names[name] if not denied >> 8 * positions[tool] & 1]
            stay = _route(left, prefer)
            shadowed.update(tool for tool in left if tool not in stay)
            if len(stay) > 1:
                collisions[name] = stay
        if shadowed:
            tools = tuple(tool for tool in tools if tool not in shadowed)
    return Listing(
        toolset=toolset,
        scope=scope,
        answers=answers,
        tools=tools,
        shadowed=frozenset(shadowed),
        collisions=MappingProxyType(collisions),
    )


_ORDERED: Final = (ProviderKind.HOST, ProviderKind.CLIENT)
"""Providers among whom a name has an owner: the host, the preferred client, the first client."""


def _route(tools: Sequence[Tool], prefer: str | None) -> tuple[Tool, ...]:
    """The tools of one name that keep it. An MCP server's has no order with anybody else's."""
    ordered = [tool for tool in tools if tool.provider.kind in _ORDERED]
    if not ordered:
        return tuple(tools)

    def rank(tool: Tool) -> int:
        if tool.provider.kind is ProviderKind.HOST:
            return 0
        return 1 if tool.provider.id == prefer else 2

    owner = min(ordered, key=rank).provider
    return tuple(
        tool for tool in tools if tool.provider.kind not in _ORDERED or tool.provider == owner
    )
