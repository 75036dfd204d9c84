"""Scopes: what a spawned chat inherits, the saved form, and the scope of the running tool."""

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolscope.errors import ScopeError
from toolscope.model import UNKNOWN, Agent, Ancestor, Origin, Scope
from toolscope.scopes import aiterate, current, for_run, inside, iterate

USER = Scope(
    origin="user",
    agent=Agent(name="lead", tools=["read"]),
    can_ask=True,
    subject="ann",
    attributes={"team": "core", "rings": ["0", "1"]},
)


def test_a_spawned_chat_is_a_tools_chat_whatever_it_declares() -> None:
    """Origin and ancestry are not its to declare; agent and allowlist are its own."""
    declared = Scope(
        origin="user",
        agent=Agent(name="worker"),
        ancestry=[Ancestor(origin="user")],
        can_ask=True,
        subject="bob",
        attributes={"team": "docs"},
    )
    assert USER.child(declared) == Scope(
        origin=Origin.TOOL,
        agent=Agent(name="worker"),
        ancestry=[Ancestor(origin="user", agent="lead", attributes=USER.attributes)],
        can_ask=True,
        subject="bob",
        attributes={"team": "docs", "rings": ["0", "1"]},
    )


def test_a_spawned_chat_inherits_what_it_does_not_declare() -> None:
    """Subject and attributes; not the agent, and not that somebody can be asked."""
    child = USER.child()
    assert child == Scope(
        origin="tool",
        ancestry=[Ancestor(origin="user", agent="lead", attributes=USER.attributes)],
        subject="ann",
        attributes=USER.attributes,
    )
    grandchild = child.child()
    assert [one.origin for one in grandchild.ancestry if one is not UNKNOWN] == ["tool", "user"]
    assert grandchild.ancestry[0] == Ancestor(origin="tool", attributes=USER.attributes)


@pytest.mark.parametrize(
    ("here", "declared", "asks"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_a_spawned_chat_can_ask_only_if_both_can(here: bool, declared: bool, asks: bool) -> None:
    """An ask that is raised there has to pass through here."""
    assert Scope(can_ask=here).child(Scope(can_ask=declared)).can_ask is asks


def test_an_ancestry_that_was_cut_off_stays_cut_off() -> None:
    """UNKNOWN ends the ancestry of every chat below, too."""
    assert Scope(ancestry=[UNKNOWN]).child().ancestry == (Ancestor(), UNKNOWN)


# --------------------------------------------------------------------------------------------
# The saved form
# --------------------------------------------------------------------------------------------

BARE: dict[str, Any] = {"schema": 1, "can_ask": False, "ancestry": [], "attributes": {}}


def test_the_saved_form_is_stable() -> None:
    """Hosts keep it: absent parts are left out, sets are sorted, no state is lost."""
    assert Scope().to_json() == BARE
    assert Scope.from_json(BARE) == Scope()
    scope = USER.child(Scope(agent=Agent(name="w", tools=["b", "a"]), origin="user"))
    assert scope.to_json() == {
        "schema": 1,
        "origin": "tool",
        "agent": {"name": "w", "tools": ["a", "b"]},
        "ancestry": [
            {
                "origin": "user",
                "agent": "lead",
                "attributes": {"team": "core", "rings": ["0", "1"]},
            }
        ],
        "can_ask": False,
        "subject": "ann",
        "attributes": {"team": "core", "rings": ["0", "1"]},
    }
    cut = Scope(ancestry=[Ancestor(), UNKNOWN])
    assert cut.to_json()["ancestry"] == [{"attributes": {}}, "unknown"]
    assert Scope.from_json(json.loads(json.dumps(cut.to_json()))) == cut


def changed(**members: Any) -> dict[str, Any]:
    return {**BARE, **members}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in BARE.items() if name not in names}


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        (None, "the saved scope is missing; show no tools until the host sets one"),
        ({}, "the saved scope has schema None; this version reads 1"),
        ("{}", "the saved scope is a str, not a JSON object"),
        ([], "the saved scope is a list, not a JSON object"),
        (changed(schema=2), "the saved scope has schema 2; this version reads 1"),
        (
            changed(orign="tool"),
            "the saved scope has unknown members ['orign']; it was not saved by this version",
        ),
        (without("can_ask"), "the saved scope lacks ['can_ask']; it was not saved whole"),
        (
            without("ancestry", "attributes"),
            "the saved scope lacks ['ancestry', 'attributes']; it was not saved whole",
        ),
        (
            changed(origin=None),
            "the saved scope has null under 'origin'; absent members are left out",
        ),
        (
            changed(subject=None),
            "the saved scope has null under 'subject'; absent members are left out",
        ),
        (changed(origin=1), "origin is a int; allowed is text, or None for absent"),
        (changed(subject=1), "the saved scope cannot be read: subject is a int, not text"),
        (changed(can_ask="false"), "can_ask is 'false'; allowed are True and False"),
        (changed(can_ask=None), "can_ask is None; allowed are True and False"),
        (changed(agent=None), "its agent is a NoneType, not a JSON object"),
        (changed(agent={}), "the saved scope's agent has no name"),
        (
            changed(agent={"name": "a", "tool": []}),
            "its agent has unknown members ['tool']; it was not saved by this version",
        ),
        (
            changed(agent={"name": "a", "tools": None}),
            "the saved scope's agent has tools that are no array",
        ),
        (
            changed(agent={"name": "a", "tools": "read"}),
            "the saved scope's agent has tools that are no array",
        ),
        (
            changed(agent={"name": "a", "tools": [[]]}),
            "the saved scope's agent has a tool that is no text",
        ),
        (changed(ancestry=None), "the saved scope has an ancestry that is no array"),
        (changed(ancestry={}), "the saved scope has an ancestry that is no array"),
        (changed(ancestry=["unkown"]), "an ancestor is a str, not a JSON object"),
        (
            changed(ancestry=["unknown", {"attributes": {}}]),
            "an ancestry is a row of Ancestor values; UNKNOWN may only end it",
        ),
        (
            changed(ancestry=[{}]),
            "the saved scope has attributes that are missing or no JSON object",
        ),
        (
            changed(ancestry=[{"attributes": {}, "agent": None}]),
            "the saved scope has null under 'agent'; absent members are left out",
        ),
        (
            changed(ancestry=[{"attributes": {}, "agent": 1}]),
            "the saved scope cannot be read: agent is a int, not text",
        ),
        (
            changed(attributes=[]),
            "the saved scope has attributes that are missing or no JSON object",
        ),
        (
            changed(attributes={"a": 1}),
            "attribute 'a' is a int; allowed is a text or a set of texts",
        ),
        (
            changed(attributes={"a": [[]]}),
            "attribute 'a' is a list; allowed is a text or a set of texts",
        ),
    ],
)
def test_a_saved_scope_that_is_missing_or_unreadable_is_an_error(
    saved: object, problem: str
) -> None:
    """Never a default: a chat whose origin was lost would count as the user's."""
    with pytest.raises(ScopeError) as caught:
        Scope.from_json(saved)
    assert str(caught.value) == problem


