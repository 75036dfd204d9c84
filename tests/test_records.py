"""The record of a decision, the secrets masked in it, and the decision log."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledgers import BANK, PAY, TOOLS, USER, answered, asked, call, make_ledger
from tests.strategies import json_values
from toolscope._masking import MASKED, masked
from toolscope.calls import CallLedger, answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.hookspecs import hookimpl
from toolscope.model import (
    HOST,
    Agent,
    Ancestor,
    AnyArguments,
    FrozenDict,
    Reach,
    Scope,
    Toolset,
    arguments_digest,
    thaw,
)
from toolscope.verdicts import Effect, Verdict, ask, deny

SECRET = "sk-abcdefghijklmnop1234"

# --------------------------------------------------------------------------------------------
# Masking
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"key {SECRET}, then", "key [masked], then"),
        ("ghp_" + "a" * 36, MASKED),
        ("github_pat_" + "a" * 22, MASKED),
        ("xoxb-1234567890-abc", MASKED),
        ("AKIAABCDEFGHIJKLMNOP", MASKED),
        ("eyJhbGciOiJ9.eyJzdWIiOiI.sig-nature", MASKED),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: [masked]"),
        ("https://ann:hunter2@example.org/x", "https://[masked]@example.org/x"),
        ("the password = hunter2; go on", "the [masked]; go on"),
        ("api_key: 'hunter2'", "[masked]'"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----.", "[masked]."),
        ("-----BEGIN PRIVATE KEY-----\nMII, cut off", MASKED),
        ("nothing to hide: a sketch, eyJ.x, basic", "nothing to hide: a sketch, eyJ.x, basic"),
        ("x" * 100_001, "x" * 100_000),
    ],
)
def test_what_has_the_form_of_a_secret_is_masked(text: str, expected: str) -> None:
    """The rest of the text stays; what is beyond 100,000 characters is cut."""
    assert masked(text) == expected


@pytest.mark.parametrize(
    "key", ["password", "PassPhrase", "client_secret", "apiKey", "API-KEY", "x-access-token",
            "Authorization", "Set-Cookie", "sessionId", "private_key", "credentials"],
)  # fmt: skip
def test_values_under_the_name_of_a_secret_are_masked_whole(key: str) -> None:
    """Whatever they are: text, number, object."""
    for value in ("x", 5, {"a": "b"}, ["c"], None):
        assert masked({key: value, "other": value}) == {key: MASKED, "other": value}


def nested(value: Any) -> st.SearchStrategy[Any]:
    """The value somewhere inside of lists and objects."""
    return st.recursive(
        st.just(value),
        lambda inner: (
            st.tuples(json_values, inner)
            | st.tuples(json_values, inner).map(list)
            | st.builds(lambda one: {"a": one}, inner)
            | st.builds(lambda one: {f"{SECRET} as a key": one}, inner)
        ),
        max_leaves=3,
    )


@given(nested(SECRET))
def test_secrets_are_masked_at_every_depth(value: Any) -> None:
    """In lists, tuples, objects and their keys; the value itself is not changed."""
    before = json.dumps(value)
    assert SECRET not in json.dumps(masked(value))
    assert json.dumps(value) == before


@given(json_values)
def test_what_is_no_secret_stays_as_it_is(value: Any) -> None:
    """Numbers, truths and plain text are copied."""
    assert masked(value) == value


@pytest.mark.parametrize(
    "hostile",
    [
        "-eyJaaaaaaaa" * 9_000,
        "eyJaaaaaaaa." * 9_000,
        "password " * 11_000,
        "password=" * 11_000,
        "basic " * 16_000,
        "basic" + " " * 99_000,
        "://a:" * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 3_700,
        "-----BEGIN " * 9_000,
        "sk-" * 33_000,
    ],
)
def test_masking_takes_bounded_time(hostile: str) -> None:
    """No text of the model makes the log slow."""
    started = time.perf_counter()
    masked(hostile)
    assert time.perf_counter() - started < 2


# --------------------------------------------------------------------------------------------
# The record
# --------------------------------------------------------------------------------------------


class Says:
    """A rule whose reason, detail and rule name hold a secret."""

    name = "says"

    def __init__(self, effect: str, code: str = "c") -> None:
        self.effect = effect
        self.code = code

    @hookimpl
    def on_tool_call(self) -> Verdict | None:
        if self.effect == "raise":
            raise RuntimeError(f"cannot reach https://ann:{SECRET}@example.org")
        make = {"ask": ask, "deny": deny}[self.effect]
        return make(f"not with {SECRET}", code=self.code, detail=f"token={SECRET}", rule="r1")


SCOPE = attrs.evolve(USER, subject="ann", attributes={"team": "x", "token": SECRET})


def test_the_record_of_a_denial() -> None:
    """One JSON-ready structure: ids, scope, tool, verdicts and a digest, and no secret."""
    engine = PolicyEngine([Says("deny")])
    one = call(arguments={"to": "bob", "card": SECRET}, via="outer")
    record = engine.on_tool_call(one, TOOLS, SCOPE).record(seconds=0.25)
    message = (
        "Policy denies this call of 'pay': not with [masked]. The same call cannot succeed here; "
        "do not repeat it."
    )
    assert record == {
        "schema": 1,
        "chat": "main",
        "call_id": "c1",
        "via": "outer",
        "name": "pay",
        "tool": "mcp:bank/transfer",
        "effect": "deny",
        "code": "c",
        "message": message,
        "attempts": 1,
        "verdicts": [
            {
                "plugin": "says",
                "rule": "r1",
                "effect": "deny",
                "code": "c",
                "reason": "not with [masked]",
                "detail": "[masked]",
            }
        ],
        "scope": {
            "schema": 1,
            "can_ask": True,
            "origin": "user",
            "ancestry": [],
            "subject": "ann",
            "attributes": {"team": "x", "token": MASKED},
        },
        "arguments_digest": arguments_digest(one.arguments),
        "seconds": 0.25,
    }
    assert json.loads(json.dumps(record)) == record


def test_the_record_of_an_allow_and_an_ask() -> None:
    """They name the provider; approvals are told by who gave them, and why others did not count."""
    ledger = make_ledger()
    asking = asked(ledger, call()).record()
    assert (asking["effect"], asking["provider"]) == ("ask", "mcp:bank")
    assert [one["plugin"] for one in asking["verdicts"]] == ["rules"]
    assert "code" not in asking
    assert "message" not in asking
    answered(ledger, call(), by="ann", at=7)
    other = grant_for(PAY, chat="else", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    record = ledger.on_tool_call(call(), TOOLS, USER, approvals=[other]).record()
    assert (record["effect"], record["provider"]) == ("allow", "mcp:bank")
    assert record["approvals"] == [{"by": "ann", "at": 7, "reach": "once", "call_id": "c1"}]
    assert record["unused_approvals"] == ["an approval was not used: it does not reach this chat"]


def test_the_record_of_a_fault_keeps_the_error_apart_and_masked() -> None:
    """The error is for the operator; the model's text says nothing of it."""
    record = PolicyEngine([Says("raise")]).on_tool_call(call(), TOOLS, USER).record()
    (verdict,) = record["verdicts"]
    assert record["code"] == "policy_error"
    assert verdict["error"] == "RuntimeError: cannot reach https://[masked]@example.org"
    assert "example.org" not in record["message"] + verdict["reason"]


