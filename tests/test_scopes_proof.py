"""The scope of the running tool: inherited downwards in every way that code runs, leaked nowhere.

Whatever way a tool takes to start a run - a task, a thread, a copied context, a generator - the run
is a child of the tool's chat, at any depth. Siblings, parents, consumers and other runs see nothing
of it. What does not copy the context sees no scope at all.
"""

import asyncio
import contextvars
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sniffio import current_async_library_cvar

from toolscope.model import Ancestor, Origin, Scope
from toolscope.scopes import aiterate, current, for_run, inside, iterate

USER = Scope(origin="user", subject="ann", can_ask=True)
OTHER = Scope(origin="user", subject="bob")
LYING = Scope(origin="user", can_ask=True)
"""What a worker declares of itself."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# --------------------------------------------------------------------------------------------
# At any depth, by any way
# --------------------------------------------------------------------------------------------

Work = Callable[[], Coroutine[Any, Any, None]]


Way = Callable[[Work], Coroutine[Any, Any, None]]


async def directly(work: Work) -> None:
    await work()


async def in_a_task(work: Work) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(work)


async def in_a_thread(work: Work) -> None:
    await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(work))


async def in_a_copied_context(work: Work) -> None:
    context = contextvars.copy_context()
    context.run(current_async_library_cvar.set, None)  # the thread begins a loop of its own
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: context.run(lambda: anyio.run(work))).result(timeout=20)


async def in_an_async_generator(work: Work) -> None:
    async def steps() -> AsyncIterator[int]:
        await work()
        yield 1

    scope = current()
    assert scope is not None
    async for _ in aiterate(scope, steps()):
        pass


async def in_a_context_of_its_own(work: Work) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: anyio.run(work)).result(timeout=20)


WAYS: list[Way] = [
    directly,
    in_a_task,
    in_a_thread,
    in_a_copied_context,
    in_an_async_generator,
]


async def descend(ways: list[Way], above: int, seen: list[Scope]) -> None:
    """A run of an agent that declares what it likes, whose tool starts the next run."""
    scope = for_run(USER if above == 0 else LYING)
    seen.append(scope)
    if ways:
        with inside(scope):
            await ways[0](lambda: descend(ways[1:], above + 1, seen))
            assert current() is scope
    before = current()
    assert before is None or before is not scope


@settings(max_examples=40)
@given(
    ways=st.lists(st.sampled_from(WAYS), max_size=5), backend=st.sampled_from(["asyncio", "trio"])
)
def test_a_run_inside_a_tool_is_a_tools_at_any_depth(ways: list[Way], backend: str) -> None:
    """By whichever ways the runs are nested; and nothing is left when they have ended."""
    seen: list[Scope] = []
    anyio.run(descend, ways, 0, seen, backend=backend)
    assert seen[0] is USER
    assert [one.origin for one in seen[1:]] == [Origin.TOOL] * len(ways)
    assert [len(one.ancestry) for one in seen] == list(range(len(ways) + 1))
    assert all(one.ancestry[-1] == Ancestor(origin="user") for one in seen[1:])
    assert all(one.subject == "ann" for one in seen)
    assert current() is None


@pytest.mark.anyio
async def test_a_context_that_is_not_copied_is_an_absent_origin() -> None:
    """A plain executor: the run there is a chat of unknown origin, not a user's."""
    seen: list[Scope] = []

    async def run() -> None:
        seen.append(for_run())

    with inside(USER):
        await in_a_context_of_its_own(run)
    assert seen == [Scope()]


# --------------------------------------------------------------------------------------------
# Siblings, parents, other runs
# --------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_siblings_of_a_task_group_keep_to_themselves() -> None:
    """Parallel tools of several people, each entered and left while the others are inside."""
    found: dict[int, list[Scope | None]] = {}
    scopes = [Scope(origin="user", subject=str(n)) for n in range(20)]

    async def tool(n: int) -> None:
        found[n] = [current()]
        for _ in range(3):
            with inside(scopes[n]):
                await anyio.sleep(0)
                found[n].append(current())
                found[n].append(await anyio.to_thread.run_sync(current))
            await anyio.sleep(0)
            found[n].append(current())

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(tool, n)
    assert found == {n: [None, *[one, one, None] * 3] for n, one in enumerate(scopes)}
    assert current() is None


