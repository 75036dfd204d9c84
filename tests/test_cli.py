"""The command ``toolscope``, run as a process: what it says where, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ROOT, run
from toolscope.cli._check import _other_claims
from toolscope.cli._output import printable

SAMPLE = ROOT / "toolscope" / "cli" / "sample_session.json"
COMMAND = (sys.executable, "-m", "toolscope.cli")
NO_PLUGINS = "enable = []\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder whose configuration enables no plugin, so that only the built-ins run."""
    (tmp_path / "toolscope.toml").write_text(NO_PLUGINS, encoding="utf-8")
    return tmp_path


def toolscope(
    folder: Path, *arguments: str | Path, given: str | bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command in this folder, with the package of this tree."""
    return run(
        [*COMMAND, *arguments],
        cwd=folder,
        given=given.encode() if isinstance(given, str) else given,
        environment={"PYTHONPATH": str(ROOT), **environment},
    )


def answer(folder: Path, *arguments: str | Path, given: str = "") -> Any:
    """The JSON that the command answers with."""
    done = toolscope(folder, *arguments, "--json", given=given)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def session(**changes: Any) -> str:
    """The JSON of a small session: one worker, one tool of the host, one of a client."""
    document = {
        "serverTools": [{"name": "read"}],
        "activeClients": [
            {"clientId": "desk-1", "tools": [{"name": "pick", "availability": "userChats"}]}
        ],
        "chats": [{"resource": "c:1", "title": "Work", "origin": {"kind": "tool"}}],
    }
    return json.dumps({**document, **changes})


# --------------------------------------------------------------------------------------------
# tools
# --------------------------------------------------------------------------------------------


def test_tools_answers_in_the_documented_shape(folder: Path) -> None:
    """``tools --json``: the chats in order, each with what is listed and withheld and why."""
    assert answer(folder, "tools", "-", given=session()) == {
        "chats": [
            {
                "chat": "c:1",
                "title": "Work",
                "origin": "tool",
                "agent": None,
                "listed": ["read"],
                "withheld": [
                    {
                        "tool": "pick",
                        "provider": "client:desk-1",
                        "verdicts": [
                            {
                                "plugin": "availability",
                                "rule": "userChats",
                                "code": None,
                                "reason": "it is only available in chats that the user drives, and "
                                "this chat was started by a tool; do the task without it, or "
                                "report to the chat that started this one that the user has to do "
                                "it",
                            }
                        ],
                    }
                ],
            }
        ],
        "warnings": [],
        "errors": [],
    }


def test_the_sample_session_shows_every_kind_of_chat(folder: Path) -> None:
    """A user chat, fork, side chat, worker and its worker; one name that two clients offer."""
    chats = {one["chat"]: one for one in answer(folder, "tools", "--sample")["chats"]}
    origins = [one["origin"] for one in chats.values()]
    assert origins == ["user", "fork", "sideChat", "tool", "tool"]
    assert [one["agent"] for one in chats.values()] == [
        "builder", None, "researcher", "researcher", None,
    ]  # fmt: skip
    worker = chats["ahp-chat:/worker"]
    assert worker["listed"] == ["read_file", "search_code", "start_worker", "notify"]
    assert [(one["tool"], one["provider"]) for one in worker["withheld"]] == [
        ("edit_file", "host"),
        ("pick_file", "client:desk-1"),
        ("notify", "client:desk-1"),
        ("take_photo", "client:phone-2"),
    ]
    assert "edit_file" in chats["ahp-chat:/worker-2"]["listed"]


def test_tools_for_people_fits_eighty_columns_without_decoration(folder: Path) -> None:
    """In a pipe there are no colours and no boxes, and no line is longer than 80 columns."""
    done = toolscope(folder, "tools", "--sample")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    lines = done.stdout.split("\n")
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    assert "  shown     read_file, search_code, start_worker, notify (client:phone-2)" in lines
    assert (
        "  shadowed  notify (client:phone-2): another provider's tool has this name here" in lines
    )
    assert "  withheld  pick_file by availability: it is only available in chats that the" in lines


def test_each_withheld_tool_has_a_row_with_plugin_and_reason(folder: Path) -> None:
    """Each chat's block has one row per withheld tool."""
    done = toolscope(folder, "tools", "--sample", "--chat", "ahp-chat:/worker")
    rows = [line for line in done.stdout.split("\n") if line.startswith("  withheld  ")]
    assert [row.split()[1] for row in rows] == ["edit_file", "pick_file", "notify", "take_photo"]
    assert "; and by availability: it is only" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (session(serverTools=[], activeClients=[]), "nothing: the session has no tools"),
        (session(serverTools=[]), "nothing: all 1 tools are withheld"),
    ],
)
def test_no_tools_and_none_left_are_told_apart(folder: Path, document: str, expected: str) -> None:
    """A session without tools and one whose tools are all withheld read differently (law L7)."""
    assert f"  shown     {expected}\n" in toolscope(folder, "tools", "-", given=document).stdout


