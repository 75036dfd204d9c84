"""What all tests share: the built distribution, and the coverage that a full run must reach."""

from io import StringIO
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import settings

from tests.environments import ROOT, make_environment, succeed, uv

FULLY_COVERED = [
    "toolscope/_answers.py",
    "toolscope/_chain.py",
    "toolscope/_frozen.py",
    "toolscope/_grants.py",
    "toolscope/_masking.py",
    "toolscope/_records.py",
    "toolscope/_register.py",
    "toolscope/ahp/*",
    "toolscope/builtin/*",
    "toolscope/calls.py",
    "toolscope/engine.py",
    "toolscope/listings.py",
    "toolscope/model/*",
    "toolscope/requests.py",
    "toolscope/scopes.py",
    "toolscope/stores.py",
    "toolscope/verdicts.py",
]
"""What decides, and what reads the wire: a full run covers every branch of it."""

settings.register_profile("default", max_examples=60, deadline=None, database=None)
settings.register_profile("nightly", max_examples=1000, deadline=None, database=None)
settings.load_profile("default")  # another one: pytest --hypothesis-profile=nightly

COVERAGE = pytest.StashKey[Coverage]()
REPORT = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """A full run, and only that, measures coverage: ``pytest`` without paths and selections."""
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    chosen = (
        *("keyword", "markexpr", "lf", "collectonly", "deselect", "cov_source"),
        "numprocesses",  # a share of the tests takes a share of the branches
    )
    worker = hasattr(config, "workerinput")
    if everything and not worker and not any(config.getoption(option, None) for option in chosen):
        coverage = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))
        config.stash[COVERAGE] = coverage
        coverage.start()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A full run fails where a branch of the core was not taken."""
    coverage = session.config.stash.get(COVERAGE, None)
    if coverage is None:
        return
    coverage.stop()
    report = StringIO()
    covered = coverage.report(file=report, include=FULLY_COVERED)
    session.config.stash[REPORT] = report.getvalue()
    if covered < 100 and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Shows the branches that were not taken."""
    report = config.stash.get(REPORT, None)
    if report is not None:
        terminalreporter.section("branch coverage of the core (100 % or the run fails)")
        terminalreporter.write_line(report.rstrip())


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    succeed([uv(), "build", "--quiet", "--package", "toolscope-policy", "--out-dir", folder])
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The built wheel."""
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel with the extra ``cli``, and no plugin."""
    return make_environment(tmp_path_factory.mktemp("installed") / "venv", f"{wheel}[cli]")
