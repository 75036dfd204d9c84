"""Asks each hookimpl alone, and turns fault, timeout and wrong type into verdicts.

pluggy gives no isolation between plugins: one exception aborts the whole call, and the answers that
were already given are lost. So no hook is ever called through pluggy: this module holds the
hookimpls and calls each one itself. Here stands the only ``except Exception`` around plugin code.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import attrs

from toolscope.listings import Answer, Listing
from toolscope.model import Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Code, Decision, Effect, PluginVerdict, Verdict, deny

if TYPE_CHECKING:
    from logging import Logger

_MASK_BY_POSITION: Final = 3
"""Below one withheld tool in this many, setting single bytes beats testing every tool."""


def _log() -> "Logger":
    import logging

    return logging.getLogger("toolscope")


def _faulty(plugin: str) -> Verdict:
    return deny(
        f"the rule of plugin '{plugin}' gave no decision, and no decision is no permission; go on "
        "without this tool and say so",
        code=Code.POLICY_ERROR,
    )


def _described(error: BaseException) -> str:
    """The error for the record. A text that cannot even be made is named by its type alone."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001  (``__str__`` of a plugin's exception is plugin code)
        return f"{type(error).__name__} (its text raises {type(broken).__name__})"


def _fault(plugin: str, error: str) -> PluginVerdict:
    return PluginVerdict(plugin=plugin, verdict=_faulty(plugin), error=error)


# --------------------------------------------------------------------------------------------
# filter_tools
# --------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, slots=False)
class ListRule:
    """One ``filter_tools`` hookimpl with the arguments it names."""

    plugin: str
    function: Callable[..., object]
    arguments: tuple[str, ...]
    _read: tuple[str, ...] = attrs.field(init=False)
    """The arguments that come from the scope."""
    _place: int | None = attrs.field(init=False)
    """Where among the arguments the tools stand."""

    @_read.default
    def _without_tools(self) -> tuple[str, ...]:
        return tuple(name for name in self.arguments if name != "tools")

    @_place.default
    def _place_of_tools(self) -> int | None:
        return self.arguments.index("tools") if "tools" in self.arguments else None

    def key(self, scope: Scope) -> tuple[object, ...]:
        """The values of the arguments it names, ``tools`` left out: equal keys, equal answers."""
        return tuple([scope if name == "scope" else getattr(scope, name) for name in self._read])

    def answer(self, tools: Toolset, key: tuple[object, ...]) -> Answer:
        """Asks it, with the values of `key`. An answer that cannot be used withholds every tool."""
        place = self._place
        if place is not None:
            key = (*key[:place], tools, *key[place:])
        try:
            verdicts = _checked(self.function(*key), tools)
        except Exception as error:  # noqa: BLE001  (a rule may raise anything; it denies: law L4)
            return self._faulty_answer(tools, _described(error))
        if isinstance(verdicts, str):
            return self._faulty_answer(tools, verdicts)
        return Answer(self.plugin, verdicts, mask=_mask(verdicts, tools) if verdicts else 0)

    def _faulty_answer(self, tools: Toolset, error: str) -> Answer:
        return Answer(
            self.plugin, dict.fromkeys(tools, _faulty(self.plugin)), error=error, mask=tools.ones
        )


_TOOLS: Final = frozenset({Tool})


def _checked(given: object, tools: Toolset) -> dict[Tool, Verdict] | str:
    """A copy of the answer, or what is wrong with it. Few calls a tool: this is the hot path."""
    if type(given) is not dict and not isinstance(given, Mapping):
        _dispose(given)
        forgotten = " (a forgotten return? {} is no opinion)" if given is None else ""
        return f"filter_tools answered {type(given).__name__}, not a mapping of tools{forgotten}"
    verdicts: dict[Tool, Verdict] = dict(given)
    if not verdicts:
        return verdicts
    # The types first: a stranger's key could claim to equal a tool, and change its mind later.
    if set(map(type, verdicts)) != _TOOLS or not verdicts.keys() <= tools.positions.keys():
        return (
            "filter_tools answered with a key that it was not asked about; the keys are the Tool "
            "objects of this very toolset"
        )
    last: object = verdicts
    for verdict in verdicts.values():
        if verdict is last:  # one object for many tools, as rules build one verdict per rule
            continue
        last = verdict
        if type(verdict) is not Verdict:
            return (
                f"filter_tools answered a {type(verdict).__name__} for a tool; allowed is deny(...)"
            )
        _sound(verdict)
        if verdict.effect is not Effect.DENY:
            return "filter_tools answered an ask for a tool; asks belong into on_tool_call"
    return verdicts