def test_a_session_without_chats_says_so(folder: Path) -> None:
    """An empty answer is told from no answer."""
    assert answer(folder, "tools", "-", given=session(chats=[]))["chats"] == []
    done = toolscope(folder, "tools", "-", given=session(chats=[]))
    assert (done.returncode, done.stdout) == (0, "The session has no chats.\n")


def test_one_chat_is_chosen_by_its_uri(folder: Path) -> None:
    """``--chat`` shows that chat alone; a wrong one ends with the nearest."""
    chosen = answer(folder, "tools", "--sample", "--chat", "ahp-chat:/fork")["chats"]
    assert [one["chat"] for one in chosen] == ["ahp-chat:/fork"]
    done = toolscope(folder, "tools", "--sample", "--chat", "ahp-chat:/frok")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "toolscope: no chat 'ahp-chat:/frok' in this session; there are 'ahp-chat:/fork'"
    )
    done = toolscope(folder, "tools", "-", "--chat", "x", given=session(chats=[]))
    assert done.stderr == "toolscope: no chat 'x' in this session; the session has no chats\n"


def test_warnings_and_errors_of_the_session_are_shown(folder: Path) -> None:
    """What was read as absent, and an agent that is not there, are told with their path."""
    turn = {"id": "t", "message": {"text": "", "agent": {"uri": "file:///gone.md"}}}
    chats = [{"resource": "c:1", "title": None, "activeTurn": turn}]
    found = answer(folder, "tools", "-", given=session(chats=chats))
    assert found["chats"][0]["listed"] == []
    assert [sorted(one) for one in found["warnings"] + found["errors"]] == [
        ["cure", "path", "problem"]
    ] * 2
    shown = toolscope(folder, "tools", "-", given=session(chats=chats)).stdout
    assert f"warning   {found['warnings'][0]['path']}: " in shown
    assert f"error     {found['errors'][0]['path']}: " in shown


def test_names_cannot_control_the_terminal(folder: Path) -> None:
    """Escapes, markup, line breaks and reversed text in a tool's name are shown as text."""
    name = "a\x1b[31m[red]b[/red]\n\u202ec\u200b"
    done = toolscope(folder, "tools", "-", given=session(serverTools=[{"name": name}]))
    assert "  shown     a\\x1b[31m[red]b[/red]\\n\\u202ec\\u200b\n" in done.stdout
    found = toolscope(folder, "tools", "-", "--json", given=session(serverTools=[{"name": name}]))
    assert found.stdout.isascii()
    assert json.loads(found.stdout)["chats"][0]["listed"] == [name]


def test_what_is_not_printable_is_escaped() -> None:
    """Printable text of any script stays as it is; controls and lone surrogates do not."""
    assert printable("größe 目 C:\\x") == "größe 目 C:\\x"
    assert printable("a\n\ud800\x9b\u2028") == "a\\n\\ud800\\x9b\\u2028"


def test_messages_cannot_control_the_terminal(folder: Path) -> None:
    """What is wrong is quoted in the message; its control characters are not."""
    done = toolscope(folder, "tools", "--sample", "--chat", "a\x1b[2J\u202e")
    assert done.stderr.startswith("toolscope: no chat 'a\\x1b[2J\\u202e' in this session; ")
    done = toolscope(folder, "a\x1b[2J")
    assert 'unknown command "a\\x1b[2J"' in done.stderr


