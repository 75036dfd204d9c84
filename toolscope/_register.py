"""The register of a ledger: changes of its records, each of them whole or not at all.

A record is looked at, changed and swapped; where somebody else was quicker, it is looked at again.
"""

import math
from typing import Final, cast

import attrs

from toolscope._records import (
    OPEN,
    CallState,
    call_key,
    denials_key,
    left_key,
    state_of,
    verdict_to_json,
)
from toolscope.model import Provider
from toolscope.stores import Key, Record, Store
from toolscope.verdicts import Decision, Failure

_CLAIMABLE: Final = 256
"""How many calls of one tool with one set of arguments wait to be claimed; the oldest go first."""


class Register:
    """What becomes of the calls in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def end(
        self, key: Key, to: CallState, from_: tuple[CallState, ...], by: Provider | None = None
    ) -> bool:
        """Ends a call that is in one of these states, on the word of its provider; was it?"""
        while True:
            record = self._store.get(key)
            if record is None or state_of(record) not in from_:
                return False
            if by is not None and record["provider"] != str(by):
                return False
            new = {**record, "state": str(to), "final": True}
            new.pop("answers", None)
            if self._store.swap(key, record, new):
                return True

    # Denials --------------------------------------------------------------------------------

    def denial(
        self,
        chat: str | None,
        named: Record,
        failure: Failure,
        decision: Decision | None = None,
    ) -> Record:
        """The record of a call that is denied, with the failure in the words of its count."""
        failure = failure.repeated(self.count(chat, named, failure.code, 1))
        verdicts = () if decision is None else decision.verdicts
        return {
            "state": str(CallState.DENIED),
            "name": named["name"],
            "tool": named["tool"],
            "failure": attrs.asdict(failure),
            "verdicts": [verdict_to_json(one) for one in verdicts],
            "final": True,
        }

    def count(self, chat: str | None, named: Record, code: str, by: int) -> int:
        """Counts one more (or less) denial of this tool in this chat for this cause."""
        key = denials_key(chat, named, code)
        while True:
            old = self._store.get(key)
            count = (0 if old is None else int(old["count"])) + by
            if self._store.swap(key, old, {"count": count, "final": True}):
                return count

    # Claims ---------------------------------------------------------------------------------

    def may_be_claimed(self, key: Key, call: Key) -> None:
        """Notes that an execution without a call id may be matched to this call."""
        while True:
            old = self._store.get(key)
            calls = [] if old is None else old["calls"][1 - _CLAIMABLE :]
            if self._store.swap(key, old, {"calls": [*calls, list(call[1:])], "final": True}):
                return

    def claim(self, key: Key) -> Key | None:
        """Claims the oldest of these calls that is out and was not claimed; which one it is."""
        index = self._store.get(key)
        for chat, call_id in () if index is None else index["calls"]:
            call = call_key(chat, call_id)
            while True:
                record = self._store.get(call)
                if record is None or state_of(record) is not CallState.HANDED_OUT:
                    break
                if record["claimed"]:
                    break
                if self._store.swap(call, record, {**record, "claimed": True}):
                    return call
        return None

    # Providers ------------------------------------------------------------------------------

    def leave(self, provider: Provider, until: float) -> None:
        """Notes that a provider has gone, and when its grace ends; the first time counts."""
        if not math.isfinite(until):
            raise ValueError(f"the grace of {provider} ends at {until}; give finite seconds")
        self._store.swap(left_key(provider), None, {"until": until})

    def come_back(self, provider: Provider) -> None:
        """Takes the note back."""
        key = left_key(provider)
        self._store.swap(key, self._store.get(key), None)

    def time_passed(self, now: float) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of providers whose grace has ended; (chat, call id) of each."""
        gone = {
            key[1]: (key, record)
            for key, record in self._store.items("left")
            if record["until"] <= now
        }
        if not gone:
            return ()
        failed = tuple(
            (key[1], cast("str", key[2]))
            for key, record in self._store.items("call")
            if record.get("provider") in gone and self.end(key, CallState.FAILED, OPEN)
        )
        for key, record in gone.values():
            self._store.swap(key, record, None)
        return failed
