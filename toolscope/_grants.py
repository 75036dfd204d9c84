"""The standing grants of a ledger, and which approvals may count for a call."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from toolscope.errors import ApprovalError
from toolscope.model import (
    Approval,
    FrozenDict,
    InvalidArguments,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.stores import Key, Record, Store

Conditions: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], bool | None]
"""Says whether a condition (data) holds for arguments; None = it cannot be told."""


@attrs.frozen(kw_only=True)
class Usable:
    """The approvals that may count for one call, and why others do not.

    ``originals`` maps each, as the engine shall see it, to the approval as it was given: a grant
    whose condition holds is shown as a grant of exactly these arguments.
    """

    originals: Mapping[Approval, Approval] = attrs.field(factory=dict)
    unused: tuple[str, ...] = ()
    approvals: tuple[Approval, ...] = attrs.field(init=False)
    """The approvals for the engine."""

    @approvals.default
    def _shown(self) -> tuple[Approval, ...]:
        return tuple(self.originals)


class Grants:
    """Keeps standing grants in a store, picks those for a call, and spends the one-time ones."""

    def __init__(
        self, store: Store, clock: Callable[[], float], conditions: Conditions | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._conditions = conditions

    def check(self, grant: Approval) -> None:
        """Refuses what could never count.

        Raises:
            ApprovalError: It names a call, is spent, or binds a condition that nobody evaluates.
        """
        if grant.call_id is not None:
            raise ApprovalError("a grant names no call; give an answer to answer()")
        if isinstance(grant.arguments, FrozenDict) and self._conditions is None:
            raise ApprovalError(
                "this ledger evaluates no conditions, so the grant would never hold; give it "
                "'conditions', or grant the arguments"
            )
        if self._is_spent(grant):
            raise ApprovalError("this grant is spent; give a new one, told apart by its 'at'")

    def keep(self, grant: Approval) -> None:
        """Keeps a grant that was checked; the same one again changes nothing."""
        self._store.swap(_key(grant), None, grant.to_json())

    def revoke(self, grant: Approval) -> None:
        """Takes a grant back, if it is there."""
        key = _key(attrs.evolve(grant, call_id=None))
        self._store.swap(key, self._store.get(key), None)

    # ----------------------------------------------------------------------------------------

    def usable(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        given: Sequence[Approval],
        answers: Sequence[Record],
    ) -> Usable:
        """What may count for this call: what was given, its answers, and the grants kept here.

        Grants for other chats and tools are passed over in silence.
        """
        if isinstance(call.arguments, InvalidArguments):
            return _NOTHING  # denied before anybody is asked
        kept = list(self._store.items("grant"))
        if not (kept or given or answers):
            return _NOTHING
        candidates = tools.by_name(call.name)
        named = dict.fromkeys([*given, *map(Approval.from_json, answers)])
        originals: dict[Approval, Approval] = {}
        unused: list[str] = []
        for approval in [*named, *_near(kept, call, candidates)]:
            near = [one for one in candidates if approval.elsewhere(call, one, scope) is None]
            if near or approval in named:
                shown = self._shown(approval, call, near)
                if isinstance(shown, Approval):
                    originals[shown] = approval
                else:
                    unused.append(f"an approval was not used: {shown}")
        return Usable(originals=originals, unused=tuple(dict.fromkeys(unused)))

    def _shown(self, approval: Approval, call: ToolCall, near: Sequence[Tool]) -> Approval | str:
        """The approval as the engine shall see it, or why it does not count."""
        # A refusal does not expire: what comes after it is at most another ask.
        if approval.allow and approval.expires is not None and approval.expires <= self._clock():
            if approval.call_id is None:
                self.revoke(approval)
            return "it has expired"
        if self._is_spent(approval):
            return "it is spent"
        condition = approval.arguments
        if not isinstance(condition, FrozenDict) or not near or self._conditions is None:
            return approval
        try:
            holds = self._conditions(condition, call.arguments)
        except Exception as error:  # noqa: BLE001  (the host's function: no answer is no yes, law L4)
            return f"its condition could not be evaluated ({type(error).__name__})"
        if holds is not True:
            return "its condition does not hold for these arguments"
        return attrs.evolve(approval, arguments=call.arguments_digest)

    def _is_spent(self, approval: Approval) -> bool:
        return approval.is_one_time_grant and self._store.get(_spent_key(approval)) is not None

    # ----------------------------------------------------------------------------------------

    def spend(self, grants: Iterable[Approval], call: ToolCall) -> bool:
        """Spends the one-time grants for this call; False where one is spent, and then none is."""
        mine: list[Approval] = []
        for grant in grants:
            if not self._store.swap(_spent_key(grant), None, _spent_by(call)):
                self.give_back(mine, call)
                return False
            mine.append(grant)
        return True

    def give_back(self, grants: Iterable[Approval], call: ToolCall) -> None:
        """Undoes `spend`: the call was not handed out."""
        for grant in grants:
            self._store.swap(_spent_key(grant), _spent_by(call), None)


_NOTHING: Final = Usable()


def _near(
    kept: Iterable[tuple[Key, Record]], call: ToolCall, tools: Sequence[Tool]
) -> Iterator[Approval]:
    """The grants that may be for this call; the others are not even read."""
    wanted = {(str(tool.provider), tool.own_name) for tool in tools}
    chats = {call.chat, *call.ancestors}
    for _, record in kept:
        if (record["provider"], record["own_name"]) in wanted and record.get("chat") in chats:
            yield Approval.from_json(record)


def _key(grant: Approval) -> Key:
    return ("grant", grant.digest)


def _spent_key(grant: Approval) -> Key:
    return ("spent", grant.digest)


def _spent_by(call: ToolCall) -> Record:
    return {"chat": call.chat, "call": call.id, "final": True}
