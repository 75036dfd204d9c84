"""``toolscope test``: the tests that stand beside a policy of the plugin ``rules``."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from toolscope.cli._input import ConfigOption, JsonOption, UsageError, find_configuration
from toolscope.cli._output import say_configuration, write_heading, write_json, write_row

__all__ = ["test"]


def test(
    file: Annotated[
        Path | None,
        Parameter(help="The file with [[tests]]. Else the policy that the configuration names."),
    ] = None,
    /,
    *,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Run the tests of a policy file: rows of tool, scope, arguments and expected outcome.

    Exit status: 0 all passed, 1 some failed, 2 if the file is broken or holds no tests.
    """
    try:
        tests: Any = import_module("toolscope_rules.policy_tests")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "toolscope_rules":
            raise
        raise UsageError(
            "testing a policy needs the plugin rules; install it: pip install toolscope-rules"
        ) from error
    if file is None:
        configuration = find_configuration(config)
        say_configuration(configuration)
        named = configuration.plugins.get("rules", {}).get("file")
        if not isinstance(named, str):
            raise UsageError("no file is given, and the configuration names none in plugins.rules")
        file = (configuration.folder or Path()) / named
    policy, rows = tests.read_tests(file)
    if not rows:
        raise UsageError(f"'{file}' holds no tests; write each as [[tests]]")
    report = tests.run_tests(policy, rows)
    if json:
        write_json(_as_json(report))
    else:
        _write(report)
    return 1 if report.failed else 0


# pytest takes a function of this name for a test wherever it is imported.
test.__test__ = False  # type: ignore[attr-defined]


def _as_json(report: Any) -> dict[str, Any]:
    return {
        "passed": report.rows - len(report.failed),
        "failed": [
            {
                "place": one.row.place,
                "name": one.row.name,
                "expected": one.row.expect,
                "outcome": one.outcome,
                "rules": list(one.rules),
                "explanation": list(one.explanation),
            }
            for one in report.failed
        ],
        "covered": report.covered,
        "uncovered": list(report.uncovered),
    }


def _write(report: Any) -> None:
    for one in report.failed:
        write_heading(f"{one.row.place} {one.row.name}")
        expected = one.row.expect if one.row.rule is None else f"{one.row.expect} by {one.row.rule}"
        write_row("expected", expected, style="green")
        write_row("got", f"{one.outcome} by {', '.join(one.rules)}", style="red")
        for line in one.explanation:
            write_row("", line)
        write_heading("")
    passed = report.rows - len(report.failed)
    write_row("tests", f"{passed} passed, {len(report.failed)} failed", indent=0)
    known = report.covered + len(report.uncovered)
    write_row("rules", f"{report.covered} of {known} decided a test", indent=0)
    for place in report.uncovered:
        write_row("", f"untested: {place}", style="yellow", indent=0)
