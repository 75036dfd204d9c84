"""How the subcommands write: rows for people, JSON for programs, remarks on standard error.

Names in a session come from strangers. Nothing of theirs is read as markup, and no character of
theirs reaches a terminal that could move its cursor, change colours or reverse the text.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from toolscope._config import Configuration
from toolscope.errors import Fault
from toolscope.verdicts import PluginVerdict

__all__ = [
    "complain",
    "fault_json",
    "printable",
    "say_configuration",
    "say_errors",
    "verdict_json",
    "write_heading",
    "write_json",
    "write_row",
]

_NARROWEST = 20


class _Console(Console):
    """Writes as wide as the terminal, and leaves it to the command what a closed pipe means."""

    def __init__(self) -> None:
        super().__init__(highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Raises the error that is being handled; rich would exit with 1, which means deny."""
        raise


def printable(text: str) -> str:
    """The text with every character that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def write_json(document: Mapping[str, Any]) -> None:
    """Writes one JSON object, in ASCII, to standard output."""
    print(json.dumps(document, indent=2))


def write_heading(text: str) -> None:
    """Writes a line that a block of rows stands under."""
    _write(Text(printable(text), style="bold"))


def write_row(label: str, text: str, *, style: str = "", indent: int = 2, width: int = 8) -> None:
    """Writes a label and a text beside it, wrapped to the width of the terminal.

    ``width`` is what the label takes at least, in columns.
    """
    console = _Console()
    start = Text.assemble((f"{' ' * indent}{printable(label):<{width}}  ", style))
    margin = indent + width + 2
    room = max(_NARROWEST, console.width - margin)
    first = Text()
    if start.cell_len > margin:
        _write(start)
        start = Text(" " * margin)
    for line in Text(printable(text)).wrap(console, room, overflow="fold") or [first]:
        _write(start + line)
        start = Text(" " * margin)


def _write(line: Text) -> None:
    line.rstrip()
    _Console().print(line, end="\n")


def complain(message: str) -> None:
    """Writes why there is no answer to standard error."""
    lines = message.split("\n")
    print(
        "\n".join(printable(one) for one in [f"toolscope: {lines[0]}", *lines[1:]]), file=sys.stderr
    )


def _remark(text: str) -> None:
    print(printable(text), file=sys.stderr)


def say_configuration(configuration: Configuration) -> None:
    """Says on standard error which configuration the answer follows from."""
    if configuration.path is None:
        _remark("configuration: none, so every installed plugin runs with its defaults")
    else:
        _remark(f"configuration: {configuration.path}")


def say_errors(verdicts: Iterable[PluginVerdict]) -> None:
    """Says on standard error what plugins failed at, each failure once."""
    failed = {f"plugin {one.plugin!r} failed: {one.error}": None for one in verdicts if one.error}
    for text in failed:
        _remark(text)


def verdict_json(one: PluginVerdict) -> dict[str, Any]:
    """A verdict as ``--json`` shows it."""
    verdict = one.verdict
    return {
        "plugin": one.plugin,
        "rule": verdict.rule,
        "code": verdict.code,
        "reason": verdict.reason,
    }


def fault_json(fault: Fault) -> dict[str, Any]:
    """A warning or an error about a session as ``--json`` shows it."""
    return {"path": fault.path, "problem": fault.problem, "cure": fault.cure}
