"""Where ledgers keep what they remember: in memory, in SQLite, and in a saved JSON object."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ROOT, run
from tests.ledgers import (
    BANK,
    PAY,
    TOOLS,
    USER,
    answered,
    asked,
    call,
    code,
    effect,
    make_ledger,
    message,
)
from toolscope.calls import CallState, answer_to, grant_for
from toolscope.errors import LedgerError
from toolscope.model import Reach
from toolscope.stores import MemoryStore, SQLiteStore, Store
from toolscope.verdicts import Effect


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each kind of store, new."""
    if request.param == "memory":
        yield MemoryStore()
    else:
        with closing(SQLiteStore(str(tmp_path / "ledger.db"))) as made:
            yield made


# --------------------------------------------------------------------------------------------
# What every store does
# --------------------------------------------------------------------------------------------


def test_a_record_changes_only_from_what_was_seen(store: Store) -> None:
    """Compare and swap, where None is no record; the text of a key may be anything."""
    key = ("call", None, "c\ud83d\u00e9'\"")
    assert store.get(key) is None
    assert store.swap(key, None, None)
    assert not store.swap(key, {"a": 1}, {"a": 2})
    assert not store.swap(key, {"a": 1}, None)
    assert store.swap(key, None, {"b": [1, None], "a": "\u00e9"})
    assert not store.swap(key, None, {"a": 2})
    assert not store.swap(key, None, None)
    assert store.get(key) == {"a": "\u00e9", "b": [1, None]}
    assert not store.swap(key, {"a": "\u00e9"}, {"a": 2})
    assert store.swap(key, {"a": "\u00e9", "b": [1, None]}, {"a": 2})
    assert not store.swap(key, {"a": 3}, None)
    assert store.swap(key, {"a": 2}, None)
    assert store.get(key) is None


def test_items_come_by_kind_in_the_order_of_their_keys(store: Store) -> None:
    """The order in which the keys appeared, not that of the changes; no other kind."""
    for name in ("b", "a", "c"):
        store.swap(("call", None, name), None, {"n": 1})
    store.swap(("grant", "g"), None, {"n": 2})
    store.swap(("call", None, "b"), {"n": 1}, {"n": 3})
    items = store.items("call")
    store.swap(("call", None, "a"), {"n": 1}, None)
    assert list(items) == [
        (("call", None, "b"), {"n": 3}),
        (("call", None, "a"), {"n": 1}),
        (("call", None, "c"), {"n": 1}),
    ]
    assert [key for key, _ in store.items("call")] == [("call", None, "b"), ("call", None, "c")]
    assert list(store.items("spent")) == []


def test_a_ledger_works_the_same_over_every_store(store: Store) -> None:
    """A short life: ask, answer, hand out, claim, complete, deny, grant."""
    ledger = make_ledger(store=store)
    answered(ledger, call(), reach=Reach.CHAT)
    assert effect(ledger, call()) is Effect.ALLOW
    assert effect(ledger, call()) is Effect.DENY
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id == "c1"
    assert ledger.completed("main", "c1") is CallState.COMPLETED
    assert effect(ledger, call("c2")) is Effect.ALLOW
    assert ledger.provider_left(BANK, now=0) == (("main", "c2"),)
    first = ledger.on_tool_call(call("c3", name="wipe"), TOOLS, USER)
    again = ledger.on_tool_call(call("c3", name="wipe"), TOOLS, USER)
    assert (again.failure, again.verdicts) == (first.failure, first.verdicts)


# --------------------------------------------------------------------------------------------
# Saved and loaded
# --------------------------------------------------------------------------------------------


def test_a_saved_ledger_is_loaded_in_another_process() -> None:
    """What was handed out, asked and denied before is so afterwards."""
    ledger = make_ledger()
    effect(ledger, call("out", name="read"))
    asked(ledger, call("open"))
    effect(ledger, call("no", name="wipe"))
    answered(ledger, call("grant"), reach=Reach.CHAT)
    program = """
import json, sys
from tests.ledgers import *
ledger = make_ledger()
ledger.load(json.load(sys.stdin))
calls = [call("out", name="read"), call("no", name="wipe"), call("open"), call("open")]
print([str(effect(ledger, one)) for one in calls], ledger.save()["schema"])
"""
    done = run(
        [sys.executable, "-c", program],
        given=json.dumps(ledger.save()).encode(),
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr) == ("['deny', 'deny', 'allow', 'deny'] 1\n", "")


