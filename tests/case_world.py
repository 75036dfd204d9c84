"""What a case describes, as the values of this package: a host in miniature."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolscope_rules import RulesPlugin, RulesSettings, holds
from toolscope_rules.matchers import MATCHERS
from toolscope_rules.selectors import SelectorIndex, read_selector
from toolscope_rules.writing import to_toml

from tests.case_plugins import Check, Limits, ListCheck, selector, selectors
from tests.case_words import POLICY, RULE, UnknownWord, choose, policy
from toolscope import (
    HOST,
    UNKNOWN,
    Agent,
    Ancestor,
    Annotations,
    ConfigurationError,
    PolicyEngine,
    Provider,
    ProviderKind,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.calls import CallLedger, grant_for
from toolscope.model import AnyArguments, Reach

__all__ = ["World", "reach_of"]

TIMEOUT: Final = 0.2
"""The longest that a check may take, in seconds, whatever longer limit the case tells of."""
_ANNOTATIONS: Final = {
    "readOnlyHint": "read_only", "readOnly": "read_only", "read_only": "read_only",
    "destructiveHint": "destructive", "destructive": "destructive",
    "idempotentHint": "idempotent", "idempotent": "idempotent",
    "openWorldHint": "open_world", "openWorld": "open_world", "open_world": "open_world",
}  # fmt: skip


def reach_of(text: str) -> Reach:
    """How far an answer or a grant goes."""
    words = {"once": Reach.ONCE, "this chat": Reach.CHAT, "chat": Reach.CHAT}
    words |= {"subtree": Reach.SUBTREE}
    return words[choose("a reach", text, words)]


def arguments_bound(args: Any) -> tuple[Mapping[str, Any] | AnyArguments | None, Any]:
    """What ``args`` of a grant binds: exact arguments (or any), or a condition."""
    if args is None or args == "any":
        return AnyArguments.ANY, None
    if not isinstance(args, Mapping):
        raise UnknownWord(f"the args of a grant: {args!r}")
    condition = conditions(args)
    if args and all(isinstance(one, Mapping) and one for one in args.values()):
        return None, condition
    return args, None


def conditions(args: Mapping[str, Any]) -> dict[str, Any]:
    """The argument conditions of a case in the words of the rules."""
    found: dict[str, Any] = {}
    for name, tests in args.items():
        if not isinstance(tests, Mapping):
            found[name] = {"equals": tests}
            continue
        found[name] = one = {}
        for matcher, wanted in tests.items():
            if matcher == "starts_with_word":
                one["starts_with_words"] = [wanted]
            else:
                one[choose("a matcher", matcher, MATCHERS)] = wanted
    return found


class World:
    """One case: its tools, chats, agents and clients as they are now, an engine and a ledger."""

    def __init__(self, case: Mapping[str, Any], folder: Path) -> None:
        context = case.get("context", {})
        self.folder = folder
        self.now = 1_000_000.0
        self.callback: Any = None
        self.chats: dict[str, dict[str, Any]] = dict(context.get("chats", {}))
        self.agents: dict[str, dict[str, Any]] = {
            name: dict(agent) for name, agent in context.get("agents", {}).items()
        }
        self.clients: dict[str, str] = dict(context.get("clients", {}))
        self.tools: list[dict[str, Any]] = [dict(tool) for tool in case.get("tools", ())]
        self.trusted: list[str] = list(context.get("trusted_servers", ()))
        self.grace: float = context.get("grace_s", 0)
        self.policy: Mapping[str, Any] = case.get("policy", {})
        self.saved_scopes: dict[str, Any] = {}
        self.limits: Limits | None = None
        self.refused: str | None = None
        policy(self.policy)
        try:
            self.engine = self.make_engine(self.policy)
        except ConfigurationError as error:
            # A host without a policy shows nothing, until one is loaded.
            self.refused = str(error)
            self.engine = self.make_engine({"default": "deny"})
        self.ledger = self.make_ledger()
        for grant in context.get("grants", ()):
            self._grant(grant)

    # ----------------------------------------------------------------------------------------

    def make_engine(
        self,
        table: Mapping[str, Any],
        *,
        known_tools: Sequence[str] | None = None,
        mode: str = "strict",
    ) -> PolicyEngine:
        """The engine of a policy, which is written to a file and read by the plugin ``rules``.

        What the cases have no word for goes into the file as it is: the plugin is to refuse it.
        """
        file = self.folder / "policy.toml"
        file.write_text(to_toml(self._document(table, known_tools)), encoding="utf-8")
        made: list[RulesPlugin] = []

        class Rules(RulesPlugin):
            """The plugin, kept at hand for its findings."""

            def __init__(self, settings: RulesSettings) -> None:
                super().__init__(settings)
                made.append(self)

        plugins: list[object] = [Rules]
        timeouts = [TIMEOUT]
        for rule in table.get("rules", ()):
            kind, colon, name = str(rule.get("effect")).partition(":")
            if colon:
                choose("an effect", kind, ("callback", "list_callback"))
                make = Check(self, rule, name) if kind == "callback" else ListCheck(self, name)
                plugins.append(make)
                timeouts.append(rule.get("timeout_s", TIMEOUT))
        if table.get("limits"):
            self.limits = Limits(self, table["limits"])
            plugins.append(self.limits)
        config = {
            "async_timeout": float(min(timeouts)),
            "plugins": {"rules": {"file": str(file), "mode": mode}},
        }
        engine = PolicyEngine(plugins, config=config)
        self.rules = made[-1]
        return engine

    def _document(
        self, table: Mapping[str, Any], known_tools: Sequence[str] | None
    ) -> dict[str, Any]:
        document: dict[str, Any] = {
            **{key: value for key, value in table.items() if key not in POLICY},
            "default": table.get("default", "allow"),
            "trusted": ["host", *(f"mcp:{one.removeprefix('server:')}" for one in self.trusted)],
        }
        if known_tools is not None:
            document["known_tools"] = [selector(one) for one in known_tools]
        rules = [
            self._rule(rule, place)
            for place, rule in enumerate(table.get("rules", ()))
            if ":" not in str(rule.get("effect"))
        ]
        for name, agent in self.agents.items():
            if agent.get("deny"):
                tools = [selector(one) for one in agent["deny"]]
                rules.append(
                    {"id": f"{name}.deny", "effect": "deny", "tools": tools, "agents": [name]}
                )
        if rules:
            document["rules"] = rules
        return document

    def _rule(self, rule: Mapping[str, Any], place: int) -> dict[str, Any]:
        made: dict[str, Any] = {key: value for key, value in rule.items() if key not in RULE}
        made["id"] = rule.get("id", f"rule-{place}")
        if "effect" in rule:
            made["effect"] = rule["effect"]
        tools = selectors(rule)
        spared: list[str] = []
        if "annotation" in rule:
            tools, spared = self._by_annotation(rule, tools)
        if tools or "annotation" in rule:
            made["tools"] = tools
        if "unless_tag" in rule:
            spared.append(f"tag:{rule['unless_tag']}")
        if spared:
            made["except"] = spared
        if "agent" in rule:
            made["agents"] = [rule["agent"]]
        if "declared_in" in rule:
            made["attributes"] = {"chat": rule["declared_in"]}
        if "reach" in rule:
            made["reach"] = choose("a reach", rule["reach"], ("self", "subtree"))
        if rule.get("args"):
            made["when"] = conditions(rule["args"])
        if "reason" in rule:
            made["reason"] = rule["reason"]
        return made

    def _by_annotation(
        self, rule: Mapping[str, Any], tools: list[str]
    ) -> tuple[list[str], list[str]]:
        """The selectors, and those of what is spared, of a rule about an annotation."""
        wanted = rule["annotation"]
        pairs = [(wanted, True)] if isinstance(wanted, str) else list(wanted.items())
        if len(pairs) != 1:
            raise UnknownWord(f"an annotation: {wanted!r}")
        name, value = pairs[0]
        hint = _ANNOTATIONS[choose("an annotation", name, _ANNOTATIONS)]
        if rule.get("only_trusted"):
            if tools:  # selected by both: what has the opposite hint is spared
                return tools, [f"hint:{hint}={str(not value).lower()}"]
            return [f"hint:{hint}={str(value).lower()}"], []
        index = SelectorIndex([(read_selector(one), 1) for one in tools or ["**"]], generous=True)
        found = [
            tool.identity
            for tool in self.toolset()
            if getattr(tool.annotations, hint) is value and index.owners(tool)
        ]
        return found, []

    def make_ledger(self) -> CallLedger:
        """A ledger of the engine in force."""
        return CallLedger(lambda: self.engine, clock=lambda: self.now, conditions=holds)

    def _grant(self, grant: Mapping[str, Any]) -> None:
        exact, condition = arguments_bound(grant.get("args"))
        for tool in self.toolset():
            if tool.name != grant["tool"]:
                continue
            if "server" in grant and tool.provider != Provider.mcp(grant["server"]):
                continue
            made = grant_for(
                tool,
                chat=grant["given_in"],
                reach=reach_of(grant.get("reach", "this chat")),
                arguments=exact,
                condition=condition,
            )
            self.ledger.grant(made)

    # ----------------------------------------------------------------------------------------

    def toolset(self) -> Toolset:
        """The tools as they are now: those of clients that are there, without output tools."""
        return Toolset(
            self._tool(tool)
            for tool in self.tools
            if tool.get("role") != "output" and self._is_there(tool)
        )

    def outputs(self) -> list[str]:
        """The names of the tools that only carry the run to its end."""
        return [tool["name"] for tool in self.tools if tool.get("role") == "output"]

    def _is_there(self, tool: Mapping[str, Any]) -> bool:
        kind, _, name = tool.get("from", "host").partition(":")
        state = self.clients.get(name, "connected")
        choose("a client's state", state, ("connected", "disconnected"))
        return kind != "client" or state == "connected"

    def _tool(self, tool: Mapping[str, Any]) -> Tool:
        choose("a role", tool.get("role", "function"), ("function", "gateway", "control"))
        kind, _, name = tool.get("from", "host").partition(":")
        choose("a provider", kind, ("host", "server", "client"))
        provider = {
            "host": lambda _: HOST, "server": Provider.mcp, "client": Provider.client
        }[kind](name)  # fmt: skip
        given = tool.get("annotations", {})
        hints: dict[str, Any] = {
            _ANNOTATIONS[choose("an annotation", key, _ANNOTATIONS)]: value
            for key, value in (
                given if isinstance(given, Mapping) else dict.fromkeys(given, True)
            ).items()
        }
        return Tool(
            name=tool["name"],
            own_name=tool.get("own_name", ""),
            provider=provider,
            description=tool.get("description"),
            input_schema=tool.get("input_schema"),
            availability=tool.get("availability", "session"),
            tags=tool.get("tags", ()),
            former_names=tool.get("former_names", ()),
            annotations=Annotations(**hints),
        )

    def scope(self, chat: str) -> Scope:
        """The scope of a chat as it is now; raises `ScopeError` where it was lost."""
        if chat in self.saved_scopes:
            return Scope.from_json(self.saved_scopes[chat])
        facts = self.chats[chat]
        return Scope(
            origin=facts.get("origin"),
            agent=self._agent(facts.get("agent")),
            ancestry=[one for _, one in self._above(chat)],
            can_ask=facts.get("approver", True),
            attributes={"chat": chat},
        )

    def ancestors(self, chat: str) -> list[str | None]:
        """The ids of the chats above, beside the scope's ancestry."""
        return [above for above, _ in self._above(chat)]

    def _above(self, chat: str) -> Iterator[tuple[str | None, Any]]:
        seen = {chat}
        parent = self.chats[chat].get("parent")
        while parent is not None:
            if parent not in self.chats or parent in seen:
                yield None, UNKNOWN
                return
            seen.add(parent)
            facts = self.chats[parent]
            attributes = {"chat": parent}
            yield (
                parent,
                Ancestor(
                    origin=facts.get("origin"), agent=facts.get("agent"), attributes=attributes
                ),
            )
            parent = facts.get("parent")

    def _agent(self, name: str | None) -> Agent | None:
        if name is None:
            return None
        allow = self.agents.get(name, {}).get("allow")
        return Agent(name=name, tools=None if allow is None else set(self._entries(allow)))

    def _entries(self, allow: Sequence[str]) -> Iterator[str]:
        """Entries of an allowlist, which are exact here: a pattern stands for what it matches."""
        for entry in allow:
            text = selector(entry)
            if entry == "*":
                yield "*"
            elif "*" in text and not text.endswith("/*"):
                index = SelectorIndex([(read_selector(text), 1)], generous=False)
                yield from (tool.identity for tool in self.toolset() if index.owners(tool))
            else:
                yield text

    # ----------------------------------------------------------------------------------------

    def call(self, chat: str, facts: Mapping[str, Any], args: Any) -> ToolCall:
        """One call of an event."""
        server = facts.get("server")
        return ToolCall(
            id=facts.get("call_id"),
            name=facts["tool"],
            provider=None if server is None else Provider.mcp(server),
            arguments=args if isinstance(args, (str, Mapping)) else json.dumps(args),
            chat=chat,
            ancestors=self.ancestors(chat),
            via=facts.get("via"),
        )

    def save_and_restore(self, chat: str | None) -> None:
        """What was remembered goes through JSON text, as into another process."""
        saved = {one: self.scope(one).to_json() for one in ([chat] if chat else self.chats)}
        self.saved_scopes |= json.loads(json.dumps(saved))
        remembered = json.loads(json.dumps(self.ledger.save()))
        self.engine = self.make_engine(self.policy) if self.limits is None else self.engine
        self.ledger = self.make_ledger()
        self.ledger.load(remembered)

    def change_agent(self, agent: str, allow: Sequence[str] | None) -> None:
        """The agent's definition changes; scopes that were saved keep the old one no longer."""
        self.agents.setdefault(agent, {})["allow"] = allow
        for chat, facts in self.chats.items():
            if facts.get("agent") == agent:
                self.saved_scopes.pop(chat, None)

    def contribute(self, client: str, tools: Sequence[Any]) -> None:
        """A client is there, with these tools (names of the case's tools, or whole ones)."""
        self.clients[client] = "connected"
        theirs = f"client:{client}"
        names = [one if isinstance(one, str) else one["name"] for one in tools]
        known = {t["name"]: t for t in self.tools if t.get("from") == theirs}
        self.tools = [tool for tool in self.tools if tool.get("from") != theirs]
        for name, given in zip(names, tools, strict=True):
            made = dict(given) if isinstance(given, Mapping) else known.get(name, {"name": name})
            self.tools.append({**made, "from": theirs})
        self.ledger.provider_returned(Provider.client(client))

    @staticmethod
    def executor(provider: Provider | None) -> str | None:
        """Who executes, in the words of the cases."""
        if provider is None:
            return None
        kinds = {ProviderKind.MCP: f"server:{provider.id}", ProviderKind.CLIENT: provider.id}
        return kinds.get(provider.kind, "host")
