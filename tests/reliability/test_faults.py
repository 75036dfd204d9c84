"""Faults injected at random: no call that should be denied is allowed."""

import asyncio

import pytest

from tests.reliability.faults import CALL_FAULTS, LIST_FAULTS, run


def test_no_fault_of_a_plugin_permits_anything(capsys: pytest.CaptureFixture[str]) -> None:
    """With one of five plugins at fault in every third call, nothing wrong is ever allowed."""
    tally = asyncio.run(run(4_000, seed=7))
    with capsys.disabled():
        print(f"\n  {tally}")
    assert (tally.wrong_allows, tally.wrong_asks, tally.exceptions, tally.unrecorded) == (
        0,
        0,
        0,
        0,
    )
    assert tally.effects["allow"] > 100
    assert tally.effects["ask"] > 10
    assert set(tally.kinds) >= set(LIST_FAULTS) | set(CALL_FAULTS)


def test_the_tally_sees_a_wrong_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run would notice: with a truth that is stricter than the rules, allows are wrong."""
    monkeypatch.setattr("tests.reliability.faults.refused", lambda *_: False)
    rules_see_nothing = asyncio.run(run(300, seed=7))
    assert rules_see_nothing.wrong_allows == 0
    monkeypatch.setattr(
        "tests.reliability.faults.truth", lambda *_: __import__("toolscope").Effect.DENY
    )
    assert asyncio.run(run(300, seed=7)).wrong_allows > 0