@pytest.mark.anyio
async def test_a_child_task_takes_nothing_back_to_its_parent() -> None:
    """What a task or a thread enters, and even forgets to leave, stays with it."""
    kept = []

    def forgets() -> None:
        entered = inside(OTHER)
        kept.append(entered)
        entered.__enter__()
        assert current() is OTHER

    async def forgets_too() -> None:
        forgets()

    with inside(USER):
        async with anyio.create_task_group() as group:
            group.start_soon(forgets_too)
        await anyio.to_thread.run_sync(forgets)
        assert current() is USER
        kept.clear()
        gc.collect()
        assert current() is USER
    assert current() is None


def test_what_is_forgotten_by_one_is_not_cleaned_up_in_another() -> None:
    """A forgotten generator is closed in whatever context runs then: another person's stays."""
    forgotten = []

    def parts() -> Iterator[int]:
        with inside(USER):
            yield 1

    def begins() -> None:
        forgotten.append(parts())
        next(forgotten[0])

    contextvars.Context().run(begins)
    with inside(OTHER):
        forgotten.clear()
        gc.collect()
        assert current() is OTHER


def test_threads_of_one_pool_are_not_inherited_from_each_other() -> None:
    """A pool's thread that served a tool holds nothing for the next job."""
    with ThreadPoolExecutor(1) as pool:
        with inside(USER):
            assert pool.submit(contextvars.copy_context().run, current).result() is USER
            assert pool.submit(current).result() is None

        def tool() -> Scope | None:
            with inside(OTHER):
                return current()

        assert pool.submit(tool).result() is OTHER
        assert pool.submit(current).result() is None


@pytest.mark.anyio
@pytest.mark.parametrize("after", range(6))
async def test_cancelled_at_any_await_no_scope_stays_entered(after: int) -> None:
    """The cancelled task and its caller are where they were."""
    left: list[Scope | None] = []

    async def tool() -> None:
        try:
            with inside(USER):
                await anyio.sleep(0)
                with inside(OTHER):
                    await anyio.sleep(0)
                    async with aclosing(aiterate(USER.child(), parts())) as stream:
                        async for _ in stream:
                            await anyio.sleep(0)
        finally:
            left.append(current())

    async def parts() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep(0)
        yield 2

    with anyio.CancelScope() as cancel:
        async with anyio.create_task_group() as group:
            group.start_soon(tool)
            for _ in range(after):
                await anyio.sleep(0)
            cancel.cancel()
    # Trio may cancel a task before it began.
    assert left in ([None], [])
    assert current() is None


# --------------------------------------------------------------------------------------------
# Generators
# --------------------------------------------------------------------------------------------


def test_a_generator_s_consumer_is_outside_between_its_steps() -> None:
    """Without `iterate` the scope leaks to the consumer; with it each step alone is inside."""
    seen: list[Scope | None] = []

    def parts() -> Iterator[int]:
        for n in range(3):
            seen.append(current())
            yield n

    def leaks() -> Iterator[int]:
        with inside(USER):
            yield from parts()

    stream = leaks()
    next(stream)
    assert current() is USER  # the fault that `iterate` is there for
    stream.close()  # type: ignore[attr-defined]
    assert current() is None
    seen.clear()
    for _ in iterate(USER, parts()):
        assert current() is None
    assert seen == [USER] * 3
    assert current() is None


def test_two_generators_step_by_step_do_not_mix() -> None:
    """Each step has its own generator's scope, whoever was stepped before."""
    seen: list[tuple[str | None, str | None]] = []

    def parts(owner: str) -> Iterator[None]:
        for _ in range(3):
            scope = current()
            seen.append((owner, None if scope is None else scope.subject))
            yield

    with inside(LYING):
        for _ in zip(iterate(USER, parts("ann")), iterate(OTHER, parts("bob")), strict=True):
            assert current() is LYING
    assert seen == [("ann", "ann"), ("bob", "bob")] * 3


def test_a_scope_that_a_generator_entered_is_kept_for_its_next_step() -> None:
    """A generator that yields inside a scope of its own finds it again, and leaves it in order."""
    child = USER.child()
    seen: list[Scope | None] = []

    def parts() -> Iterator[int]:
        with inside(child):
            yield 1
            seen.append(current())
            yield 2
        seen.append(current())
        yield 3

    for _ in iterate(USER, parts()):
        assert current() is None
    assert seen == [child, USER]


