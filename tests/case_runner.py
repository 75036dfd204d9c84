"""Runs cases of the form of the case files: what a host would do, event by event.

``python tests/case_runner.py FILE.json`` prints a line a case and ends with ``N passed, M failed``;
the exit status is 0 if all passed. A word that is not known here fails the case and is named.

A case is translated, not interpreted: its rules become a policy file that the installed plugin
``rules`` reads, its chats become scopes, and every question goes through `CallLedger`.
"""

import functools
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.case_expectations import Facts, unmet
from tests.case_words import UnknownWord, check_words, choose
from tests.case_world import World, arguments_bound, reach_of
from toolscope import ConfigurationError, Decision, Effect, Provider, Scope, ScopeError, Tool
from toolscope.calls import answer_to
from toolscope.errors import ApprovalError
from toolscope.model import Approval, Reach, arguments_digest
from toolscope.requests import RequestProblem

__all__ = ["Problem", "main", "run_case"]


@attrs.frozen
class Problem:
    """One expectation that was not met."""

    event: str
    text: str

    def __str__(self) -> str:
        return f"{self.event}: {self.text}"


class Run:
    """One case being run."""

    def __init__(self, case: Mapping[str, Any], folder: Path) -> None:
        self.world = World(case, folder)
        self.case = case
        self.decisions: dict[str, Decision] = {}
        self.asked: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.results: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        self.executions: dict[str, int] = {}
        self.saved_since_answer = False
        self.last_list: tuple[str, Mapping[str, Any]] | None = None
        self.ends_later = {
            event["call_id"]
            for event in case["events"]
            if event["do"] in ("result", "client_completes", "cancel")
        }
        self.clients_end = any(e["do"] in ("client_leaves", "time_passes") for e in case["events"])

    def event(self, event: Mapping[str, Any]) -> Facts:
        """Does one event and says what it came to."""
        self.world.callback = event.get("callback")
        started = time.perf_counter()
        ignored = len(self.world.ledger.ignored)
        facts: Facts = getattr(self, f"_{event['do']}")(event) or {}
        facts["within_s"] = time.perf_counter() - started
        if len(self.world.ledger.ignored) > ignored:
            facts.setdefault("outcome", "ignored")
        call_id = event.get("call_id")
        if call_id is not None:
            state = self.world.ledger.state(self._chat_of(call_id, event), call_id)
            facts["state"] = None if state is None else state.value
        facts["results"] = facts["result_for"] = dict(self.results)
        facts["executions"] = {**dict.fromkeys(self.asked, 0), **self.executions}
        facts["results_per_call"] = dict(self.ends)
        facts.setdefault("prompts", 0)
        if self.world.refused is not None:
            facts.setdefault("refused", True)
        return facts

    def _chat_of(self, call_id: str, event: Mapping[str, Any]) -> str:
        chat: str = event["chat"] if "chat" in event else self.asked[call_id][0]
        return chat

    # ------------------------------------------------------------------------------- listings

    def _list(self, event: Mapping[str, Any]) -> Facts:
        self.last_list = (event["chat"], event)
        try:
            scope = self.world.scope(event["chat"])
        except ScopeError as error:
            return {"listed": [], "refused": True, "text": str(error)}
        listing = self.world.ledger.filter_tools(self.world.toolset(), scope)
        history = _names(self.world.chats[event["chat"]].get("history", ()))
        check = listing.check_request(
            tool_choice=event.get("tool_choice"),
            history_tool_names=history,
            needs_tools=bool(event.get("provider_needs_nonempty_tools")),
        )
        outputs = self.world.outputs()
        sent = [tool.name for tool in listing] + outputs
        problems, choice = list(check.problems), check.tool_choice
        if outputs:  # they are sent too, so the request is not empty
            problems = [one for one in problems if one is not RequestProblem.EMPTY_LIST]
            if event.get("tool_choice") in outputs:
                problems = [p for p in problems if p is not RequestProblem.FORCED_CHOICE_HIDDEN]
                choice = event["tool_choice"]
            elif not listing:
                choice = "auto" if problems else event.get("tool_choice")
        errors = [one for tool in listing.withheld for one in listing.verdicts(tool) if one.error]
        return {
            "listed": sorted(sent),
            "collision": bool(listing.collisions),
            "listed_distinct": len({tool.identity for tool in listing}),
            "errors": " ".join(sorted({f"{one.plugin}: {one.error}" for one in errors})),
            "flags": _flags(problems),
            "hidden_in_history": list(check.hidden_in_history),
            "request_tools": sorted(sent or filter(None, [check.placeholder])) or "left out",
            "placeholder": check.placeholder is not None and not outputs,
            "tool_choice": "left out" if choice is None else choice,
            "warning": bool(problems),
            "text": " ".join(check.repairs),
        }

    def _filter_again(self, event: Mapping[str, Any]) -> Facts:
        if self.last_list is None:
            raise UnknownWord("filter_again before any list")
        chat, last = self.last_list
        return self._list({**last, **event, "chat": chat})

    def _check_request(self, event: Mapping[str, Any]) -> Facts:
        return self._list(event)

    def _search_result(self, event: Mapping[str, Any]) -> Facts:
        facts = self._list({"chat": event["chat"]})
        found = [name for name in facts["listed"] if name in event["candidates"]]
        return {**facts, "listed": sorted(found)}

    # ------------------------------------------------------------------------------- calls

    def _call(self, event: Mapping[str, Any]) -> Facts:
        return self._submit(event["chat"], event)

    def _calls(self, event: Mapping[str, Any]) -> Facts:
        facts: dict[str, Facts] = {}
        for call in event["calls"]:
            chat = call.get("chat", event.get("chat"))
            facts[call["call_id"]] = self._submit(chat, call)
        return self._together(facts)

    def _together(self, facts: Mapping[str, Facts]) -> Facts:
        return {
            "decisions": {call_id: one["decision"] for call_id, one in facts.items()},
            "prompts": sum(one["prompts"] for one in facts.values()),
        }

    def _submit(self, chat: str, call: Mapping[str, Any]) -> Facts:
        """Hands a call in, and executes it if it may run."""
        call_id = call["call_id"]
        known = self.decisions.get(call_id)
        waiting = known is not None and known.effect is Effect.ASK
        self.asked[call_id] = (chat, call)
        try:
            scope = self.world.scope(chat)
        except ScopeError as error:
            return {"decision": "deny", "result": "failed", "refused": True, "text": str(error)}
        produced = self.world.call(chat, call, call.get("args", {}))
        final = produced
        if "rewritten_to" in call:
            final = self.world.call(chat, call, call["rewritten_to"])

        async def ask() -> Decision:
            return await self.world.ledger.on_tool_call_async(
                final,
                self.world.toolset(),
                scope,
                produced=produced if final is not produced else None,
            )

        decision = anyio.run(ask)
        self.decisions[call_id] = decision
        return self._facts(decision, call_id, waiting=waiting)

    def _facts(self, decision: Decision, call_id: str, *, waiting: bool) -> Facts:
        facts: Facts = {
            "decision": decision.effect.value,
            "executed_by": World.executor(decision.provider),
            "client_asked": None,
            "prompts": int(decision.effect is Effect.ASK and not waiting),
            "record": json.dumps(decision.record(arguments=self._redactor())),
            "errors": " ".join(f"{one.plugin}: {one.error}" for one in decision.errors),
            "failure": decision.failure,
            "result": None,
        }
        match decision.effect:
            case Effect.ALLOW:
                self._executed(decision, call_id)
                facts["result"] = "executed"
                if str(decision.provider).startswith("client:"):
                    facts["client_asked"] = facts["executed_by"]
            case Effect.ASK:
                facts["executed_by"] = None
            case Effect.DENY:
                facts["result"] = "failed"
                if call_id not in self.results:
                    self._ended(call_id, "failed")
        if decision.failure is not None:
            facts |= _of_failure(decision.failure, self.world)
        return facts

    def _executed(self, decision: Decision, call_id: str) -> None:
        self.executions[call_id] = self.executions.get(call_id, 0) + 1
        client = str(decision.provider).startswith("client:")
        if call_id not in self.ends_later and not (client and self.clients_end):
            self._ended(call_id, "executed")

    def _ended(self, call_id: str, result: str) -> None:
        self.results[call_id] = result
        self.ends[call_id] = self.ends.get(call_id, 0) + 1

    def _redactor(self) -> Any:
        audit = self.world.policy.get("audit")
        if audit in (None, True) or (isinstance(audit, Mapping) and not audit):
            return None
        if isinstance(audit, Mapping) and set(audit) == {"arguments"}:
            choose("audit of arguments", audit["arguments"], ("digest", "full"))
            return dict if audit["arguments"] == "full" else None
        if isinstance(audit, Mapping) and set(audit) == {"redact"}:
            return lambda args: {k: "***" if k in audit["redact"] else v for k, v in args.items()}
        raise UnknownWord(f"audit: {audit!r}")

    def _endpoint_call(self, event: Mapping[str, Any]) -> Facts:
        provider, tools = Provider.mcp(event["server"]), self.world.toolset()
        # Nobody says whose it is: it has to pass wherever it could come from.
        scopes = [self.world.scope(chat) for chat in self.world.chats] + [Scope(origin="tool")]
        arguments = event.get("args", {})
        claim = functools.partial(
            self.world.ledger.claim, provider, event["tool"], arguments, tools
        )
        decision = claim(scopes[0])
        for scope in scopes[1:]:
            if decision.effect is Effect.DENY or decision.call.id is not None:
                break
            decision = claim(scope)
        facts: Facts = {
            "decision": decision.effect.value,
            "result": "executed" if decision.effect is Effect.ALLOW else "failed",
            "executed_by": World.executor(decision.provider),
            "record": json.dumps(decision.record()),
        }
        if decision.failure is not None:
            facts |= _of_failure(decision.failure, self.world)
        return facts

    # ------------------------------------------------------------------------------- answers

    def _answer(self, event: Mapping[str, Any]) -> Facts:
        call_id = event["call_id"]
        waiting = self.decisions[call_id].effect is Effect.ASK
        try:
            self.world.ledger.answer(self._approval(event))
        except ApprovalError as error:
            return {"outcome": "ignored", "refused": True, "text": str(error)}
        if self.saved_since_answer or not waiting:
            return {}
        return self._again(call_id)

    def _answers(self, event: Mapping[str, Any]) -> Facts:
        given = [
            {"call_id": one[0], "answer": one[1], **(one[2] if len(one) > 2 else {})}
            for one in event["answers"]
        ]
        self.world.ledger.answer(*map(self._approval, given))
        if self.saved_since_answer:
            return {}
        call_ids = dict.fromkeys(one["call_id"] for one in given)
        facts = {call_id: self._again(call_id) for call_id in call_ids}
        return {**(next(iter(facts.values())) if len(facts) == 1 else {}), **self._together(facts)}

    def _again(self, call_id: str) -> Facts:
        chat, call = self.asked[call_id]
        return self._submit(chat, call)

    def _approval(self, event: Mapping[str, Any]) -> Approval:
        """A person's answer, also one that comes when nothing is asked any more."""
        decision = self.decisions[event["call_id"]]
        allow = choose("an answer", event["answer"], ("allow", "deny")) == "allow"
        reach = reach_of(event.get("reach", "once"))
        bind = None
        if reach is not Reach.ONCE and event.get("args") != "exactly these":
            exact, condition = arguments_bound(event.get("args"))
            bind = condition if condition is not None else exact
        if decision.effect is Effect.ASK:
            if isinstance(bind, Mapping) and not bind:
                bind = None
            return answer_to(decision, allow=allow, reach=reach, bind=bind)
        chat, call = self.asked[event["call_id"]]
        tool = decision.tool or Tool(name=call["tool"])
        return Approval(
            allow=allow,
            chat=chat,
            call_id=event["call_id"],
            provider=tool.provider,
            own_name=tool.own_name,
            definition=tool.digest,
            arguments=arguments_digest(decision.call.arguments),
        )

    def _callback_answers_late(self, event: Mapping[str, Any]) -> None:
        self.world.ledger.answer(self._approval(event))

    # ------------------------------------------------------------------------------- ends

    def _cancel(self, event: Mapping[str, Any]) -> None:
        self.world.ledger.cancelled(self._chat_of(event["call_id"], event), event["call_id"])

    def _result(self, event: Mapping[str, Any]) -> Facts:
        return self._completion(event["call_id"], event, None)

    def _client_completes(self, event: Mapping[str, Any]) -> Facts:
        return self._completion(event["call_id"], event, Provider.client(event["client"]))

    def _completion(self, call_id: str, event: Mapping[str, Any], by: Provider | None) -> Facts:
        ledger, chat = self.world.ledger, self._chat_of(call_id, event)
        ignored = len(ledger.ignored)
        ledger.completed(chat, call_id, by=by)
        if len(ledger.ignored) == ignored:
            self._ended(call_id, "executed")
        return {"result": self.results.get(call_id)}

    def _client_leaves(self, event: Mapping[str, Any]) -> None:
        self.world.clients[event["client"]] = "disconnected"
        gone = Provider.client(event["client"])
        now, grace = self.world.now, self.world.grace
        self._failed(self.world.ledger.provider_left(gone, now=now, grace=grace))

    def _time_passes(self, event: Mapping[str, Any]) -> None:
        self.world.now += event["seconds"]
        self._failed(self.world.ledger.time_passed(self.world.now))

    def _failed(self, calls: Sequence[tuple[str | None, str]]) -> None:
        for _, call_id in calls:
            self._ended(call_id, "failed")

    # ------------------------------------------------------------------------------- changes

    def _client_contributes(self, event: Mapping[str, Any]) -> None:
        self.world.contribute(event["client"], event["tools"])

    def _tools_arrive(self, event: Mapping[str, Any]) -> None:
        check_words({"tools": event["tools"]})
        self.world.tools += [dict(tool) for tool in event["tools"]]

    def _change_agent(self, event: Mapping[str, Any]) -> None:
        self.world.change_agent(event["agent"], event["allow"])

    def _end_chat(self, event: Mapping[str, Any]) -> None:
        pass  # grants belong to their chat by their reach; nothing has to be cleared

    def _save_and_restore(self, event: Mapping[str, Any]) -> None:
        self.world.save_and_restore(event.get("chat"))
        self.saved_since_answer = True

    def _restore(self, event: Mapping[str, Any]) -> None:
        saved = event.get("saved_scope", "missing")
        if isinstance(saved, str):
            choose("a saved scope", saved, ("missing", "unreadable", "broken", "corrupt"))
        self.world.saved_scopes[event["chat"]] = None if saved == "missing" else saved

    def _load_policy(self, event: Mapping[str, Any]) -> Facts:
        table = event.get("policy", self.world.policy)
        mode = choose("a mode", event.get("mode", "strict"), ("strict", "lenient"))
        try:
            engine = self.world.make_engine(table, known_tools=event.get("known_tools"), mode=mode)
        except ConfigurationError as error:
            return {"outcome": "refused", "refused": True, "text": str(error)}
        self.world.engine, self.world.policy, self.world.refused = engine, table, None
        findings = " ".join(map(str, self.world.rules.findings))
        outcome = "loaded with a warning" if findings else "loaded"
        return {"outcome": outcome, "text": findings, "warning": bool(findings)}


