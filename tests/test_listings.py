"""Listings: what is in one, who withholds the rest, and how names are settled."""

from typing import Any

import pytest

from toolscope.engine import PolicyEngine
from toolscope.hookspecs import hookimpl
from toolscope.listings import Answer, Listing, make_listing
from toolscope.model import HOST, Provider, Scope, Tool, Toolset
from toolscope.requests import ListingDiff, RequestCheck, RequestProblem
from toolscope.testing import tool, toolset
from toolscope.verdicts import Failure, PluginVerdict, Unlisted, Verdict, deny

LATE = deny("it is late")
SCOPE = Scope(origin="user")


def withholding(plugin: str, *names: str, verdict: Verdict = LATE) -> object:
    """A plugin of this name that withholds these names."""

    class Withholding:
        name = plugin

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return {one: verdict for one in tools if one.name in names}

    return Withholding()


def listing_of(tools: Toolset, *plugins: object, prefer: str | None = None) -> Listing:
    """What may be shown of these tools."""
    return PolicyEngine(plugins).filter_tools(tools, SCOPE, prefer)


def test_an_answer_gives_its_verdict_on_a_tool_with_its_error() -> None:
    """And none on a tool that it does not name."""
    one, other = toolset("a", "b")
    answer = Answer("p", {one: LATE}, error="OSError: gone")
    assert answer.verdict(one) == PluginVerdict(plugin="p", verdict=LATE, error="OSError: gone")
    assert answer.verdict(other) is None
    assert Answer("p", {}).mask == 0


def test_a_listing_cannot_be_changed() -> None:
    """It is handed to everybody who asks, observers included."""
    listing: Any = listing_of(toolset("a"))
    with pytest.raises(AttributeError) as caught:
        listing.scope = Scope()
    assert str(caught.value) == "a Listing cannot be changed"
    with pytest.raises(AttributeError) as caught:
        del listing.scope
    assert str(caught.value) == "a Listing cannot be changed"


def test_withheld_tools_come_in_the_toolsets_order_with_all_their_verdicts() -> None:
    """Those of each tool in the order of plugin names; what is listed has none."""
    tools = toolset("a", "b", "c", "d")
    listing = listing_of(tools, withholding("y", "d", "a"), withholding("x", "a", "c"))
    of_x = PluginVerdict(plugin="x", verdict=LATE)
    of_y = PluginVerdict(plugin="y", verdict=LATE)
    assert list(listing.withheld.items()) == [
        (tools[0], (of_x, of_y)),
        (tools[2], (of_x,)),
        (tools[3], (of_y,)),
    ]
    assert [listing.verdicts(one) for one in tools] == [(of_x, of_y), (), (of_x,), (of_y,)]
    assert list(listing) == [tools[1]]
    assert (listing.toolset, listing.scope) == (tools, SCOPE)
    assert (listing.shadowed, dict(listing.collisions)) == (frozenset(), {})


def test_the_fingerprint_is_of_what_is_listed_in_order() -> None:
    """Of nothing else: what is withheld beside it changes nothing."""
    both = listing_of(toolset("a", "b")).fingerprint
    assert len(both) == 64
    assert listing_of(toolset("a", "b", "c"), withholding("p", "c")).fingerprint == both
    assert listing_of(toolset("b", "a")).fingerprint != both
    assert listing_of(toolset("a")).fingerprint != both


def test_a_lookup_gives_the_tool_or_why_there_is_none() -> None:
    """By name, or by name and provider; the same object each time for a name that exists."""
    desk, host = tool("a", "client:desk"), tool("b")
    listing = listing_of(Toolset([desk, host]), withholding("p", "b"))
    assert listing.lookup("a") is desk
    assert listing.lookup("a", desk.provider) is desk
    assert listing.resolve("a", desk.provider) is desk
    assert listing.resolve("a", HOST) is None
    assert listing.resolve("b") is None
    of_p = PluginVerdict(plugin="p", verdict=LATE)
    withheld = listing.lookup("b", HOST)
    again = "The same call cannot succeed here; do not repeat it."
    assert withheld == Unlisted(
        tool=host,
        verdicts=(of_p,),
        failure=Failure(
            code="tool_not_available",
            message=f"The tool 'b' is not available in this chat: it is late. {again}",
        ),
    )
    assert listing.lookup("b", HOST) is withheld
    unknown = listing.lookup("b", Provider.client("desk"))
    assert unknown == Unlisted(
        tool=None,
        verdicts=(),
        failure=Failure(
            code="tool_unknown", message=f"There is no tool named 'b' in this chat. {again}"
        ),
    )
    assert listing.lookup("b", Provider.client("desk")) is not unknown