def _sound(verdict: Verdict) -> None:
    """Raises for a verdict that was made or changed behind the back of its constructor."""
    for part in (verdict.code, verdict.detail, verdict.rule):
        if part is not None and not isinstance(part, str):
            raise TypeError(f"a part of the verdict is a {type(part).__name__}, not text")
    if not isinstance(verdict.reason, str) or not verdict.reason:
        raise TypeError("the reason of the verdict is no text")
    if verdict.effect is not Effect.DENY and verdict.effect is not Effect.ASK:
        raise TypeError(f"the effect of the verdict is {verdict.effect!r}")


def _mask(verdicts: dict[Tool, Verdict], tools: Toolset) -> int:
    """One byte a tool, 1 = withheld; see `Answer.mask`."""
    if len(verdicts) * _MASK_BY_POSITION > len(tools):
        return int.from_bytes(bytes(map(verdicts.__contains__, tools)), "little")
    places = bytearray(len(tools))
    positions = tools.positions
    for tool in verdicts:
        places[positions[tool]] = 1
    return int.from_bytes(places, "little")


# --------------------------------------------------------------------------------------------
# on_tool_call
# --------------------------------------------------------------------------------------------

Asked: TypeAlias = Callable[[ToolCall, Tool, Scope], object]

_NAMES: Final = ("call", "tool", "scope")


def positional(function: Callable[..., object], arguments: tuple[str, ...]) -> Asked:
    """The function as one that takes ``(call, tool, scope)``, whatever it names, in any order."""
    places = tuple(_NAMES.index(name) for name in arguments)
    return lambda *given: function(*[given[place] for place in places])


@attrs.frozen(eq=False)
class CallRule:
    """One ``on_tool_call`` hookimpl; it takes the first ``count`` of call, tool and scope."""

    plugin: str
    function: Callable[..., object]
    count: int

    @classmethod
    def of(cls, plugin: str, function: Callable[..., object], arguments: tuple[str, ...]) -> Self:
        """The rule of a hookimpl that names these arguments."""
        count = len(arguments)
        if count and arguments == _NAMES[:count]:
            return cls(plugin, function, count)
        return cls(plugin, positional(function, arguments), len(_NAMES))


Pending: TypeAlias = tuple[CallRule, Awaitable[object]]


def ask_call(
    rules: Sequence[CallRule], call: ToolCall, tool: Tool, scope: Scope
) -> tuple[list[PluginVerdict], list[Pending]]:
    """Asks every rule: the verdicts of the sync ones, and the awaitables of the others."""
    verdicts: list[PluginVerdict] = []
    pending: list[Pending] = []
    for rule in rules:
        try:
            # Asking directly saves a call frame a rule, a tenth of a whole decision.
            count = rule.count
            if count == 1:
                given = rule.function(call)
            elif count == 2:
                given = rule.function(call, tool)
            else:
                given = rule.function(call, tool, scope)
            if given is None:
                continue
            if type(given) is not Verdict and inspect.isawaitable(given):
                pending.append((rule, given))
            else:
                verdicts.append(_verdict(rule.plugin, given))
        except Exception as error:  # noqa: BLE001  (a rule may raise anything; it denies: law L4)
            verdicts.append(_fault(rule.plugin, _described(error)))
        except BaseException:
            close(pending)
            raise
    return verdicts, pending


