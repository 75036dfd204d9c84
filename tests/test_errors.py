"""Errors: one root, and texts that say the cause, the place and the cure."""

import copy
import pickle

import pytest

import toolscope.errors as errors
from toolscope.errors import (
    ConfigurationError,
    Fault,
    PluginError,
    ToolscopeError,
    WireError,
    nearest,
)


def test_every_error_has_one_root() -> None:
    """A host may catch them all; the tree in the docstring names each."""
    found = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, Exception) and not one.__name__.startswith("_")
    ]
    assert all(issubclass(one, ToolscopeError) for one in found)
    assert {one.__name__ for one in found} <= set(errors.__all__)
    for one in found:
        assert errors.__doc__ is not None
        assert one.__name__ in errors.__doc__
        assert one.__doc__


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(path="a.b", problem="unknown key"), "a.b: unknown key"),
        (Fault(path="", problem="broken"), "broken"),
        (Fault(path="a", problem="wrong", cure="set it"), "a: wrong; set it"),
        (Fault(path="a", problem="wrong", source="f.toml"), "f.toml: a: wrong"),
        (Fault(path="", problem="wrong", source="f.toml", cure="x"), "f.toml: wrong; x"),
    ],
)
def test_a_fault_says_where_what_and_what_to_do(fault: Fault, text: str) -> None:
    """As far as it knows."""
    assert str(fault) == text


def test_an_error_lists_every_fault() -> None:
    """One on the line of the title, several below it; the faults are data, too."""
    one, two = Fault(path="a", problem="x"), Fault(path="b", problem="y")
    for kind in (ConfigurationError, WireError):
        assert str(kind("it is wrong", [one])) == "it is wrong: a: x"
        error = kind("it is wrong", [one, two])
        assert str(error) == "it is wrong: 2 faults\n  a: x\n  b: y"
        assert error.faults == (one, two)


def test_errors_cross_processes() -> None:
    """With their data: they are raised in workers, too."""
    for error in (
        ConfigurationError("t", [Fault(path="a", problem="x", cure="c")]),
        PluginError("rules", "it has no hookimpl"),
    ):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error)
            assert str(again) == str(error)
    assert str(PluginError("rules", "no hook")) == "plugin 'rules': no hook"


def test_the_nearest_names_are_those_most_like_it() -> None:
    """Case does not count; nothing near is nothing; huge names cost nothing."""
    known = ["availability", "allowlist", "Rules", "rules", "limits"]
    assert nearest("alowlist", known) == ("allowlist",)
    assert nearest("RULE", known) == ("Rules", "rules")
    assert nearest("RULE", known, 1) == ("Rules",)
    assert nearest("zzz", known) == ()
    assert nearest("x" * 1_000_000, known) == ()
    assert nearest("rules", ["r" * 1_000_000, "rules"]) == ("rules",)