def test_a_request_is_checked_against_what_is_listed() -> None:
    """The forced choice, the history, and whether a section has to be sent."""
    tools = toolset("a", "no_tool_is_available")
    some = listing_of(tools, withholding("p", "no_tool_is_available"))
    assert some.check_request() == RequestCheck()
    assert some.check_request(
        tool_choice="no_tool_is_available", history_tool_names=["a", "b"], needs_tools=True
    ) == RequestCheck(
        problems=(RequestProblem.FORCED_CHOICE_HIDDEN, RequestProblem.HISTORY_NAMES_HIDDEN),
        tool_choice="auto",
        hidden_in_history=("b",),
    )
    none = listing_of(tools, withholding("p", "a", "no_tool_is_available"))
    assert none.check_request() == RequestCheck(
        problems=(RequestProblem.EMPTY_LIST,), send_tools=False
    )
    assert none.check_request(tool_choice="auto", needs_tools=True) == RequestCheck(
        problems=(RequestProblem.EMPTY_LIST,),
        tool_choice="auto",
        placeholder="no_tool_is_available_",
    )


def test_what_changed_from_one_listing_to_another() -> None:
    """From this one to the other."""
    tools = toolset("a", "b")
    before, after = listing_of(tools), listing_of(tools, withholding("p", "b"))
    assert before.diff(after) == ListingDiff(removed=("b",))
    assert after.diff(before) == ListingDiff(added=("b",))
    assert not before.diff(before)


def test_only_listed_tools_are_in_a_listing() -> None:
    """Not those withheld, shadowed or of another toolset, and nothing that is no tool."""
    host, desk, late = tool("a"), tool("a", "client:desk"), tool("b")
    listing = listing_of(Toolset([host, desk, late]), withholding("p", "b"))
    listed: list[object] = [host, desk, late, tool("a"), "a", None]
    assert [one in listing for one in listed] == [True, False, False, False, False, False]
    assert repr(listing) == "<Listing of 1 of 3 tools>"


@pytest.mark.parametrize("size", [1, 7, 8, 9, 300])
def test_each_tool_of_a_long_list_has_its_own_place(size: int) -> None:
    """Each alone may be withheld, and each alone may stay."""
    tools = toolset(*(f"t{place}" for place in range(size)))
    for place in {0, size // 2, size - 1}:
        gone = listing_of(tools, withholding("p", f"t{place}"))
        assert list(gone) == [*tools[:place], *tools[place + 1 :]]
        others = [one.name for one in tools if one is not tools[place]]
        assert list(listing_of(tools, withholding("p", *others))) == [tools[place]]


DESK, PHONE, TV = (tool("copy", f"client:{one}") for one in ("desk", "phone", "tv"))
OWN = tool("copy")
FILES, WEB = tool("copy", "mcp:files"), tool("copy", "mcp:web")


@pytest.mark.parametrize(
    ("tools", "prefer", "stay"),
    [
        ([DESK, PHONE, TV, OWN], "phone", [OWN]),
        ([OWN, DESK, PHONE], None, [OWN]),
        ([DESK, PHONE, TV], "tv", [TV]),
        ([DESK, PHONE, TV], "phone", [PHONE]),
        ([DESK, PHONE, TV], None, [DESK]),
        ([TV, PHONE, DESK], "none", [TV]),
        ([FILES, DESK, WEB, PHONE], "phone", [FILES, WEB, PHONE]),
        ([FILES, WEB], None, [FILES, WEB]),
        ([FILES], None, [FILES]),
    ],
)
def test_who_keeps_a_shared_name(tools: list[Tool], prefer: str | None, stay: list[Tool]) -> None:
    """The host, the preferred client, the first client; servers keep it beside anybody."""
    other = tool("other")
    listing = listing_of(Toolset([*tools, other]), prefer=prefer)
    assert list(listing) == [*stay, other]
    assert listing.shadowed == frozenset(tools) - frozenset(stay)
    expected = {"copy": tuple(stay)} if len(stay) > 1 else {}
    assert dict(listing.collisions) == expected


def test_a_name_is_settled_among_the_survivors() -> None:
    """A tool that is withheld neither takes the name nor is shadowed."""
    quiet = Toolset([tool("other"), OWN, DESK, PHONE, FILES])
    mask = int.from_bytes(bytes([0, 1, 0, 0, 1]), "little")
    answer = Answer("p", {OWN: LATE, FILES: LATE}, mask=mask)
    listing = make_listing(quiet, SCOPE, (answer,), None)
    assert list(listing) == [quiet[0], DESK]
    assert listing.shadowed == {PHONE}
    assert dict(listing.collisions) == {}
    second = Answer("q", {DESK: LATE}, mask=int.from_bytes(bytes([0, 0, 1, 0, 0]), "little"))
    both = make_listing(quiet, SCOPE, (answer, second), None)
    assert list(both) == [quiet[0], PHONE]
    assert both.shadowed == frozenset()
