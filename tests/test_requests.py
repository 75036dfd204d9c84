"""A model request and its listing: what strict providers refuse, and what breaks a cache."""

from typing import Any

import attrs
import pytest
from hypothesis import given

from tests.strategies import toolsets
from toolscope.engine import PolicyEngine
from toolscope.listings import Listing
from toolscope.model import Agent, Annotations, Provider, Scope, Tool, ToolCall, Toolset
from toolscope.requests import ListingDiff, RequestCheck, RequestProblem

TOOLS = Toolset([Tool(name="read"), Tool(name="write"), Tool(name="search")])
ENGINE = PolicyEngine([])
HIDDEN = RequestProblem.FORCED_CHOICE_HIDDEN
EMPTY = RequestProblem.EMPTY_LIST
HISTORY = RequestProblem.HISTORY_NAMES_HIDDEN


def listing(*names: str, tools: Toolset = TOOLS) -> Listing:
    """The listing for an agent that names these tools."""
    return ENGINE.filter_tools(tools, Scope(agent=Agent(name="a", tools=frozenset(names))))


@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "any", "read"])
def test_a_request_that_is_right_is_sent_as_it_is(choice: str | None) -> None:
    """A choice that can be met, and a history of listed tools."""
    check = listing("read").check_request(tool_choice=choice, history_tool_names=["read", "read"])
    assert check == RequestCheck(tool_choice=choice)
    assert check.repairs == ()
    assert check.send_tools


def test_a_forced_choice_of_a_withheld_tool_becomes_auto() -> None:
    """It is found before the request is sent, for a tool that does not exist as well."""
    for choice in ("write", "unheard-of"):
        check = listing("read").check_request(tool_choice=choice)
        assert check == RequestCheck(problems=(HIDDEN,), tool_choice="auto")
        assert check.repairs == ("the forced tool is not listed: send the choice 'auto'",)


@pytest.mark.parametrize("choice", [None, "auto", "none", "required", "any", "read"])
def test_an_empty_list_is_sent_without_section_and_choice(choice: str | None) -> None:
    """Whatever the choice was; a forced one is reported too."""
    check = listing().check_request(tool_choice=choice)
    problems = (HIDDEN, EMPTY) if choice == "read" else (EMPTY,)
    assert check == RequestCheck(problems=problems, tool_choice=None, send_tools=False)
    assert check.repairs[-1] == (
        "no tool is listed: send no tool section and no choice, or the placeholder where the "
        "provider insists on a section"
    )


@pytest.mark.parametrize(
    ("choice", "sent"),
    [(None, None), ("auto", "auto"), ("none", "none"), ("required", None), ("read", None)],
)
def test_a_provider_that_insists_gets_a_placeholder(choice: str | None, sent: str | None) -> None:
    """It is inert: nothing forces the model to call it, and a call of it is ``tool_unknown``."""
    check = listing().check_request(
        tool_choice=choice, history_tool_names=["write"], needs_tools=True
    )
    assert EMPTY in check.problems
    assert (check.tool_choice, check.send_tools) == (sent, True)
    assert check.placeholder == "no_tool_is_available"
    decision = ENGINE.on_tool_call(ToolCall(name=check.placeholder), TOOLS, Scope())
    assert decision.failure is not None
    assert decision.failure.code == "tool_unknown"


def test_the_placeholder_is_the_name_of_no_tool() -> None:
    """Also where a withheld tool bears that very name."""
    tools = Toolset([Tool(name="no_tool_is_available"), Tool(name="no_tool_is_available_")])
    check = listing(tools=tools).check_request(needs_tools=True)
    assert check.placeholder == "no_tool_is_available__"


def test_a_listing_that_is_not_empty_needs_no_placeholder() -> None:
    """The provider has its section."""
    assert listing("read").check_request(needs_tools=True) == RequestCheck()


def test_history_that_names_hidden_tools_is_sent_as_text() -> None:
    """The names come in order, each once."""
    check = listing("read").check_request(
        history_tool_names=["search", "read", "write", "search", "gone"]
    )
    assert check == RequestCheck(problems=(HISTORY,), hidden_in_history=("search", "write", "gone"))
    assert check.repairs == (
        "the history names tools that are not listed: send those exchanges as text alone",
    )


def test_all_problems_are_reported_at_once() -> None:
    """Each with its repair, in one order."""
    check = listing().check_request(tool_choice="write", history_tool_names=["write"])
    assert check.problems == (HIDDEN, EMPTY, HISTORY)
    assert len(check.repairs) == 3


# --------------------------------------------------------------------------------------------
# How two listings differ
# --------------------------------------------------------------------------------------------

CHANGES: list[tuple[dict[str, Any], bool]] = [
    ({"description": "new"}, True),
    ({"title": "New"}, True),
    ({"input_schema": {"type": "object"}}, True),
    ({"output_schema": {}}, True),
    ({"annotations": Annotations(read_only=True)}, True),
    ({"name": "read_file"}, True),
    ({"meta": {"x": 1}}, False),
    ({"tags": ["net"]}, False),
]


@pytest.mark.parametrize(("change", "seen"), CHANGES)
def test_what_the_model_sees_of_a_tool_is_a_change(change: dict[str, Any], seen: bool) -> None:
    """Its name, texts, schemas and annotations; nothing else breaks a cache."""
    new = attrs.evolve(TOOLS[0], **change)
    before, after = listing("*"), listing("*", tools=Toolset([new, *TOOLS[1:]]))
    diff = before.diff(after)
    assert diff == (ListingDiff(changed=(new.name,)) if seen else ListingDiff())
    assert bool(diff) is seen
    assert (before.fingerprint != after.fingerprint) is seen


def test_tools_that_come_go_and_move_are_told_by_name() -> None:
    """In the order of the later listing, those that went in the order of the earlier."""
    more = Toolset([Tool(name="new"), TOOLS[2], TOOLS[0]])
    assert listing("*").diff(listing("*", tools=more)) == ListingDiff(
        added=("new",), removed=("write",), moved=("search", "read")
    )
    assert listing("read").diff(listing("write")) == ListingDiff(
        added=("write",), removed=("read",)
    )


def test_another_providers_tool_is_another_tool() -> None:
    """Though the model sees the same, the host executes something else."""
    other = Toolset([Tool(name="read", provider=Provider.client("c")), *TOOLS[1:]])
    assert listing("*").diff(listing("*", tools=other)) == ListingDiff(
        added=("read",), removed=("read",)
    )


@given(toolsets(), toolsets())
def test_listings_that_the_model_can_tell_apart_differ(one: Toolset, other: Toolset) -> None:
    """No difference is reported only where the fingerprints are equal."""
    before, after = ENGINE.filter_tools(one, Scope()), ENGINE.filter_tools(other, Scope())
    assert not before.diff(before)
    if not before.diff(after):
        assert before.fingerprint == after.fingerprint