def test_a_record_without_a_tool_or_arguments_leaves_them_out() -> None:
    """Absent parts are absent: no tool of that name, no JSON, no id."""
    record = PolicyEngine([]).on_tool_call(
        call(None, name="none", chat=None, arguments="{"), TOOLS, Scope()
    ).record()  # fmt: skip
    assert record.keys().isdisjoint(
        {"chat", "call_id", "via", "tool", "provider", "arguments_digest", "arguments", "seconds"}
    )


def test_no_text_of_a_record_holds_a_secret() -> None:
    """Not one that came in by a name, an id, a code, a person or the scope."""
    tool = attrs.evolve(PAY, name=f"pay {SECRET}", own_name=f"{SECRET}", provider=HOST)
    one = call(f"id {SECRET}", name=tool.name, chat=f"chat {SECRET}", via=f"via {SECRET}")
    scope = attrs.evolve(
        SCOPE, origin=SECRET, subject=SECRET, agent=Agent(name=SECRET),
        ancestry=[Ancestor(origin=SECRET, agent=SECRET, attributes={"x": {SECRET}})],
    )  # fmt: skip
    engine = PolicyEngine([Says("ask")])
    asking = engine.on_tool_call(one, Toolset([tool]), scope)
    answers = [answer_to(asking, allow=allow, by=f"by {SECRET}") for allow in (True, False)]
    decisions = [
        asking,
        engine.on_tool_call(one, Toolset([tool]), scope, approvals=answers[:1]),
        engine.on_tool_call(one, Toolset([tool]), scope, approvals=answers),
        PolicyEngine([Says("deny", f"code {SECRET}")]).on_tool_call(one, Toolset([tool]), scope),
    ]
    assert [str(decision.effect) for decision in decisions] == ["ask", "allow", "deny", "deny"]
    for decision in decisions:
        assert SECRET not in json.dumps(decision.record())