def test_every_kind_of_record_is_saved_and_loaded() -> None:
    """And means the same in the new ledger."""
    ledger = make_ledger({"pay": "ask", "wipe": "deny"})
    answered(ledger, call("a"), reach=Reach.CHAT)
    ledger.grant(grant_for(PAY, chat="b", reach=Reach.ONCE, arguments={}))
    assert effect(ledger, call("b", chat="b")) is Effect.ALLOW
    effect(ledger, call("c", name="wipe"))
    ledger.provider_left(BANK, now=0, grace=60)
    saved = ledger.save()
    assert {key[0] for key, _ in saved["records"]} == {
        "call", "grant", "spent", "claim", "denials", "left",
    }  # fmt: skip
    other = make_ledger({"pay": "ask", "wipe": "deny"})
    other.load(json.loads(json.dumps(saved)))
    assert other.save() == saved
    assert other.claim(BANK, "transfer", {}, TOOLS, USER).call.id == "b"
    assert effect(other, call("d")) is Effect.ALLOW
    assert effect(other, call("e", chat="b")) is Effect.ASK
    second = other.on_tool_call(call("f", name="wipe"), TOOLS, USER)
    assert second.failure is not None
    assert second.failure.attempts == 2
    assert other.time_passed(60) == (("main", "a"), ("b", "b"), ("main", "d"), ("b", "e"))


def test_what_is_saved_is_a_copy() -> None:
    """Neither side sees the other's later changes."""
    ledger = make_ledger()
    answered(ledger, call())
    saved = ledger.save()
    other = make_ledger()
    other.load(saved)
    saved["records"][0][1]["answers"].clear()
    assert effect(ledger, call()) is Effect.ALLOW
    assert effect(other, call()) is Effect.ALLOW


def records(*rows: Any) -> Any:
    return {"schema": 1, "records": list(rows)}


OUT = {"state": "handed_out", "name": "t", "tool": "host/t", "provider": "host", "claimed": False}
FAILURE = {"code": "c", "message": "m", "attempts": 1, "final": True}
NO = {
    "state": "denied", "name": "t", "tool": "host/t", "final": True,
    "failure": FAILURE,
    "verdicts": [{"plugin": "p", "effect": "deny", "reason": "r"}],
}  # fmt: skip
KEY = ["call", None, "c1"]
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (None, "the saved ledger is no object of schema 1; treat its calls as settled"),
        ({"schema": 2, "records": []}, "the saved ledger is no object of schema 1"),
        ({"schema": 1}, r"cannot be read \(KeyError: 'records'\); treat its calls as settled"),
        (records(5), "cannot be read"),
        (records([KEY, {**OUT, "deep": DEEP}]), r"cannot be read \(RecursionError"),
        (records([KEY, None]), "cannot be read"),
        (records([["call", 5, "c1"], OUT]), r"the unknown record \('call', 5, 'c1'\)"),
        (records([["call", "c1"], OUT]), "the unknown record"),
        (records([["secret", "c1"], {}]), "the unknown record"),
        (records([KEY, {**OUT, "state": "running"}]), "'running' is not a valid CallState"),
        (records([KEY, {k: v for k, v in OUT.items() if k != "claimed"}]), "'claimed'"),
        (records([KEY, {**OUT, "claimed": 1}]), "a call that is neither claimed nor not"),
        (records([KEY, {**OUT, "provider": None}]), "a text is missing"),
        (records([KEY, {**OUT, "final": True}]), "a call that is handed_out and says otherwise"),
        (records([KEY, {**OUT, "state": "completed"}]), "a call that is completed and says oth"),
        (records([KEY, {**OUT, "state": "asked", "answers": [{}]}]), "has schema None"),
        (records([KEY, {**NO, "failure": {"code": "c"}}]), "missing 1 required"),
        (
            records([KEY, {**NO, "failure": {"code": "c", "message": "m", "attempts": "x"}}]),
            "must be real number",
        ),
        (
            records([KEY, {**NO, "verdicts": [{"plugin": "p", "effect": "allow"}]}]),
            "cannot be read",
        ),
        (records([["grant", "x"], {}]), "has schema None"),
        (records([["spent", "x"], 1]), "cannot be read"),
        (records([["claim", "t", "d"], {"calls": [[None, None]]}]), "a text is missing"),
        (records([["denials", None, "t", "c"], {"count": True}]), "a number is missing"),
        (records([["left", "moon"], {"until": 1}]), "'moon' is no provider"),
        (records([["left", "host"], {"until": float("inf")}]), "a number is missing"),
        (records([KEY, OUT], [["spent", "x"], {}], [KEY, OUT]), "is there twice, or the ledger"),
    ],
)
def test_a_saved_ledger_that_is_damaged_is_refused_whole(saved: Any, why: str) -> None:
    """No part of it is taken, so nothing can come of a part."""
    ledger = make_ledger()
    with pytest.raises(LedgerError, match=why):
        ledger.load(saved)
    assert ledger.save()["records"] == []
    ledger.load(records([KEY, OUT], [["call", "x", "c1"], NO]))
    assert len(ledger.save()["records"]) == 2


