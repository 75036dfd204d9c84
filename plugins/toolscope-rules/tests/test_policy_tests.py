"""Tests of policies: how rows are read, what is wrong with them, and what a report holds."""

from pathlib import Path

import pytest
from toolscope_rules.policy_tests import Report, read_tests, run_tests

from toolscope.errors import ConfigurationError

POLICY = """\
[[rules]]
id = "danger"
effect = "deny"
tools = ["tag:danger"]
agents = ["bot"]
reach = "subtree"
[[rules]]
id = "big"
effect = "ask"
tools = ["mcp:bank/pay"]
when.sum.at_least = 100
"""


def report(folder: Path, tests: str) -> Report:
    """What comes of these tests of the policy."""
    file = folder / "policy.toml"
    file.write_text(POLICY + tests, encoding="utf-8")
    return run_tests(*read_tests(file))


@pytest.mark.parametrize(
    ("test", "passes"),
    [
        ('tool = "x"\nexpect = "allow"', True),
        ('tool = "x"\nexpect = "ask"', False),
        ('tool = { name = "x", tags = ["danger"] }\nexpect = "allow"', True),
        (
            (
                'tool = { name = "x", tags = ["danger"] }\nscope = { agent = "bot" }\n'
                'expect = "withheld"\nrule = "danger"'
            ),
            True,
        ),
        (
            (
                'tool = { name = "x", tags = ["danger"] }\n'
                'scope = { origin = "tool", ancestry = [{ agent = "bot" }] }\nexpect = "deny"'
            ),
            True,
        ),
        (
            (
                'tool = { name = "x", tags = ["danger"] }\nscope.ancestry = ["unknown"]\n'
                'expect = "deny"'
            ),
            True,
        ),
        ('tool = "mcp:bank/pay"\narguments = { sum = 100 }\nexpect = "ask"\nrule = "big"', True),
        ('tool = "mcp:bank/pay"\narguments = { sum = 100 }\nexpect = "ask"\nrule = "other"', False),
        ('tool = "mcp:bank/pay"\narguments = { sum = 99 }\nexpect = "allow"', True),
        ('tool = "mcp:bank/pay"\nexpect = "ask"', True),
        (
            'tool = { name = "q", provider = "mcp:bank", own_name = "pay" }\nexpect = "ask"',
            True,
        ),
        ('tool = "pay"\nexpect = "ask"', False),
    ],
)
def test_rows(tmp_path: Path, test: str, passes: bool) -> None:
    """Tools by name or in full, scopes with their ancestry, arguments, outcome and rule."""
    found = report(tmp_path, f"[[tests]]\n{test}\n")
    assert (found.rows, not found.failed) == (1, passes)


def test_a_failure_is_a_readable_diff(tmp_path: Path) -> None:
    """Place and name, what was expected, what came, and why."""
    text = (
        '[[tests]]\nname = "small sums"\ntool = "mcp:bank/pay"\narguments.sum = 500\n'
        'expect = "allow"'
    )
    (failed,) = report(tmp_path, text).failed
    assert str(failed).splitlines() == [
        "policy.toml:12 small sums",
        "  - allow",
        "  + ask by big",
        "    policy.toml:1 (danger) deny: does not apply, it is not about the tool 'mcp:bank/pay'",
        "    policy.toml:7 (big) ask: applies, [sum at_least 100] holds",
        "    so it is asked about by big",
        "    to pass: [sum at_least 100] of big must certainly not hold",
    ]


def test_coverage_counts_rules_that_decided(tmp_path: Path) -> None:
    """A rule that applies but decides nothing is not covered by that row."""
    found = report(tmp_path, '[[tests]]\ntool = "mcp:bank/pay"\nexpect = "ask"\n')
    assert (found.covered, found.uncovered) == (1, ("policy.toml:1 (danger)",))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ('expect = "deny"', "policy.toml:12: tests[0]: it names no tool; write tool ="),
        ('tool = "x"', "expect is None; allowed are allow, ask, deny, withheld"),
        ('tool = "x"\nexpect = "no"', "expect is 'no'; allowed are"),
        (
            'tool = "x"\nexpect = "deny"\nargs = {}',
            "a test has an unknown key 'args'; did you mean",
        ),
        ('tool = "x"\nexpect = "deny"\nscope = { origni = "tool" }', "did you mean 'origin'?"),
        ('tool = "x"\nexpect = "deny"\nscope = 5', "the scope is a int, not a table"),
        ('tool = { own_name = "x" }\nexpect = "deny"', "the tool has no name"),
        ('tool = { name = "x", provider = "y" }\nexpect = "deny"', "'y' is no provider"),
        ('tool = { name = "x", annotations = { a = 1 } }\nexpect = "deny"', "unknown key 'a'"),
    ],
)
def test_what_is_no_test_is_refused(tmp_path: Path, test: str, message: str) -> None:
    """A test that was misspelt would pass for the wrong reason."""
    with pytest.raises(ConfigurationError) as caught:
        report(tmp_path, f"[[tests]]\n{test}\n")
    assert message in str(caught.value)


def test_tests_in_a_file_of_their_own(tmp_path: Path) -> None:
    """It names the policy, relative to itself, and holds nothing else."""
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    tests = tmp_path / "tests.toml"
    row = '[[tests]]\ntool = "x"\nexpect = "allow"\n'
    tests.write_text(f'policy = "policy.toml"\n{row}', encoding="utf-8")
    policy, rows = read_tests(tests)
    assert (len(policy.rules), rows[0].place) == (2, "tests.toml:2")
    tests.write_text(f'policy = "policy.toml"\ndefault = "deny"\n{row}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="default: unknown key; known are policy, tests"):
        read_tests(tests)
