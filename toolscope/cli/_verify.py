"""``toolscope verify``: does a recorded AHP stream keep the contract?"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from toolscope.ahp.verify import Breach, Report, Trace, Verifier
from toolscope.cli._input import STANDARD_INPUT, JsonOption, UsageError
from toolscope.cli._output import printable, write_json, write_row
from toolscope.errors import Fault, WireError

__all__ = ["verify"]

TraceArgument = Annotated[
    str,
    Parameter(
        help="The recording: JSON lines or an array of envelopes or JSON-RPC messages; '-' reads "
        "standard input.",
        allow_leading_hyphen=True,
    ),
]

_STEP: Final = 1_000
"""After how many entries the progress bar moves."""


def verify(trace: TraceArgument, /, *, json: JsonOption = False) -> int:
    """Check a recorded AHP stream, from any host, against the contract of userChats tools.

    Exit status: 0 nothing found; 1 breaches; 2 the recording cannot be read.
    """
    if trace.startswith("-") and trace != STANDARD_INPUT:
        raise UsageError(f"no option {trace!r}; a file of that name is './{trace}'")
    report = _checked(trace)
    if json:
        write_json(
            {
                "breaches": [_breach_json(one) for one in report.breaches],
                "actions": report.actions,
                "snapshots": report.snapshots,
                "chats": report.chats,
            }
        )
    else:
        _write(report)
    return 1 if report.breaches else 0


def _checked(trace: str) -> Report:
    try:
        if trace == STANDARD_INPUT:
            return _report(sys.stdin.buffer, None)
        with Path(trace).open("rb") as stream:
            return _report(stream, os.fstat(stream.fileno()).st_size)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        problem = getattr(error, "strerror", None) or str(error)
        fault = Fault(path="", problem=problem, source=trace)
        raise WireError("the trace cannot be read", [fault]) from error


def _report(stream: BinaryIO, size: int | None) -> Report:
    verifier, entries = Verifier(), Trace(stream)
    breaches: list[Breach] = []
    with _progress(size) as moved_to:
        for count, (line, entry) in enumerate(entries):
            breaches.extend(verifier.feed(entry, line))
            if count % _STEP == 0:
                moved_to(entries.position)
    return verifier.report(breaches)


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error where that is a terminal, and the size is known."""
    console = Console(stderr=True)
    if not size or not console.is_terminal:
        yield lambda position: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("checking", total=size)
        yield lambda position: bar.update(task, completed=position)


def _breach_json(one: Breach) -> dict[str, object]:
    return {
        "line": one.line,
        "kind": one.kind.value,
        "chat": one.chat,
        "call_id": one.call_id,
        "tool": one.tool,
        "detail": one.detail or None,
    }


def _write(report: Report) -> None:
    if not report.breaches:
        what = f"{report.actions} actions, {report.snapshots} snapshots, {report.chats} chats"
        write_row("kept", f"no breach in {what}", style="green", indent=0)
        return
    width = len(f"line {report.breaches[-1].line}")
    for one in report.breaches:
        about = f"{one.kind.value}, {one.chat}"
        if one.call_id is not None:
            about += f", call {one.call_id}"
        if one.tool is not None:
            about += f" of {one.tool}"
        detail = f": {one.detail}" if one.detail else ""
        write_row(f"line {one.line}", printable(about + detail), style="red", indent=0, width=width)
    write_row("broken", f"{len(report.breaches)} breaches", style="red", indent=0, width=width)