def test_argument_values_come_as_the_redactor_gives_them() -> None:
    """Never by themselves; and what it gives is masked like all else."""
    decision = PolicyEngine([]).on_tool_call(
        call(arguments={"to": "bob", "note": f"use {SECRET}", "pin": "1234"}), TOOLS, USER
    )
    assert "arguments" not in decision.record()
    assert "bob" not in json.dumps(decision.record())

    def redactor(arguments: FrozenDict) -> Any:
        return {**thaw(arguments), "pin": "****"}

    assert decision.record(arguments=redactor)["arguments"] == {
        "to": "bob", "note": "use [masked]", "pin": "****",
    }  # fmt: skip


# --------------------------------------------------------------------------------------------
# The log
# --------------------------------------------------------------------------------------------


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The decision log, switched on."""
    with caplog.at_level(logging.INFO, logger="toolscope.decisions"):
        yield caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        json.loads(record.getMessage())
        for record in caplog.records
        if record.name == "toolscope.decisions"
    ]


def test_the_log_has_one_line_a_decision(logged: pytest.LogCaptureFixture) -> None:
    """In the order of the decisions, settled ones included; a matched claim is none."""
    ledger = make_ledger()
    answer = answer_to(asked(ledger, call()), allow=True)
    ledger.answer(answer)
    for one in [call(), call(), call("c2", name="wipe"), call(None, name="none")]:
        ledger.on_tool_call(one, TOOLS, USER)
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).effect is Effect.ALLOW
    assert [(line.get("call_id"), line["effect"], line.get("code")) for line in lines(logged)] == [
        ("c1", "ask", None),
        ("c1", "allow", None),
        ("c1", "deny", "call_settled"),
        ("c2", "deny", "tool_denied"),
        (None, "deny", "tool_unknown"),
    ]
    assert all(0 <= line["seconds"] < 60 for line in lines(logged))
    assert all("arguments" not in line for line in lines(logged))


def test_the_log_is_off_until_it_is_switched_on(caplog: pytest.LogCaptureFixture) -> None:
    """Without a handler or level for it no record is made."""

    def never(arguments: FrozenDict) -> Any:
        raise AssertionError("a record was made")

    make_ledger(redactor=never).on_tool_call(call(), TOOLS, USER)
    assert caplog.records == []


def test_the_log_holds_what_the_redactor_gives(logged: pytest.LogCaptureFixture) -> None:
    """Surrogates and all, in ASCII."""
    ledger = make_ledger(redactor=lambda arguments: sorted(arguments))
    ledger.on_tool_call(call(arguments={"\ud800": 1, "b": 2}), TOOLS, USER)
    assert lines(logged)[0]["arguments"] == ["b", "\ud800"]
    assert logged.records[0].getMessage().isascii()


@pytest.mark.parametrize("broken", [lambda _: 1 / 0, lambda _: {1, 2}, lambda _: object()])
def test_a_redactor_that_fails_stops_no_decision(
    broken: Any, logged: pytest.LogCaptureFixture
) -> None:
    """The call is handed out all the same, and the failure is in the package's own log."""
    decision = CallLedger(PolicyEngine([]), redactor=broken).on_tool_call(call(), TOOLS, USER)
    assert decision.effect is Effect.ALLOW
    (record,) = logged.records
    assert (record.name, record.levelname) == ("toolscope", "ERROR")
    assert record.getMessage() == "the decision on 'c1' could not be logged"