def _verdict(plugin: str, given: object) -> PluginVerdict:
    if type(given) is Verdict:
        _sound(given)
        return PluginVerdict(plugin=plugin, verdict=given)
    _dispose(given)
    return _fault(
        plugin,
        f"on_tool_call answered {type(given).__name__}; allowed are ask(...), deny(...) and None",
    )


def refuse_pending(pending: Sequence[Pending]) -> list[PluginVerdict]:
    """An awaitable where nothing can be awaited is a fault of its rule."""
    close(pending)
    error = "on_tool_call answered an awaitable to a sync question; ask with on_tool_call_async"
    return [_fault(rule.plugin, error) for rule, _ in pending]


async def await_call(
    pending: Sequence[Pending], seconds: float, enter: Callable[[], object]
) -> list[PluginVerdict]:
    """Awaits all at once under one deadline; whoever has not answered by then denies.

    ``enter`` is called in the context of each task that awaits one.
    """
    import anyio
    from anyio.lowlevel import checkpoint_if_cancelled

    answered: dict[int, PluginVerdict | None] = {}
    try:
        with anyio.move_on_after(seconds) as deadline:
            async with anyio.create_task_group() as group:

                async def one(place: int, rule: CallRule, awaitable: Awaitable[object]) -> None:
                    enter()
                    try:
                        given = await awaitable
                        verdict = None if given is None else _verdict(rule.plugin, given)
                    except Exception as error:  # noqa: BLE001  (as for sync rules: law L4)
                        verdict = _fault(rule.plugin, _described(error))
                    # A rule that caught the cancellation and answered after it was too late.
                    if not deadline.cancel_called:
                        answered[place] = verdict

                for place, (rule, awaitable) in enumerate(pending):
                    group.start_soon(one, place, rule, awaitable)
    except BaseExceptionGroup as several:
        if len(several.exceptions) > 1:
            raise
        # What is no Exception passes through as itself, as it does from a sync rule.
        raise several.exceptions[0] from None
    finally:
        # What the task group never came to run would warn that it was never awaited.
        close([pending[place] for place in range(len(pending)) if place not in answered])
    # A rule may have swallowed a cancellation of the caller: then no answer counts.
    await checkpoint_if_cancelled()
    late = f"on_tool_call did not answer within {seconds} s"
    error = late if deadline.cancel_called else "on_tool_call cancelled itself and did not answer"
    verdicts = []
    for place, (rule, _) in enumerate(pending):
        if place not in answered:
            verdicts.append(_fault(rule.plugin, error))
        elif (verdict := answered[place]) is not None:
            verdicts.append(verdict)
    return verdicts


def close(pending: Sequence[Pending]) -> None:
    """Ends awaitables that nobody will await."""
    for _, awaitable in pending:
        _dispose(awaitable)


def _dispose(given: object) -> None:
    """Closes a coroutine and cancels a future, so that none is left waiting."""
    try:
        if inspect.iscoroutine(given):
            given.close()
        elif inspect.isawaitable(given) and callable(cancel := getattr(given, "cancel", None)):
            cancel()
    except Exception:  # noqa: BLE001  (a ``finally`` inside it, or its attribute, is plugin code)
        _log().warning("a rule's awaitable could not be closed", exc_info=True)


def cancelled(rules: Sequence[Pending]) -> list[PluginVerdict]:
    """What a decision that was cancelled while it waited is recorded with."""
    error = "the decision was cancelled before on_tool_call answered"
    return [_fault(rule.plugin, error) for rule, _ in rules]


# --------------------------------------------------------------------------------------------
# on_decision
# --------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Observer:
    """One ``on_decision`` hookimpl. ``function`` takes the outcome, or nothing."""

    plugin: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]


def tell(observers: Sequence[Observer], outcome: Decision | Listing) -> None:
    """Tells every observer; what one raises is logged and swallowed."""
    for observer in observers:
        try:
            observer.function(*([outcome] if observer.arguments else []))
        except Exception:  # noqa: BLE001  (an observer cannot change or stop a decision)
            _log().exception("on_decision of plugin %r failed", observer.plugin)