def _names(history: Sequence[Any]) -> list[str]:
    return [one if isinstance(one, str) else one.get("tool", one.get("name")) for one in history]


def _flags(problems: Sequence[RequestProblem]) -> dict[str, bool]:
    return {
        "hidden_in_history": RequestProblem.HISTORY_NAMES_HIDDEN in problems,
        "empty_list": RequestProblem.EMPTY_LIST in problems,
    }


_KINDS: Final = {
    "tool_unknown": "unknown tool",
    "approval_unavailable": "no approver",
    "approval_refused": "refused",
    "limit_exceeded": "limit",
    "policy_error": "check failed",
}


def _of_failure(failure: Any, world: World) -> Facts:
    resets = [] if world.limits is None else [world.limits.resets(one) for one in world.limits.all]
    return {
        "message": failure.message,
        "repeat": failure.attempts,
        "retryable": not failure.final,
        "reason_kind": _KINDS.get(str(failure.code), "policy"),
        "message_names_reset": any(
            one is not None and f"{one:.0f}" in failure.message for one in resets
        ),
    }


# --------------------------------------------------------------------------------------------
# Files of cases
# --------------------------------------------------------------------------------------------


def run_case(whole: Mapping[str, Any]) -> list[Problem]:
    """Runs one case and says what was not as expected; empty where all was."""
    case = whole.get("case", whole)
    try:
        check_words(case)
        with tempfile.TemporaryDirectory() as folder:
            return list(_run(case, Path(folder)))
    except UnknownWord as error:
        return [Problem("words", f"unknown word: {error}")]
    except Exception as error:  # whatever it is, the case has failed
        return [Problem("case", f"{type(error).__name__}: {error}")]


def _run(case: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    run = Run(case, folder)
    facts = {event["id"]: run.event(event) for event in case["events"]}
    for expected in case["expected"]:
        event = expected["event"]
        if event not in facts:
            yield Problem(event, "there is no such event")
            continue
        found = unmet(expected, facts[event], facts)
        others = expected.get("acceptable", ())
        if found and not any(not unmet(one, facts[event], facts) for one in others):
            for text in found:
                yield Problem(event, text)


def main(arguments: Sequence[str]) -> int:
    """Runs a file of cases; 0 if all passed, 1 if one failed, 2 for bad usage."""
    if len(arguments) != 1:
        print("usage: case_runner.py FILE.json", file=sys.stderr)
        return 2
    try:
        cases = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 2
    logging.getLogger("toolscope").addHandler(logging.NullHandler())
    failed = 0
    for place, case in enumerate(cases):
        problems = run_case(case)
        failed += bool(problems)
        name = f"{case.get('id', place)} {case.get('kind', '')}".strip()
        print(f"{'FAIL' if problems else 'ok  '} {name}")
        for problem in problems:
            print(f"       {problem}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