def test_a_terminal_that_knows_no_unicode_gets_escapes(folder: Path) -> None:
    """Output that the encoding cannot hold is escaped rather than raised."""
    done = toolscope(
        folder,
        "tools",
        "-",
        given=session(serverTools=[{"name": "größe"}]),
        PYTHONIOENCODING="ascii",
    )
    assert (done.returncode, done.stdout.count("gr\\xf6\\xdfe")) == (0, 1)


# --------------------------------------------------------------------------------------------
# call
# --------------------------------------------------------------------------------------------


def test_a_denied_call_exits_with_1_and_shows_the_actions(folder: Path) -> None:
    """Start, Ready that needs no confirmation, failed Complete; nobody is named."""
    done = toolscope(
        folder, "call", "--sample", "--chat", "ahp-chat:/worker", "--tool", "pick_file",
        "--arguments", '{"a": 1}', "--call-id", "k", "--json",
    )  # fmt: skip
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert list(found) == [
        "effect", "code", "reason", "final", "provider", "verdicts", "actions",
    ]  # fmt: skip
    assert (found["effect"], found["code"], found["final"], found["provider"]) == (
        "deny", "tool_not_available", True, None,
    )  # fmt: skip
    assert found["reason"].startswith("The tool 'pick_file' is not available in this chat: it is ")
    assert [one["plugin"] for one in found["verdicts"]] == ["availability"]
    start, ready, complete = found["actions"]
    assert [one["type"] for one in found["actions"]] == [
        "chat/toolCallStart", "chat/toolCallReady", "chat/toolCallComplete",
    ]  # fmt: skip
    assert {(one["turnId"], one["toolCallId"]) for one in found["actions"]} == {("turn-1", "k")}
    assert start["toolName"] == "pick_file"
    assert (ready["confirmed"], json.loads(ready["toolInput"])) == ("not-needed", {"a": 1})
    assert complete["result"]["success"] is False
    assert "contributor" not in done.stdout


def test_an_allowed_call_exits_with_0_and_names_who_runs_it(folder: Path) -> None:
    """The client whose copy survives in the worker runs the call; nothing is to be emitted."""
    arguments = ("call", "--sample", "--chat", "ahp-chat:/worker", "--tool", "notify")
    assert toolscope(folder, *arguments).returncode == 0
    assert answer(folder, *arguments) == {
        "effect": "allow",
        "code": None,
        "reason": None,
        "final": None,
        "provider": "client:phone-2",
        "verdicts": [],
        "actions": [],
    }


def test_an_ask_exits_with_3(tmp_path: Path) -> None:
    """A plugin that asks, installed beside the command, gives exit status 3 and an open failure."""
    install_plugin(
        tmp_path,
        "@hookimpl\n    async def on_tool_call(self, call):\n        return ask('think twice')",
    )
    done = toolscope(
        tmp_path, "call", "--sample", "--chat", "ahp-chat:/main", "--tool", "edit_file", "--json",
        PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]),
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert (found["effect"], found["reason"], found["provider"]) == ("ask", None, "host")
    assert found["verdicts"] == [
        {"plugin": "installed", "rule": None, "code": None, "reason": "think twice"}
    ]


def test_a_plugin_that_fails_is_told_on_standard_error(tmp_path: Path) -> None:
    """The operator reads what the model does not: which plugin failed, and at what."""
    install_plugin(
        tmp_path, "@hookimpl\n    def filter_tools(self, tools):\n        raise KeyError('mode')"
    )
    done = toolscope(
        tmp_path, "tools", "--sample", "--json",
        PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]),
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("plugin 'installed' failed: KeyError: 'mode'") == 1
    assert all(chat["listed"] == [] for chat in json.loads(done.stdout)["chats"])


def test_wrong_arguments_are_the_models_fault(folder: Path) -> None:
    """Arguments that are no JSON object are decided as what the model wrote: denied."""
    found = answer(
        folder, "call", "--sample", "--chat", "ahp-chat:/main", "--tool", "edit_file",
        "--arguments", "-1",
    )  # fmt: skip
    assert (found["effect"], found["code"]) == ("deny", "arguments_invalid")


