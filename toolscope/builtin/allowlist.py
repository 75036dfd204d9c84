"""The built-in plugin ``allowlist``: an agent is scoped to the tools its definition names."""

from toolscope.errors import ToolsetError
from toolscope.hookspecs import ListAnswer, hookimpl
from toolscope.model import Agent, Provider, ProviderKind, Toolset
from toolscope.verdicts import Verdict, deny

__all__ = ["AllowlistPlugin", "Entries"]


class Entries:
    """The entries of one agent's allowlist, sorted by what they compare.

    An entry that begins with a provider's text form is about that provider only; it never matches
    a tool whose *name* merely looks like it.
    """

    def __init__(self, entries: frozenset[str]) -> None:
        self.everything = "*" in entries
        self.providers = set[Provider]()
        self.tools = set[tuple[Provider, str]]()
        # Most allowlists hold plain names only; one look at their joined text costs a third of a
        # look at each, and that is most of what a new allowlist costs.
        joined = "\n".join(entries)
        qualified = (
            [entry for entry in entries if entry.startswith(_PREFIXES)]
            if ":" in joined or "/" in joined
            else []
        )
        self.names = entries.difference(qualified) if qualified else entries
        for entry in qualified:
            text, _, own_name = entry.partition("/")
            try:
                provider = Provider.parse(text)
            except ToolsetError:
                continue  # meant for a provider that cannot exist: it matches nothing
            if own_name == "*":
                self.providers.add(provider)
            else:
                self.tools.add((provider, own_name))


_PREFIXES = tuple(
    f"{kind}:" if kind in (ProviderKind.CLIENT, ProviderKind.MCP) else f"{kind}/"
    for kind in ProviderKind
)


class AllowlistPlugin:
    """Withholds what the agent's allowlist does not name. No allowlist: no opinion."""

    name = "allowlist"

    @hookimpl
    def filter_tools(self, tools: Toolset, agent: Agent | None) -> ListAnswer:
        """Names every tool that no entry of ``agent.tools`` matches."""
        if agent is None or agent.tools is None:
            return {}
        allowed = Entries(agent.tools)
        if allowed.everything:
            return {}
        verdict = _not_listed(agent.name)
        names = allowed.names
        if not allowed.providers and not allowed.tools:
            return {tool: verdict for tool in tools if tool.name not in names}
        return {
            tool: verdict
            for tool in tools
            if tool.name not in names
            and tool.provider not in allowed.providers
            and (tool.provider, tool.own_name) not in allowed.tools
        }


_LONGEST_NAME = 100


def _not_listed(agent: str) -> Verdict:
    shown = agent if len(agent) <= _LONGEST_NAME else f"{agent[:_LONGEST_NAME]}..."
    return deny(
        f"it is not among the tools of the agent '{shown}'; use the tools this agent has, or leave "
        "the task to another agent",
        rule="agent.tools",
    )