# --------------------------------------------------------------------------------------------
# The current scope
# --------------------------------------------------------------------------------------------


def test_outside_of_any_tool_there_is_no_scope() -> None:
    """And a run has the scope it declares."""
    assert current() is None
    assert for_run() == Scope()
    assert for_run(USER) is USER


def test_a_run_inside_a_tool_is_its_child() -> None:
    """Whatever the inner agent declares; the scope before comes back, also after an error."""
    with inside(USER) as scope:
        assert current() is scope is USER
        assert for_run() == USER.child()
        assert for_run(Scope(origin="user", can_ask=True)) == USER.child(Scope(can_ask=True))
        with inside(USER.child()):
            assert current() == USER.child()
            assert for_run() == USER.child().child()
        assert current() is USER
        with pytest.raises(KeyError), inside(USER.child()):
            raise KeyError
        assert current() is USER
    assert current() is None


def test_tasks_inherit_the_scope_and_keep_it_to_themselves() -> None:
    """A task that is started inside is inside; what it sets is seen by nobody else."""

    async def worker(scope: Scope) -> tuple[Scope | None, Scope | None]:
        before = current()
        with inside(scope):
            await asyncio.sleep(0)
            return before, current()

    async def main() -> None:
        with inside(USER):
            children = [USER.child(Scope(subject=str(n))) for n in range(5)]
            found = await asyncio.gather(*(worker(child) for child in children))
            assert found == [(USER, child) for child in children]
            assert await asyncio.to_thread(current) is USER
            assert current() is USER
        assert current() is None

    asyncio.run(main())


def test_what_does_not_copy_the_context_sees_no_scope() -> None:
    """Plain executors: a host that detaches counts absent origins as a tool's."""
    with inside(USER), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is None
        assert pool.submit(contextvars.copy_context().run, current).result() is USER


def test_a_scope_may_be_left_in_another_context_than_it_was_entered_in() -> None:
    """As async generators are, that a loop closes: the scope is restored by value."""

    async def streaming() -> AsyncIterator[int]:
        with inside(USER):
            yield 1
            yield 2

    async def step(stream: AsyncIterator[int]) -> int | None:
        return await anext(stream, None)

    async def main() -> None:
        stream = streaming()
        # Each step in a task of its own, so in a copy of the context.
        assert await asyncio.create_task(step(stream)) == 1
        assert await asyncio.create_task(step(stream)) == 2
        assert await asyncio.create_task(step(stream)) is None
        assert current() is None

    asyncio.run(main())


class Steps:
    """Both kinds of iterator, and cannot be closed; notes the scope in which each part runs."""

    def __init__(self) -> None:
        self.seen: list[Scope | None] = []
        self.left = 2

    def __iter__(self) -> "Steps":
        self.seen.append(current())
        return self

    def __next__(self) -> int:
        self.seen.append(current())
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left

    def __aiter__(self) -> "Steps":
        return iter(self)

    async def __anext__(self) -> int:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


def test_every_part_of_an_iteration_is_inside() -> None:
    """Its beginning too; what cannot be closed is not."""

    async def main() -> tuple[list[int], Steps]:
        steps = Steps()
        return [item async for item in aiterate(USER, steps)], steps

    steps = Steps()
    for items, used in ((list(iterate(USER, steps)), steps), asyncio.run(main())):
        assert items == [1, 0]
        assert used.seen == [USER, USER, USER, USER]
    assert current() is None
