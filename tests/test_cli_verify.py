"""``toolscope verify``, run as a process."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ahp_strategies import AHP, Json, needs_ahp
from tests.environments import ROOT

COMMAND = (sys.executable, "-m", "toolscope.cli", "verify")
SESSION, WORK = "ahp-session:/s", "ahp-chat:/work"
CLIENT = {"clientId": "desk-1", "tools": [{"name": "pick", "availability": "userChats"}]}
OF_CALL = {"turnId": "t1", "toolCallId": "c1"}


def envelope(channel: str, **action: object) -> Json:
    return {"channel": channel, "action": action}


BEGIN = [
    envelope(SESSION, type="session/activeClientSet", activeClient=CLIENT),
    envelope(
        SESSION, type="session/chatAdded", summary={"resource": WORK, "origin": {"kind": "tool"}}
    ),
    envelope(WORK, type="chat/turnStarted", turnId="t1", message={}),
]
START = envelope(WORK, type="chat/toolCallStart", **OF_CALL, toolName="pick", displayName="Pick")


def verified(trace: str, *options: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, trace, *options],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
    )


def lines(*entries: Json) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_a_stream_that_keeps_the_contract(tmp_path: Path) -> None:
    """Exit status 0, and what was looked at."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(lines(*BEGIN))
    done = verified(str(trace))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no breach in 3 actions, 0 snapshots, 1 chats" in done.stdout


def test_a_stream_that_breaks_it() -> None:
    """Exit status 1, and each breach with its line, at 80 columns."""
    owner = {"contributor": {"kind": "client", "clientId": "desk-1"}}
    named = {**START, "action": {**START["action"], **owner}}
    ended = envelope(WORK, type="chat/turnComplete", turnId="t1", duration=1)
    done = verified("-", given=lines(*BEGIN, named, ended))
    assert done.returncode == 1
    assert "line 4  client_contributor, ahp-chat:/work, call c1 of pick" in done.stdout
    assert "line 5  unfinished" in done.stdout
    assert "2 breaches" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_answer_as_json() -> None:
    """The documented shape."""
    changed = envelope(
        SESSION, type="session/chatUpdated", chat=WORK, changes={"origin": {"kind": "user"}}
    )
    ended = envelope(WORK, type="chat/turnComplete", turnId="t1", duration=1)
    done = verified("-", "--json", given=lines(*BEGIN, changed, START, ended))
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "breaches": [
            {
                "line": 4,
                "kind": "origin_changed",
                "chat": WORK,
                "call_id": None,
                "tool": None,
                "detail": "it was 'tool' and is now 'user'",
            },
            {
                "line": 6,
                "kind": "unfinished",
                "chat": WORK,
                "call_id": "c1",
                "tool": "pick",
                "detail": None,
            },
        ],
        "actions": 6,
        "snapshots": 0,
        "chats": 1,
    }


@pytest.mark.parametrize(
    ("trace", "given", "message"),
    [
        ("-", "", "no entry is an action envelope or holds a snapshot"),
        ("-", "{", "line 1: it is not JSON"),
        ("missing.jsonl", "", "missing.jsonl: No such file or directory"),
        ("--jsno", "", "no option '--jsno'"),
    ],
)
def test_what_cannot_be_read(trace: str, given: str, message: str) -> None:
    """Exit status 2 and one message on standard error."""
    done = verified(trace, given=given)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_progress_bar_on_a_terminal(tmp_path: Path) -> None:
    """On standard error, where that is a terminal; the answer stays clean."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(lines(*BEGIN) * 400)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, str(trace)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"},
    ) as process:
        os.close(theirs)
        answer, _ = process.communicate(timeout=60)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert process.returncode == 0
    assert "checking" in shown
    assert answer.decode().startswith("kept")


@needs_ahp
def test_the_recordings() -> None:
    """The exit status tells the keeping host from the breaching one."""
    statuses = [
        verified(str(AHP / "traces" / f"{name}.jsonl")).returncode
        for name in ("good", "broken-contributor")
    ]
    assert statuses == [0, 1]
