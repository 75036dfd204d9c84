"""``toolscope proxy``: puts a policy in front of an MCP server, which need not know of it."""

import shutil
from importlib.util import find_spec
from typing import Annotated, Literal

from cyclopts import Parameter

from toolscope._config import read_configuration
from toolscope.cli._input import UsageError
from toolscope.cli._output import say_configuration
from toolscope.engine import PolicyEngine
from toolscope.model import Scope

__all__ = ["proxy"]


def proxy(
    *command: Annotated[
        str, Parameter(help="The server: a command that speaks MCP on its standard streams.")
    ],
    url: Annotated[str | None, Parameter(help="The server: its URL, instead of a command.")] = None,
    origin: Annotated[
        Literal["user", "fork", "sideChat", "tool"] | None,
        Parameter(help="How the chat came to exist whose agent uses the proxy; absent by default."),
    ] = None,
    trust_declared_origin: Annotated[
        bool,
        Parameter(
            help="Let a client claim a wider origin than that. A claim of 'tool' always counts.",
            negative=(),
            show_default=False,
        ),
    ] = False,
    config: Annotated[
        str | None,
        Parameter(
            help="The configuration file; without it, the one that TOOLSCOPE_CONFIG names. The "
            "current folder is not searched."
        ),
    ] = None,
) -> int:
    """Serve an MCP server on standard input and output, under the policy.

    Tools that are withheld are not listed, and their calls fail. Write the server's command after
    '--'. Exit status: 0 when the client has gone; 2 if the proxy cannot be started.
    """
    if bool(command) == (url is not None):
        raise UsageError("name one server: its command after '--', or its --url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no URL; it begins with 'http://' or 'https://'")
    if command and shutil.which(command[0]) is None:
        raise UsageError(f"there is no command {command[0]!r}; give its path, or mend PATH")
    if find_spec("fastmcp") is None:
        raise UsageError(
            "the proxy needs fastmcp, which is not installed; install its extra: "
            "pip install 'toolscope-policy[proxy]'"
        )
    # Agents write into current folders, and a proxy is there to hold them: so not searched.
    configuration = read_configuration(config)
    engine = PolicyEngine.load(configuration.path)
    say_configuration(configuration)

    # Importing FastMCP takes seconds, and the other subcommands do without it.
    from toolscope.hosts._fastmcp_proxy import make_proxy, transport_to

    server = make_proxy(
        transport_to(command, url),
        engine,
        scope=Scope(origin=origin),
        trust_declared_origin=trust_declared_origin,
    )
    server.run(transport="stdio", show_banner=False, log_level="warning")
    return 0
