"""Which tools a rule is about: selectors, compiled together for all rules of a policy.

=======================  ==============================================================
selector                 selects tools
=======================  ==============================================================
``read_*``               whose name, as the model sees it, matches the pattern
``mcp:github/get_*``     of that provider whose own name matches (``host/``, ``model/``,
                         ``client:ID/``, ``mcp:ID/``; the provider may have wildcards)
``mcp:github/*``         of that provider, all
``client:*``             of any client, all
``tag:danger``           with a tag that matches
``hint:read_only``       whose hint is true (``read_only``, ``destructive``,
                         ``idempotent``, ``open_world``; ``=false`` for the opposite)
``name:tag:x``           whose name matches ``tag:x``, whatever it begins with
=======================  ==============================================================

A hint counts from the providers that the policy trusts; from others it is the worst case. A
generous selector also looks at the name at the provider and at former names.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

import attrs

from toolscope.errors import nearest
from toolscope.model import Annotations, Tool
from toolscope_rules.patterns import Pattern, PatternIndex

__all__ = ["Kind", "Selector", "SelectorIndex", "read_selector"]


class Kind(Enum):
    """What of a tool a selector looks at."""

    NAME = "name"
    IDENTITY = "identity"
    TAG = "tag"
    HINT = "hint"


@attrs.frozen(kw_only=True)
class Selector:
    """One selector, read. ``hint`` is the hint and the value it must have."""

    text: str
    kind: Kind
    pattern: Pattern | None = attrs.field(default=None, eq=False)
    hint: tuple[str, bool] | None = None


_HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
_WORST: Final = Annotations()
_PROVIDERS: Final = ("client:", "mcp:")


def read_selector(text: str) -> Selector:
    """Reads one selector.

    Raises:
        ValueError: Its pattern is not well formed, or there is no such hint.
    """
    if text.startswith("name:"):
        return Selector(text=text, kind=Kind.NAME, pattern=Pattern(text[5:]))
    if text.startswith("tag:"):
        return Selector(text=text, kind=Kind.TAG, pattern=Pattern(text[4:]))
    if text.startswith("hint:"):
        name, _, value = text[5:].partition("=")
        if name not in _HINTS or value not in ("", "true", "false"):
            near = nearest(name, _HINTS, 1)
            meant = f"; did you mean 'hint:{near[0]}'?" if near else ""
            raise ValueError(
                f"{text!r} is no hint; allowed are {', '.join(_HINTS)}, with '=false' for the "
                f"opposite{meant}"
            )
        return Selector(text=text, kind=Kind.HINT, hint=(name, value != "false"))
    if text.startswith((*_PROVIDERS, "host/", "model/")):
        provider, slash, own_name = text.partition("/")
        if own_name in ("", "*"):
            if slash and not own_name:
                raise ValueError(f"{text!r} names no tool; write '{provider}/*' for all of them")
            own_name = "**"
        return Selector(text=text, kind=Kind.IDENTITY, pattern=Pattern(f"{provider}/{own_name}"))
    return Selector(text=text, kind=Kind.NAME, pattern=Pattern(text))


class SelectorIndex:
    """Many selectors, each with its owners as bits, asked together about one tool."""

    def __init__(
        self,
        entries: Iterable[tuple[Selector, int]],
        *,
        generous: bool,
        trusted: Sequence[str] = (),
    ) -> None:
        self._generous = generous
        by_kind: dict[Kind, list[tuple[Pattern, int]]] = {kind: [] for kind in Kind}
        self._hints: list[tuple[str, bool, int]] = []
        for selector, owner in entries:
            if selector.hint is not None:
                self._hints.append((*selector.hint, owner))
            if selector.pattern is not None:
                by_kind[selector.kind].append((selector.pattern, owner))
        self._names, self._identities, self._tags = (
            PatternIndex(by_kind[kind], generous=generous)
            for kind in (Kind.NAME, Kind.IDENTITY, Kind.TAG)
        )
        self._trusted = PatternIndex(
            [(Pattern(provider), 1) for provider in trusted], generous=False
        )

    def owners(self, tool: Tool) -> int:
        """The owners of all selectors that select the tool, as bits."""
        found = 0
        if self._names:
            found |= self._names.owners(tool.name)
            if self._generous:
                if tool.own_name != tool.name:
                    found |= self._names.owners(tool.own_name)
                for name in tool.former_names:
                    found |= self._names.owners(name)
        if self._identities:
            found |= self._identities.owners(tool.identity)
            if self._generous:
                for name in (tool.name, *tool.former_names):
                    found |= self._identities.owners(f"{tool.provider}/{name}")
        if self._tags:
            for tag in tool.tags:
                found |= self._tags.owners(tag)
        if self._hints:
            trusted = self._trusted.owners(str(tool.provider))
            annotations = tool.annotations if trusted else _WORST
            for name, value, owner in self._hints:
                if getattr(annotations, name) is value:
                    found |= owner
        return found