def test_a_denied_call_reads_well(folder: Path) -> None:
    """For people: effect, cause, code, what the model is told, and the actions, at 80 columns."""
    done = toolscope(
        folder, "call", "--sample", "--chat", "ahp-chat:/fork", "--tool", "edit_flie", "--turn", "t"
    )
    assert done.returncode == 1
    assert done.stdout.startswith(
        "deny      edit_flie\n"
        "  code      tool_unknown, final\n"
        "  tell it   There is no tool named 'edit_flie' in this chat. The same call\n"
        "            cannot succeed here; do not repeat it.\n"
        "\n"
        "The host ends the call itself, with these actions:\n"
        '  1  {"type": "chat/toolCallStart", "turnId": "t", "toolCallId": "call",\n'
    )
    assert max(map(len, done.stdout.split("\n"))) <= 80


# --------------------------------------------------------------------------------------------
# plugins
# --------------------------------------------------------------------------------------------


def install_plugin(folder: Path, body: str, imports: str = "") -> None:
    """Makes ``folder`` a place that holds an installed distribution with the plugin `installed`."""
    (folder / "installed_rules.py").write_text(
        f"from toolscope import ask, hookimpl\n{imports}\n\nclass Rules:\n    {body}\n",
        encoding="utf-8",
    )
    metadata = folder / "installed_rules-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: installed-rules\nVersion: 1.2\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[toolscope]\ninstalled = installed_rules:Rules\n", encoding="utf-8"
    )
    (folder / "toolscope.toml").write_text('enable = ["installed"]\n', encoding="utf-8")


def test_plugins_answers_in_the_documented_shape(folder: Path) -> None:
    """``plugins --json``: every plugin with what it implements, in order of names."""
    found = answer(folder, "plugins")["plugins"]
    version = next(one["version"] for one in found if one["name"] == "allowlist")
    assert [one for one in found if one["name"] == "availability"] == [
        {
            "name": "availability",
            "distribution": "toolscope-policy",
            "version": version,
            "hooks": ["filter_tools"],
            "active": True,
            "why_not": None,
        }
    ]
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)


def test_a_broken_plugin_is_listed_with_the_cause(tmp_path: Path) -> None:
    """``plugins`` lists a plugin that cannot be imported, and does not fail itself."""
    install_plugin(tmp_path, "pass", imports="import missing_library")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = toolscope(tmp_path, "plugins", "--json", PYTHONPATH=path)
    assert done.returncode == 0
    found = {one["name"]: one for one in json.loads(done.stdout)["plugins"]}["installed"]
    assert (found["distribution"], found["version"]) == ("installed-rules", "1.2")
    assert (found["hooks"], found["active"]) == ([], False)
    cause = "it cannot be imported (ModuleNotFoundError: No module named 'missing_library')"
    assert cause in found["why_not"]
    assert cause in done.stderr
    shown = toolscope(tmp_path, "plugins", PYTHONPATH=path).stdout
    assert f"installed     not active, installed-rules 1.2: {cause[:20]}" in shown
    assert "availability  active, toolscope-policy " in shown


def test_a_plugin_that_is_not_selected_is_never_imported(tmp_path: Path) -> None:
    """Importing runs code, so only what the configuration selects is imported."""
    install_plugin(tmp_path, "pass", imports="raise SystemExit('imported')")
    (tmp_path / "toolscope.toml").write_text(NO_PLUGINS, encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = toolscope(tmp_path, "plugins", "--json", PYTHONPATH=path)
    assert done.returncode == 0
    found = {one["name"]: one for one in json.loads(done.stdout)["plugins"]}["installed"]
    assert found["why_not"] == "the configuration does not enable it"


# --------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------


def agents(*tools: str) -> list[dict[str, Any]]:
    """Customizations with one agent of this allowlist."""
    child = {"type": "agent", "id": "a", "uri": "file:///a.md", "name": "scout", "tools": tools}
    return [{"type": "plugin", "id": "p", "uri": "file:///p", "name": "P", "children": [child]}]


def test_check_names_entries_that_match_nothing_and_the_nearest(folder: Path) -> None:
    """A misspelt tool and a wrong provider are findings; what matches is not."""
    entries = ("raed", "read", "pick", "host/read", "client:desk-1/*", "client:desk-2/pick", "zzz")
    document = session(customizations=agents(*entries))
    done = toolscope(folder, "check", "-", "--json", given=document)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "valid": True,
        "unmatched": [
            {"agent": "scout", "name": "client:desk-2/pick", "nearest": [
                "client:desk-1/pick", "client:desk-1/*",
            ]},
            {"agent": "scout", "name": "raed", "nearest": ["read"]},
            {"agent": "scout", "name": "zzz", "nearest": []},
        ],
        "findings": [],
    }  # fmt: skip
    shown = toolscope(folder, "check", "-", given=document).stdout
    assert "configuration  valid\npackage        claimed by nothing else\n" in shown
    assert (
        "unmatched      raed in the allowlist of scout matches no tool; nearest are read\n" in shown
    )
    assert "unmatched      zzz in the allowlist of scout matches no tool\n" in shown