def test_a_grant_under_another_name_is_refused() -> None:
    """A saved grant could else not be spent or taken back."""
    ledger = make_ledger()
    answered(ledger, call(), reach=Reach.CHAT)
    ((key, record),) = [row for row in ledger.save()["records"] if row[0][0] == "grant"]
    with pytest.raises(LedgerError, match="a grant under the name of another one"):
        make_ledger().load(records([["grant", key[1][::-1]], record]))


def test_a_ledger_is_loaded_into_a_new_one() -> None:
    """One that holds records keeps exactly those."""
    ledger = make_ledger()
    effect(ledger, call("mine", name="wipe"))
    before = ledger.save()
    with pytest.raises(LedgerError, match="this ledger holds records already; load into a new one"):
        ledger.load(records([KEY, OUT]))
    assert ledger.save() == before


def test_a_store_that_is_too_small_takes_nothing() -> None:
    """Open calls cannot be forgotten, so a part of a saved ledger is not taken either."""
    ledger = make_ledger(store=MemoryStore(limit=2))
    rows = [[["call", None, str(place)], OUT] for place in range(3)]
    with pytest.raises(LedgerError, match="the ledger holds 2 open records and none that may be"):
        ledger.load(records(*rows))
    assert ledger.save()["records"] == []


# --------------------------------------------------------------------------------------------
# SQLite
# --------------------------------------------------------------------------------------------


def test_calls_are_remembered_across_restarts(tmp_path: Path) -> None:
    """A new store over the same file knows what was handed out, asked and answered."""
    path = str(tmp_path / "ledger.db")
    with closing(SQLiteStore(path)) as store:
        ledger = make_ledger(store=store)
        effect(ledger, call("out", name="read"))
        answer = answer_to(asked(ledger, call("open")), allow=True)
    with closing(SQLiteStore(path)) as store:
        ledger = make_ledger(store=store)
        assert effect(ledger, call("out", name="read")) is Effect.DENY
        ledger.answer(answer)
    with closing(SQLiteStore(path)) as store:
        assert effect(make_ledger(store=store), call("open")) is Effect.ALLOW


def test_two_ledgers_over_one_file_are_one(tmp_path: Path) -> None:
    """What one handed out is settled for the other."""
    path = str(tmp_path / "ledger.db")
    with closing(SQLiteStore(path)) as one, closing(SQLiteStore(path)) as other:
        first, second = make_ledger(store=one), make_ledger(store=other)
        assert effect(first, call(name="read")) is Effect.ALLOW
        assert code(second.on_tool_call(call(name="read"), TOOLS, USER)) == "call_settled"
        answered(first, call("c2"))
        assert effect(second, call("c2")) is Effect.ALLOW
        assert effect(first, call("c2")) is Effect.DENY


