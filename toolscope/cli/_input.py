"""What the subcommands are given: a session, a configuration, and the options they share."""

import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter

from toolscope._config import Configuration, read_configuration
from toolscope.ahp.session import Chat, Session
from toolscope.errors import Fault, ToolscopeError, WireError, nearest

__all__ = [
    "ConfigOption",
    "JsonOption",
    "SampleOption",
    "SessionArgument",
    "UsageError",
    "find_chat",
    "find_configuration",
    "read_session",
]


class UsageError(ToolscopeError):
    """The command line contradicts itself, or names what is not there."""


SessionArgument: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="The AHP session (or one chat) as a JSON file; '-' reads standard input.",
        # A bare '-' looks like an option. So this takes all that does; `read_session` sorts it out.
        allow_leading_hyphen=True,
    ),
]
SampleOption: TypeAlias = Annotated[
    bool,
    Parameter(
        help="Take the sample session that comes with toolscope.", negative=(), show_default=False
    ),
]
JsonOption: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--json", help="Answer as JSON (docs/command.md).", negative=(), show_default=False
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None, Parameter(help="The configuration file, instead of the one found here.")
]

STANDARD_INPUT: Final = "-"


def read_session(session: str | None, *, sample: bool) -> Session:
    """The session that the command line names: a file, standard input, or the sample.

    Raises:
        UsageError: None is named, or two are.
        WireError: It cannot be read.
    """
    if session is not None and session.startswith("-") and session != STANDARD_INPUT:
        raise UsageError(f"no option {session!r}; a file of that name is './{session}'")
    if (session is None) is not sample:
        raise UsageError(
            "name one session: a JSON file, '-' for standard input, or --sample for the one that "
            "comes with toolscope"
        )
    if session is None:
        return Session.read(files("toolscope.cli").joinpath("sample_session.json").read_bytes())
    try:
        document = (
            sys.stdin.buffer.read() if session == STANDARD_INPUT else Path(session).read_bytes()
        )
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        problem = getattr(error, "strerror", None) or str(error)
        fault = Fault(path="", problem=problem, source=session)
        raise WireError("the session cannot be read", [fault]) from error
    return Session.read(document)


def find_chat(session: Session, uri: str) -> Chat:
    """The chat of this URI.

    Raises:
        UsageError: There is none; the nearest URIs are named.
    """
    chat = session.chats.get(uri)
    if chat is None:
        near = nearest(uri, session.chats) or tuple(session.chats)[:3]
        known = f"there are {', '.join(map(repr, near))}" if near else "the session has no chats"
        raise UsageError(f"no chat {uri!r} in this session; {known}")
    return chat


def find_configuration(given: Path | None) -> Configuration:
    """The configuration that is given, else of ``TOOLSCOPE_CONFIG``, else of the current folder.

    Raises:
        ConfigurationError: The file cannot be read, or its top table is wrong.
    """
    configuration = read_configuration(given)
    if configuration.path is None:
        here = _configuration_in(Path.cwd())
        if here is not None:
            return read_configuration(here)
    return configuration


def _configuration_in(folder: Path) -> Path | None:
    file = folder / "toolscope.toml"
    if file.exists():
        return file
    file = folder / "pyproject.toml"
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return file  # it might hold the table: reading it as the configuration says what is wrong
    return file if isinstance(tool, dict) and "toolscope" in tool else None
