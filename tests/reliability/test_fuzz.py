"""Broken documents: a few thousand in every run, a million in the long profile."""

import random
import tomllib
from typing import Any

import pytest
from hypothesis import settings

from tests.reliability.fuzz import POLICY, READERS, run


@pytest.mark.parametrize("name", READERS)
def test_the_sound_documents_are_read(name: str) -> None:
    """What is broken below is sound before, or its being refused would prove nothing."""
    document, read = READERS[name]
    read(document, random.Random(2))


def test_the_sound_policy_has_no_fault() -> None:
    """The rules reader answers with faults instead of raising: the sound policy has none."""
    from toolscope_rules import read_policy

    policy, faults = read_policy(POLICY)
    assert faults == []
    assert policy is not None


def test_only_errors_of_this_package_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is broken in a document, what comes out of its reader is a named error."""
    nightly = settings.get_current_profile_name() == "nightly"
    taken, refused = run(1_000_000 if nightly else 6_000, seed=3)
    with capsys.disabled():
        print(f"\n  {sum(taken.values()):,} read, {sum(refused.values()):,} refused")
    assert set(refused) == set(READERS) - {"rules"}
    assert set(taken) == set(READERS)


TOML = [
    "[",
    "a = ",
    "=",
    "\x00",
    'rules = "x"',
    "[[rules]]\nid = 1",
    "[plugins]\nrules = 3",
    "\ufeff",
]


@pytest.mark.parametrize("text", TOML)
def test_broken_files(text: str, tmp_path: Any) -> None:
    """A configuration file that is no TOML, or holds something else, is a named error."""
    from toolscope import ConfigurationError, PolicyEngine

    file = tmp_path / "toolscope.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError):
        PolicyEngine.load(file)
    with pytest.raises((tomllib.TOMLDecodeError, AssertionError)):
        assert set(tomllib.loads(text)) <= {"enable", "async_timeout"}
