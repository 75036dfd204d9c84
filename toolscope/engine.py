"""`PolicyEngine`: the policy decision point that a host asks its two questions."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from toolscope import _chain
from toolscope._inventory import PluginRecord
from toolscope.errors import ConfigurationError, RecursionRefused
from toolscope.listings import Answer, Listing, make_listing
from toolscope.model import Approval, InvalidArguments, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import (
    Decision,
    Effect,
    Unlisted,
    decide,
    decide_invalid,
    decide_unlisted,
)

__all__ = ["PluginRecord", "PolicyEngine"]

_KEPT: Final = 256
"""How many listings, and how many answers, are kept for one toolset; the oldest go first."""

_asking: ContextVar[tuple["PolicyEngine", ...]] = ContextVar("toolscope_asking", default=())
"""The engines whose hooks are running in this context."""


class _Memo:
    """What an engine knows of one toolset, held by the toolset and dropped with it."""

    __slots__ = ("answers", "last", "listings")

    def __init__(self) -> None:
        self.answers: dict[tuple[int, tuple[object, ...]], Answer] = {}
        self.listings: dict[tuple[Scope, str | None], Listing] = {}
        self.last: tuple[object, str | None, Listing | None] = (None, None, None)
        """The scope and preference of the last listing: to hash them takes as long as a rule."""


class PolicyEngine:
    """Decides which tools a chat's agent may be shown, and which produced calls may run.

    Immutable and safe to share between threads and tasks. What it remembers is bounded: the last
    listing, at most 256 others and 256 rule answers a toolset, and nothing once that is gone.

    `PolicyEngine.load` makes one from the configuration and the installed plugins; the constructor
    takes the built-ins and exactly the given plugins, discovers nothing and reads no file.

    Args:
        plugins: Plugin objects, or plugin classes that are built with their settings.
        config: The table that a configuration file would hold.

    Raises:
        ConfigurationError: A setting is wrong, or a plugin cannot be built or is not acceptable.
        PluginError: A plugin has no usable name.
    """

    def __init__(
        self, plugins: Sequence[object] = (), *, config: Mapping[str, Any] | None = None
    ) -> None:
        given = tuple(plugins)
        table = dict(config or {})
        self._start(None, table, given)
        self._again: Callable[[], PolicyEngine] = lambda: PolicyEngine(given, config=table)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> "PolicyEngine":
        """The engine of a configuration file: at ``path``, else named by ``TOOLSCOPE_CONFIG``.

        With neither, every installed plugin runs with its defaults. The current folder is never
        searched.

        Raises:
            ConfigurationError: It cannot be read, or what it selects cannot be used; all faults.
        """
        engine = cls.__new__(cls)
        engine._start(path, None, None)  # noqa: SLF001
        engine._again = lambda: cls.load(path)  # noqa: SLF001
        return engine

    def _start(
        self,
        path: str | os.PathLike[str] | None,
        table: Mapping[str, Any] | None,
        given: tuple[object, ...] | None,
    ) -> None:
        # Whoever only builds values or writes a rule never pays for discovery and configuration.
        from toolscope._config import read_configuration
        from toolscope._plugins import assemble

        configuration = read_configuration(path, table=table)
        assembly = assemble(configuration, given)
        if assembly.faults:
            raise ConfigurationError("the policy cannot be loaded", assembly.faults)
        self._timeout = configuration.async_timeout
        self._records = assembly.records
        self._list_rules = assembly.hooks.list_rules
        self._call_rules = assembly.hooks.call_rules
        self._observers = assembly.hooks.observers
        self._lock = threading.Lock()
        self._token = object()

    @property
    def plugins(self) -> tuple[PluginRecord, ...]:
        """Every plugin that is known here, active or not, in order of names."""
        return self._records

    def reload(self) -> "PolicyEngine":
        """A new engine from the same source, read again; this one stays as it is.

        Raises:
            ConfigurationError: The source cannot be used any more. Keep this engine.
            RecursionRefused: It was called by a hook of this engine.
        """
        self._refuse_recursion()
        return self._again()

    def tell(self, decision: Decision) -> None:
        """Tells the observers of a decision that counts in the place of this engine's own.

        `toolscope.calls.CallLedger` does: a call may be settled, and is then denied without a rule
        being asked, or become it while the rules are asked.

        Raises:
            RecursionRefused: It was called by a hook of this engine.
        """
        asking = self._refuse_recursion()
        if self._observers:
            _asking.set((*asking, self))
            try:
                _chain.tell(self._observers, decision)
            finally:
                _asking.set(asking)

    # ----------------------------------------------------------------------------------------
    # Question 1: which tools may be shown?
    # ----------------------------------------------------------------------------------------

    def filter_tools(self, tools: Toolset, scope: Scope, prefer: str | None = None) -> Listing:
        """The tools of ``tools`` that may be shown in ``scope``.

        ``prefer`` is the id of the client that started the turn; its tools win a shared name.
        Hand the listing to the model as it is, also when it is empty.

        Raises:
            RecursionRefused: It was called by a hook of this engine.
            TypeError: ``tools`` is no `Toolset` or ``scope`` no `Scope`.
        """
        asking = self._refuse_recursion()
        return self._listing(tools, scope, prefer, asking)

    def _listing(
        self, tools: Toolset, scope: Scope, prefer: str | None, asking: tuple["PolicyEngine", ...]
    ) -> Listing:
        if type(tools) is not Toolset:
            raise TypeError(f"tools is a {type(tools).__name__}; make a Toolset of them")
        recent = tools.recent
        memo: _Memo
        if recent is not None and recent[0] is self._token:
            memo = recent[1]
        else:
            with self._lock:
                memo = tools.memos.setdefault(self, _Memo())
            tools.recent = self._token, memo
        last_scope, last_prefer, last = memo.last
        if last_scope is scope and last_prefer is prefer and last is not None:
            return last
        if type(scope) is not Scope:
            raise TypeError(f"scope is a {type(scope).__name__}, not a Scope")
        known = memo.listings.get((scope, prefer))
        if known is not None:
            memo.last = scope, prefer, known
            return known
        _asking.set((*asking, self))
        try:
            answers, fresh = self._answers(memo, tools, scope)
            listing = make_listing(tools, scope, answers, prefer)
            # A fault may pass, and a rule that recovers is asked again: nothing of it is kept.
            with self._lock:
                for key, answer in fresh.items():
                    if answer.error is None:
                        _keep(memo.answers, key, answer)
                if all(answer.error is None for answer in answers):
                    _keep(memo.listings, (scope, prefer), listing)
            _chain.tell(self._observers, listing)
        finally:
            _asking.set(asking)
        return listing

    def _answers(
        self, memo: _Memo, tools: Toolset, scope: Scope
    ) -> tuple[tuple[Answer, ...], dict[tuple[int, tuple[object, ...]], Answer]]:
        """Every rule's answer, in order of plugin names, and those of them that were not known."""
        answers = []
        fresh = {}
        for place, rule in enumerate(self._list_rules):
            key = rule.key(scope)
            answer = memo.answers.get((place, key))
            if answer is None:
                answer = fresh[place, key] = rule.answer(tools, key)
            answers.append(answer)
        return tuple(answers), fresh

    def _refuse_recursion(self) -> tuple["PolicyEngine", ...]:
        asking = _asking.get()
        if asking and self in asking:
            raise RecursionRefused(
                "a hook asked the engine that is asking it; decide from the hook's own arguments"
            )
        return asking

    # ----------------------------------------------------------------------------------------
    # Question 2: may this call run?
    # ----------------------------------------------------------------------------------------

    def on_tool_call(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        approvals: Sequence[Approval] = (),
        *,
        tell: bool = True,
    ) -> Decision:
        """The decision on one produced call, taken before anybody is asked to execute it.

        ``approvals`` are answers to asks, and grants: each takes away the asks it answers, and no
        deny. The engine knows no time and remembers nothing; that an approval is used once, and not
        after it expired, is the business of `toolscope.calls.CallLedger`. It asks with ``tell`` off
        and tells the observers itself (`tell`), once it knows which decision counts.

        A rule that answers with an awaitable is at fault here and denies; where such rules may be
        installed, ask with `on_tool_call_async`.

        Raises:
            RecursionRefused: It was called by a hook of this engine.
            TypeError: An argument is of another type than stated.
        """
        asking = _asking.get()
        if asking:
            self._refuse_recursion()
        listing = self._listing(tools, scope, prefer, asking)
        _asking.set((*asking, self))
        try:
            decision = _before_rules(call, listing, scope)
            if isinstance(decision, Tool):
                verdicts, pending = _chain.ask_call(self._call_rules, call, decision, scope)
                if pending:
                    verdicts += _chain.refuse_pending(pending)
                decision = decide(call, decision, scope, verdicts, approvals)
            if tell and self._observers:
                _chain.tell(self._observers, decision)
        finally:
            _asking.set(asking)
        return decision

    async def on_tool_call_async(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        approvals: Sequence[Approval] = (),
        *,
        tell: bool = True,
    ) -> Decision:
        """The same decision, with awaitable rules awaited (asyncio or trio).

        Sync rules are asked first; if one denies, the awaitables are closed unasked. The others run
        at once under one deadline of ``async_timeout`` seconds; a rule that has not answered by
        then denies. If this call is cancelled, nothing was permitted and the observers are told.

        Raises:
            RecursionRefused: It was called by a hook of this engine.
            TypeError: An argument is of another type than stated.
        """
        asking = _asking.get()
        if asking:
            self._refuse_recursion()
        listing = self._listing(tools, scope, prefer, asking)
        inside = (*asking, self)
        _asking.set(inside)
        try:
            decision = _before_rules(call, listing, scope)
            if isinstance(decision, Tool):
                tool = decision
                verdicts, pending = _chain.ask_call(self._call_rules, call, tool, scope)
                if pending:
                    if any(one.verdict.effect is Effect.DENY for one in verdicts):
                        _chain.close(pending)
                    else:
                        # Tasks may share a context: while this one waits, the others may ask.
                        _asking.set(asking)
                        enter = partial(_asking.set, inside)
                        try:
                            verdicts += await _chain.await_call(pending, self._timeout, enter)
                            enter()
                        except BaseException:
                            enter()
                            verdicts += _chain.cancelled(pending)
                            _chain.tell(
                                self._observers, decide(call, tool, scope, verdicts, approvals)
                            )
                            raise
                decision = decide(call, tool, scope, verdicts, approvals)
            if tell and self._observers:
                _chain.tell(self._observers, decision)
        finally:
            _asking.set(asking)
        return decision


def _keep(kept: dict[Any, Any], key: object, value: object) -> None:
    if len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[key] = value


def _before_rules(call: ToolCall, listing: Listing, scope: Scope) -> Decision | Tool:
    """The denial of a call that no rule is asked about, else the listed tool that it is about."""
    if not isinstance(call, ToolCall):
        raise TypeError(f"call is a {type(call).__name__}, not a ToolCall")
    found = listing.lookup(call.name, call.provider)
    if isinstance(found, Unlisted):
        return decide_unlisted(call, found, scope)
    if isinstance(call.arguments, InvalidArguments):
        return decide_invalid(call, found, scope, call.arguments)
    return found
