"""The command line as a whole: its subcommands, and what becomes of an error."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Final

from cyclopts import App, CycloptsError, UnusedCliTokensError

from toolscope.cli._call import call
from toolscope.cli._check import check
from toolscope.cli._explain import explain
from toolscope.cli._output import complain
from toolscope.cli._plugins import plugins
from toolscope.cli._proxy import proxy
from toolscope.cli._test import test
from toolscope.cli._tools import tools
from toolscope.cli._verify import verify
from toolscope.errors import ToolscopeError

__all__ = ["COMMANDS", "run"]

COMMANDS: Final[Sequence[Callable[..., int]]] = (
    tools,
    call,
    explain,
    plugins,
    check,
    verify,
    test,
    proxy,
)
"""The subcommands, in the order of the help page. A new one is a module and an entry here.

Each is a function whose name is the subcommand's and which returns the exit status.
"""

BROKEN: Final = 2
"""The exit status of bad usage and bad input."""

PIPE_CLOSED: Final = 141
"""The exit status where the reader of standard output went away, as a shell reports it."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit status."""
    app = App(
        name="toolscope",
        help="Shows which tools the agents of a session may be shown, and what becomes of a call.",
        version=lambda: version("toolscope-policy"),
        help_formatter="plain",
    )
    for command in COMMANDS:
        app.command(command)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
    except UnusedCliTokensError as error:
        complain(f"{' '.join(error.unused_tokens or ())!r} is one argument too many")
        return BROKEN
    except CycloptsError as error:
        text = str(error).rstrip(".")
        complain(f"{text[:1].lower()}{text[1:]}; see 'toolscope --help'")
        return BROKEN
    except ToolscopeError as error:
        complain(str(error))
        return BROKEN
    except BrokenPipeError:
        # Python flushes standard output once more when it ends; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return status if isinstance(status, int) else 0