@pytest.mark.parametrize("way", ["close", "forget", "raise"])
def test_a_generator_ends_inside_its_scope(way: str) -> None:
    """Closed, forgotten or failing: it cleans up inside, and nothing stays behind."""
    seen: list[Scope | None] = []

    def parts() -> Iterator[int]:
        try:
            yield 1
            raise KeyError
        finally:
            seen.append(current())

    stream: Any = iterate(USER, parts())
    next(stream)
    if way == "close":
        stream.close()
    elif way == "forget":
        del stream
        gc.collect()
    else:
        with pytest.raises(KeyError):
            next(stream)
    assert seen == [USER]
    assert current() is None


def test_any_iterable_can_be_iterated() -> None:
    """Plain iterables have nothing to close."""
    assert list(iterate(USER, [1, 2])) == [1, 2]
    assert list(iterate(USER, iter(()))) == []


@pytest.mark.anyio
async def test_an_async_generator_s_consumer_is_outside_between_its_steps() -> None:
    """Also while the generator waits, and while the consumer does."""
    seen: list[Scope | None] = []

    async def parts() -> AsyncIterator[int]:
        for n in range(3):
            await anyio.sleep(0)
            seen.append(current())
            with inside(USER.child()):
                yield n
                seen.append(current())

    async for _ in aiterate(USER, parts()):
        assert current() is None
        await anyio.sleep(0)
    assert seen == [USER, USER.child()] * 3
    assert current() is None


@pytest.mark.anyio
async def test_an_async_generator_ends_inside_its_scope() -> None:
    """Closed or failing: it cleans up inside, awaiting as it likes."""
    seen: list[Scope | None] = []

    async def parts() -> AsyncIterator[int]:
        try:
            yield 1
            raise KeyError
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0)
            seen.append(current())

    for fails in (False, True):
        stream = aiterate(USER, parts())
        assert await anext(stream) == 1
        if fails:
            with pytest.raises(KeyError):
                await anext(stream)
        else:
            await stream.aclose()
        assert current() is None
    assert seen == [USER, USER]


def test_steps_in_tasks_of_their_own() -> None:
    """A server that takes each step in another task, so in another copy of the context."""
    seen: list[Scope | None] = []

    async def parts() -> AsyncIterator[int]:
        for n in range(3):
            seen.append(current())
            yield n

    async def step(stream: AsyncIterator[int]) -> tuple[int | None, Scope | None]:
        return await anext(stream, None), current()

    async def main() -> None:
        stream = aiterate(USER, parts())
        with inside(OTHER):
            steps = [await asyncio.create_task(step(stream)) for _ in range(4)]
        assert steps == [(0, OTHER), (1, OTHER), (2, OTHER), (None, OTHER)]

    asyncio.run(main())
    assert seen == [USER] * 3


# --------------------------------------------------------------------------------------------
# Servers
# --------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_server_task_keeps_the_scope_it_was_started_in() -> None:
    """Requests of others do not change it: a server never takes the variable for its caller's."""
    handled: list[Scope | None] = []
    asks, requests = anyio.create_memory_object_stream[None](10)
    answers: Any
    answered, answers = anyio.create_memory_object_stream[Scope | None](10)

    async def serve() -> None:
        async for _ in requests:
            handled.append(current())
            await answered.send(current())

    async with anyio.create_task_group() as group:
        with inside(USER):
            group.start_soon(serve)  # a tool starts it, and ends
        for scope in (OTHER, None, USER.child()):
            if scope is None:
                await asks.send(None)
                await answers.receive()
                continue
            with inside(scope):
                await asks.send(None)
                await answers.receive()
                assert current() is scope
        asks.close()
    answered.close()
    answers.close()
    requests.close()
    assert handled == [USER] * 3
    assert current() is None


def test_a_callback_keeps_the_scope_it_was_scheduled_in() -> None:
    """Timers and done-callbacks of asyncio run in a copy of the context that made them."""
    seen: list[Scope | None] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with inside(USER):
            loop.call_soon(lambda: seen.append(current()))
            task = asyncio.create_task(asyncio.sleep(0))
            task.add_done_callback(lambda _: seen.append(current()))
        with inside(OTHER):
            await task
            await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == [USER, USER]
    assert current() is None
