"""The command ``toolscope`` (extra ``cli``). ``docs/command.md`` is its manual.

Standard output carries the answer and nothing else; standard error says which configuration was
used, what plugins failed at, and why there is no answer.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments (None = those of the process).

    Returns:
        The exit status: 2 for bad usage and bad input, else what the subcommand's manual says.
    """
    missing = [name for name in ("cyclopts", "rich") if find_spec(name) is None]
    if missing:
        print(
            f"toolscope: the command needs {' and '.join(missing)}, which are not installed; "
            "install its extra: pip install 'toolscope-policy[cli]'",
            file=sys.stderr,
        )
        return 2
    from toolscope.cli._app import run

    return run(sys.argv[1:] if arguments is None else arguments)