def test_check_of_what_is_right_exits_with_0(folder: Path) -> None:
    """A valid configuration and an allowlist that names real tools: nothing to report."""
    for arguments in (("check",), ("check", "--sample")):
        done = toolscope(folder, *arguments, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout) == {"valid": True, "unmatched": [], "findings": []}


def test_check_of_a_broken_configuration_exits_with_2(folder: Path) -> None:
    """Every fault is told with file and path; the JSON says that it is not valid."""
    (folder / "toolscope.toml").write_text(
        'async_timeot = 1\n[plugins.availability]\nabsent_origin = "useer"\n', encoding="utf-8"
    )
    done = toolscope(folder, "check", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout) == {"valid": False, "unmatched": [], "findings": []}
    assert "async_timeot: unknown key; did you mean 'async_timeout'?" in done.stderr
    done = toolscope(folder, "check")
    assert (done.returncode, done.stdout) == (2, "")


def test_check_reports_who_else_claims_the_package(folder: Path) -> None:
    """Another distribution that installs a package ``toolscope`` may have replaced this one."""
    metadata = folder / "toolscope-9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toolscope\nVersion: 9\n", encoding="utf-8"
    )
    (metadata / "top_level.txt").write_text("toolscope\n", encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(folder)])
    done = toolscope(folder, "check", "--json", PYTHONPATH=path)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"valid": False, "unmatched": [], "findings": []}
    assert "the package 'toolscope' is also claimed by 'toolscope'" in done.stderr
    done = toolscope(folder, "check", PYTHONPATH=path)
    assert "package        also claimed by toolscope\n" in done.stdout
    assert _other_claims() == []


# --------------------------------------------------------------------------------------------
# Configuration, input, usage
# --------------------------------------------------------------------------------------------


def test_the_configuration_that_was_used_is_said(tmp_path: Path) -> None:
    """The given file, else the environment's, else toolscope.toml or pyproject.toml here."""

    def said(*arguments: str | Path, **environment: str) -> str:
        return toolscope(tmp_path, "plugins", *arguments, "--json", **environment).stderr

    def write(name: str, text: str = NO_PLUGINS) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    nothing = "configuration: none, so every installed plugin runs with its defaults\n"
    assert nothing in said()
    write("pyproject.toml", "[tool.other]\n")
    assert nothing in said()
    here = write("pyproject.toml", "[tool.toolscope]\nenable = []\n")
    assert said() == f"configuration: {here}\n"
    here = write("toolscope.toml")
    assert said() == f"configuration: {here}\n"
    named = write("named.toml")
    assert said(TOOLSCOPE_CONFIG=str(named)) == f"configuration: {named}\n"
    given = write("given.toml")
    assert said("--config", given, TOOLSCOPE_CONFIG=str(named)) == f"configuration: {given}\n"


