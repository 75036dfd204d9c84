"""How the benchmarks of hosts measure: runs of several kinds take turns, in a new order each round.

The kinds are the host without a hook, with its own hook that does nothing, and with toolscope. So
that noise meets all of them alike, the share of toolscope is the median of the differences within
one round.
"""

import gc
import random
import statistics
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["LIMIT", "Share", "Turns", "report"]

LIMIT = 30.0
"""Microseconds that a hook call of toolscope may take over the host's own hook (goal P12)."""
WARM_UP = 30
COLLECT_EVERY = 50


@attrs.frozen(kw_only=True)
class Share:
    """What toolscope adds to one hook call of a host, in microseconds.

    ``medians`` are of whole runs by kind, ``ratio`` is that of toolscope's to the empty hook's.
    """

    what: str
    microseconds: float
    ratio: float
    medians: dict[str, float]


class Turns(Iterator[str]):
    """Says whose turn it is; `note` takes the seconds that it took."""

    def __init__(self, kinds: Sequence[str], rounds: int) -> None:
        self._order = self._turns(list(kinds), rounds)
        self._seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        self._warm = False

    def _turns(self, kinds: list[str], rounds: int) -> Iterator[str]:
        shuffle = random.Random(7).shuffle
        gc.collect()
        gc.disable()
        try:
            for round_ in range(-WARM_UP, rounds):
                self._warm = round_ >= 0
                if round_ % COLLECT_EVERY == 0:
                    gc.collect()
                shuffle(kinds)
                yield from kinds
        finally:
            gc.enable()

    def __next__(self) -> str:
        return next(self._order)

    def note(self, kind: str, seconds: float) -> None:
        """Keeps what a turn took, once everybody has warmed up."""
        if self._warm:
            self._seconds[kind].append(seconds)

    def share(self, what: str, ours: str, nothing: str, hook_calls: int = 1) -> Share:
        """The share of ``ours`` over ``nothing``, for each of the hook calls of a run."""
        medians = {kind: statistics.median(row) * 1e6 for kind, row in self._seconds.items()}
        pairs = zip(self._seconds[ours], self._seconds[nothing], strict=True)
        added = statistics.median(mine - theirs for mine, theirs in pairs) * 1e6
        return Share(
            what=what,
            microseconds=added / hook_calls,
            ratio=medians[ours] / medians[nothing],
            medians=medians,
        )


def report(shares: Sequence[Share]) -> None:
    """Prints them, a line each."""
    for share in shares:
        kinds = ", ".join(f"{kind} {median:.0f} us" for kind, median in share.medians.items())
        print(
            f"{share.what}: {share.microseconds:.1f} us a hook call, x{share.ratio:.3f} ({kinds})"
        )
