"""What a listing has to do with a model request: its forced choice, its history, its cache."""

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final

import attrs

from toolscope.model import Tool

__all__ = ["ListingDiff", "RequestCheck", "RequestProblem"]


class RequestProblem(StrEnum):
    """What is wrong with a request before it is sent.

    ``FORCED_CHOICE_HIDDEN``: it forces a tool that is not listed. ``EMPTY_LIST``: it has no tool to
    send. ``HISTORY_NAMES_HIDDEN``: its history holds calls of tools that are not listed.
    """

    FORCED_CHOICE_HIDDEN = "forced_choice_hidden"
    EMPTY_LIST = "empty_list"
    HISTORY_NAMES_HIDDEN = "history_names_hidden"


_PLACEHOLDER: Final = "no_tool_is_available"

_MODES: Final = frozenset({"auto", "none", "required", "any"})
_FORCING_MODES: Final = frozenset({"required", "any"})


@attrs.frozen(kw_only=True)
class RequestCheck:
    """A request as it should be sent, and what was wrong with it.

    Attributes:
        problems: What was found, each once.
        tool_choice: The choice to send; None = leave it out.
        hidden_in_history: Names in the history that are not listed, in order. Send those exchanges
            as text alone.
        send_tools: False: leave the tool section out of the request.
        placeholder: The name of an inert tool to send instead of an empty section, where the
            provider insists on one; a call of it is a call of an unknown tool. None = none needed.
    """

    problems: tuple[RequestProblem, ...] = ()
    tool_choice: str | None = None
    hidden_in_history: tuple[str, ...] = ()
    send_tools: bool = True
    placeholder: str | None = None

    @property
    def repairs(self) -> tuple[str, ...]:
        """What to do about each problem, one sentence each."""
        return tuple(_REPAIRS[problem] for problem in self.problems)


_REPAIRS: Final = {
    RequestProblem.FORCED_CHOICE_HIDDEN: "the forced tool is not listed: send the choice 'auto'",
    RequestProblem.EMPTY_LIST: "no tool is listed: send no tool section and no choice, or the "
    "placeholder where the provider insists on a section",
    RequestProblem.HISTORY_NAMES_HIDDEN: "the history names tools that are not listed: send those "
    "exchanges as text alone",
}


def check_request(
    names: frozenset[str],
    taken: Container[str],
    tool_choice: str | None,
    history_tool_names: Iterable[str],
    needs_tools: bool,
) -> RequestCheck:
    """See `toolscope.listings.Listing.check_request`; ``taken`` holds the names of all tools."""
    problems = []
    choice = tool_choice
    forced = tool_choice is not None and tool_choice not in _MODES
    if forced and tool_choice not in names:
        problems.append(RequestProblem.FORCED_CHOICE_HIDDEN)
        choice = "auto"
    if not names:
        problems.append(RequestProblem.EMPTY_LIST)
        choice = None
    hidden = tuple(dict.fromkeys(name for name in history_tool_names if name not in names))
    placeholder = None
    if hidden:
        problems.append(RequestProblem.HISTORY_NAMES_HIDDEN)
    if not names and needs_tools:
        placeholder = _PLACEHOLDER
        while placeholder in taken:
            placeholder += "_"
        choice = None if tool_choice in _FORCING_MODES or forced else tool_choice
    return RequestCheck(
        problems=tuple(problems),
        tool_choice=choice,
        hidden_in_history=hidden,
        send_tools=bool(names) or placeholder is not None,
        placeholder=placeholder,
    )


@attrs.frozen(kw_only=True)
class ListingDiff:
    """Why two listings have different fingerprints; by names, in the order of the listing.

    ``added`` and ``removed`` are names that only one of them has, ``changed`` those whose text,
    schema or annotations differ, ``moved`` those that stand in another order among the names that
    both have.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.moved)


def diff(before: Iterable[Tool], after: Iterable[Tool]) -> ListingDiff:
    """See `toolscope.listings.Listing.diff`. Tools are told apart by provider and own name."""
    old = {tool.identity: tool for tool in before}
    new = {tool.identity: tool for tool in after}
    both_before = [identity for identity in old if identity in new]
    both_after = [identity for identity in new if identity in old]
    return ListingDiff(
        added=tuple(tool.name for identity, tool in new.items() if identity not in old),
        removed=tuple(tool.name for identity, tool in old.items() if identity not in new),
        changed=tuple(
            new[identity].name
            for identity in both_after
            if old[identity].digest != new[identity].digest
        ),
        moved=tuple(
            new[after_].name
            for before_, after_ in zip(both_before, both_after, strict=True)
            if before_ != after_
        ),
    )