@pytest.mark.parametrize("text", ["[tool.toolscope", "tool = 3\n", "[tool]\ntoolscope = 1\n"])
def test_a_pyproject_that_cannot_be_read_is_not_passed_over(tmp_path: Path, text: str) -> None:
    """A broken file might hold the rules, so it is an error; one without the table is none."""
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    done = toolscope(tmp_path, "tools", "--sample")
    assert done.returncode == (0 if text == "tool = 3\n" else 2)
    assert ("the configuration cannot be read" in done.stderr) is (done.returncode == 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tools"], "name one session: a JSON file, '-' for standard input, or --sample"),
        (["tools", "x.json", "--sample"], "name one session: a JSON file"),
        (["tools", "gone.json"], "the session cannot be read: gone.json: No such file"),
        (["tools", "a\0b"], "the session cannot be read"),
        (["tools", "."], "the session cannot be read: .: Is a directory"),
        (["tools", "--jsno"], "no option '--jsno'; a file of that name is './--jsno'"),
        (["tools", "--sample", "a", "b"], "'b' is one argument too many"),
        (["tols"], 'unknown command "tols". Did you mean "tools"?'),
        (["call", "--sample", "--chat", "c:1"], "requires an argument; see 'toolscope --help'"),
        (["tools", "--sample", "--config", "gone.toml"], "gone.toml: No such file"),
    ],
)
def test_bad_usage_is_one_message_and_exit_status_2(
    folder: Path, arguments: list[str], message: str
) -> None:
    """Nothing on standard output, one line on standard error, no traceback."""
    if "\0" in "".join(arguments):
        code = f"from toolscope.cli import main; raise SystemExit(main({arguments!r}))"
        done = run([sys.executable, "-c", code])
    else:
        done = toolscope(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("toolscope: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "it is not JSON"),
        ("[]", "the session cannot be read"),
        (session(chats=3), "$.chats"),
        (session(serverTools=[{"name": "a", "annotations": {"readOnlyHint": "false"}}]), '"false"'),
        ("[" * 100_000, "toolscope: "),
    ],
)
@pytest.mark.parametrize("command", ["tools", "check"])
def test_a_broken_session_is_one_message_and_exit_status_2(
    folder: Path, command: str, document: str, message: str
) -> None:
    """Every fault is listed with its path; there is no traceback."""
    done = toolscope(folder, command, "-", "--json", given=document)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("toolscope: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_input_that_is_no_text_is_bad_input(folder: Path) -> None:
    """Bytes that are no UTF-8 end with exit status 2 and a message."""
    done = toolscope(folder, "tools", "-", given=b"\xff\xfe{}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the session cannot be read" in done.stderr


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    """Like ``toolscope tools ... | head -1``: no traceback where the pipe is closed early."""
    many = session(chats=[{"resource": f"c:{one}"} for one in range(3000)])
    process = subprocess.Popen(
        [*COMMAND, "tools", "-"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(many.encode())
    process.stdin.close()
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 141
    assert said == f"configuration: {folder / 'toolscope.toml'}\n"


def test_help_names_the_subcommands(folder: Path) -> None:
    """``--help`` needs no session, fits 80 columns, and has no boxes in a pipe."""
    done = toolscope(folder, "--help")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.split("\n"))) <= 80
    for name in ("tools", "call", "plugins", "check"):
        assert f"  {name}: " in done.stdout
        assert toolscope(folder, name, "--help").returncode == 0
    assert toolscope(folder, "--version").stdout.count(".") >= 1


def test_the_manual_shows_the_shapes_that_are_answered(folder: Path) -> None:
    """Each JSON block of docs/command.md has exactly the keys of the real answer."""
    blocks = (ROOT / "docs" / "command.md").read_text(encoding="utf-8").split("```json\n")[1:]
    tools, call, plugins, check, *_ = (json.loads(one.split("```")[0]) for one in blocks)
    found = answer(folder, "tools", "--sample", "--chat", "ahp-chat:/worker")
    assert list(tools) == list(found)
    assert {**tools["chats"][0], "withheld": []} == {**found["chats"][0], "withheld": []}
    assert list(tools["chats"][0]["withheld"][0]) == list(found["chats"][0]["withheld"][0])
    found = answer(folder, "call", "--sample", "--chat", "ahp-chat:/worker", "--tool", "pick_file")
    assert list(call) == list(found)
    assert call["reason"].rstrip(".") in found["reason"]
    found = answer(folder, "plugins")
    assert list(plugins["plugins"][0]) == list(found["plugins"][0])
    document = session(
        serverTools=[{"name": "search_code"}],
        customizations=[
            {**agents("serach_code")[0], "children": [
                {**agents("serach_code")[0]["children"][0], "name": "researcher"}
            ]}
        ],
    )  # fmt: skip
    assert check == answer(folder, "check", "-", given=document)