@pytest.mark.parametrize("content", [b"not a database " * 100, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    """The error names the file, and the file stays as it is."""
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger\.db' is no ledger: file is not a database"):
        SQLiteStore(str(path))
    assert path.read_bytes() == content


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    """A missing folder is an error that names the path."""
    with pytest.raises(LedgerError, match=r"ledger\.db' cannot be opened: unable to open"):
        SQLiteStore(str(tmp_path / "missing" / "ledger.db"))


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE bookmarks (a)", "PRAGMA user_version=1", "PRAGMA application_id=7"],
)
def test_the_database_of_another_program_is_refused(tmp_path: Path, statement: str) -> None:
    """No table is added to it."""
    path = str(tmp_path / "places.db")
    with closing(sqlite3.connect(path)) as other:
        other.execute(statement)
        other.commit()
        with pytest.raises(LedgerError, match="is another program's database; give a new path"):
            SQLiteStore(path)
        assert other.execute("SELECT 1 FROM sqlite_schema WHERE name='records'").fetchall() == []


def test_the_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """The error names both versions and the cure."""
    path = str(tmp_path / "ledger.db")
    SQLiteStore(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version=2")
    match = "is a ledger of version 2; this program reads version 1: update it, or give a new path"
    with pytest.raises(LedgerError, match=match):
        SQLiteStore(path)


@pytest.mark.parametrize("record", ["{", "[]", '"text"', "{}", '{"state": "running"}'])
def test_a_damaged_record_permits_nothing(tmp_path: Path, record: str) -> None:
    """The call it is about is neither decided nor changed."""
    path = str(tmp_path / "ledger.db")
    with closing(SQLiteStore(path)) as store:
        ledger = make_ledger(store=store)
        effect(ledger, call(name="read"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE records SET record = ? WHERE kind = 'call'", (record,))
            other.commit()
        for act in (
            lambda: ledger.on_tool_call(call(name="read"), TOOLS, USER),
            lambda: ledger.completed("main", "c1"),
        ):
            with pytest.raises(LedgerError, match=r"treat (its calls|the call) as settled"):
                act()


@pytest.mark.parametrize(
    "record", [{"state": "denied"}, {"state": "completed"}, {**NO, "name": "read", "failure": {}}]
)
def test_a_settled_call_whose_record_is_damaged_is_settled(record: Any) -> None:
    """What can still be read is enough to deny it."""
    store = MemoryStore()
    store.swap(("call", "main", "c1"), None, record)
    decision = make_ledger(store=store).on_tool_call(call(name="read"), TOOLS, USER)
    assert code(decision) == "call_settled"
    assert "no call runs twice: its record is damaged." in message(decision)


def test_a_store_that_is_closed_hands_nothing_out(tmp_path: Path) -> None:
    """Reading and writing it are errors that say so."""
    store = SQLiteStore(str(tmp_path / "ledger.db"))
    store.close()
    with pytest.raises(LedgerError, match="cannot be read: Cannot operate on a closed database"):
        effect(make_ledger(store=store), call(name="read"))
    with pytest.raises(LedgerError, match=r"cannot be written: .*; nothing was handed out"):
        store.swap(("call", None, "c"), None, {})


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([KEY, {**OUT, "name": 5}], "TypeError: a text is missing"),
        ([KEY, {**OUT, "tool": None}], "TypeError: a text is missing"),
        ([KEY, {**OUT, "claimed": 1}], "TypeError: a call that is neither claimed nor not"),
        (
            [KEY, {**NO, "failure": {**FAILURE, "code": 5}}],
            "TypeError: a text is missing",
        ),
        (
            [KEY, {**NO, "failure": {**FAILURE, "message": None}}],
            "TypeError: a text is missing",
        ),
        (
            [KEY, {**NO, "failure": {**FAILURE, "attempts": False}}],
            "ValueError: a number is missing",
        ),
        ([["claim", "t", "d"], {"calls": [["main", 5]]}], "TypeError: a text is missing"),
        ([["claim", "t", "d"], {"calls": [[5, "c1"]]}], "TypeError: a text is missing"),
        (
            [["denials", None, "t", "c"], {"count": float("nan")}],
            "ValueError: a number is missing",
        ),
        ([["left", "host"], {"until": True}], "ValueError: a number is missing"),
        ([["left", "host", 1], {"until": 1}], "ValueError: the unknown record ('left', 'host', 1)"),
    ],
)
def test_a_saved_ledger_says_what_is_wrong_with_it(row: Any, why: str) -> None:
    """Word for word, with what to do about it."""
    with pytest.raises(LedgerError) as caught:
        make_ledger().load(records(row))
    assert str(caught.value) == (
        f"the saved ledger cannot be read ({why}); treat its calls as settled"
    )


@pytest.mark.parametrize("chat", ["main", None, ""])
def test_a_claim_of_any_chat_is_loaded(chat: str | None) -> None:
    """A call may be in no chat."""
    ledger = make_ledger()
    rows = records([["claim", "t", "d"], {"calls": [[chat, "c1"]]}])
    ledger.load(rows)
    assert ledger.save() == rows


def test_a_grant_is_saved_under_its_own_name_and_names_no_call() -> None:
    """Another one would be spent in its place."""
    answer = answer_to(asked(make_ledger(), call()), allow=True)
    grant = grant_for(PAY, chat="main", reach=Reach.CHAT, arguments={})
    for name, saved in (("x", grant), (answer.digest, answer)):
        with pytest.raises(LedgerError) as caught:
            make_ledger().load(records([["grant", name], saved.to_json()]))
        assert str(caught.value) == (
            "the saved ledger cannot be read (ValueError: a grant under the name of another one); "
            "treat its calls as settled"
        )


def test_what_hinders_loading_is_said_in_full() -> None:
    """Records that are there already, and a record that is there twice."""
    ledger = make_ledger()
    rows = records([KEY, OUT])
    ledger.load(rows)
    with pytest.raises(LedgerError) as caught:
        ledger.load(rows)
    assert str(caught.value) == "this ledger holds records already; load into a new one"
    other = make_ledger()
    with pytest.raises(LedgerError) as caught:
        other.load(records([KEY, OUT], [["spent", "x"], {}], [KEY, OUT]))
    assert str(caught.value) == (
        "the record ('call', None, 'c1') is there twice, or the ledger was used while it was "
        "loaded; nothing was loaded"
    )
    assert other.save() == records()
    with pytest.raises(LedgerError) as caught:
        other.load({"schema": 2, "records": []})
    assert str(caught.value) == (
        "the saved ledger is no object of schema 1; treat its calls as settled"
    )
