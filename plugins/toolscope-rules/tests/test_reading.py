"""Policy files: what is read, with which lines, and what is refused with which words."""

import tomllib
from pathlib import Path

import pytest
from toolscope_rules import Policy, read_policy
from toolscope_rules.lines import toml_lines
from toolscope_rules.reading import LARGEST_FILE, read_document
from toolscope_rules.writing import policy_to_toml, to_toml

from toolscope.errors import ConfigurationError
from toolscope.verdicts import Effect

WHOLE = """\
default = "deny"
trusted = ["host", "mcp:git*"]
absent_origin = "tool"
known_tools = ["read"]

[[rules]]
id = "one"
effect = "allow"
tools = ["read_*", "mcp:fs/*", "tag:safe", "hint:read_only"]
except = ["read_secret"]
origins = ["user", "fork"]
agents = ["lead*"]
subjects = ["ann"]
reach = "subtree"
when.path.under = "/data"
[rules.attributes]
team = ["red", "blue"]
env = "test"

[[rules]]
effect = "deny"
tools = ["x"]
when = [ "args.n > 1", { command = { shell_program = ["rm", "dd"] } } ]
reason = "no; ask the user"
code = "no_x"
listed = true
"""


def read(text: str, folder: Path | None = None) -> Policy:
    """The policy of a TOML text, which must have no fault."""
    policy, faults = read_policy(
        tomllib.loads(text), toml_lines(text.encode()), source="p.toml", folder=folder
    )
    assert faults == []
    assert policy is not None
    return policy


def faults(text: str) -> list[str]:
    """What is wrong with a TOML text."""
    policy, found = read_policy(tomllib.loads(text), toml_lines(text.encode()), source="p.toml")
    assert policy is None
    return [str(fault) for fault in found]


def test_every_key_is_read() -> None:
    """What is written is what the rule holds."""
    policy = read(WHOLE)
    one, two = policy.rules
    assert (policy.default, policy.trusted) == (Effect.DENY, ("host", "mcp:git*"))
    assert (policy.absent_origin, policy.known_tools) == ("tool", ("read",))
    assert (one.id, one.effect, one.reach) == ("one", Effect.ALLOW, "subtree")
    assert [selector.text for selector in one.tools or ()] == [
        "read_*", "mcp:fs/*", "tag:safe", "hint:read_only",
    ]  # fmt: skip
    assert [selector.text for selector in one.exceptions] == ["read_secret"]
    assert one.origins == ("user", "fork")
    assert [pattern.text for pattern in one.attributes["team"]] == ["red", "blue"]
    assert one.when is not None
    assert one.when.data == {"path": {"under": "/data"}}
    assert (two.id, two.reason, two.code, two.listed) == (
        "rule-2", "no; ask the user", "no_x", True,
    )  # fmt: skip


def test_absent_and_empty_are_two_things() -> None:
    """A selector that is left out selects all; an empty one selects nothing."""
    absent, empty = read(
        '[[rules]]\neffect = "ask"\n[[rules]]\neffect = "ask"\ntools = []\norigins = []\n'
    ).rules
    assert (absent.tools, absent.origins) == (None, None)
    assert (empty.tools, empty.origins) == ((), ())


def test_rules_know_their_lines() -> None:
    """The place of a rule is the line of its header, also after texts that look like one."""
    text = (
        'default = "ask"\nx = """\n[[rules]]\n"""\n\n[[rules]]\nid = "a"\n# [[rules]]\n'
        '[[rules]]\nid = "b"\n[rules.attributes]\nteam = "x"\n'
    )
    lines = toml_lines(text.encode())
    assert [lines.rule(0), lines.rule(1), lines.rule(2)] == [6, 9, None]
    assert lines.rule(1, "attributes") == 11
    assert lines.rule(0, "id") == 7
    assert lines.key("default") == 1
    inline = toml_lines(b'rules = [\n  { id = "a" },\n  { id = "b",\n effect = "ask" },\n]\n')
    assert [inline.rule(0), inline.rule(1), inline.rule(1, "effect")] == [2, 3, 4]
    policy = read(WHOLE)
    assert [policy.place(rule) for rule in policy.rules] == ["p.toml:6 (one)", "p.toml:20 (rule-2)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('defualt = "ask"', "p.toml:1: defualt: unknown key; did you mean 'default'?"),
        ('default = "dney"', "p.toml:1: default: 'dney' is not allowed; allowed is 'allow' or"),
        ("default = true", "default: True is not allowed; allowed is 'allow' or 'ask' or 'deny'"),
        ('trusted = "host"', "trusted: 'host' is not allowed; allowed is a list of texts"),
        ('absent_origin = "fork"', "'fork' is not allowed; allowed is 'user' or 'tool'"),
        ('relative_to = "here"', "relative_to: it is relative; write an absolute path"),
        ("rules = 5", "rules: it is no array of tables; write each rule as [[rules]]"),
        ('[[rules]]\ntools = ["a"]', "p.toml:1: rules[0].effect: it is missing; write 'allow',"),
        (
            '[[rules]]\nid = "r"\neffect = "deny"\n\ntool = ["a"]',
            "p.toml:5: rules[0] (r).tool: unknown key; did you mean 'tools'?",
        ),
        ('[[rules]]\neffect = "deny"\ntools = "a"', "tools: 'a' is not allowed; allowed is a list"),
        ('[[rules]]\neffect = "deny"\ntools = ["a?"]', "p.toml:3: rules[0].tools: '?' in the"),
        ('[[rules]]\neffect = "deny"\ntools = ["hint:readonly"]', "did you mean 'hint:read_only'?"),
        ('[[rules]]\neffect = "deny"\ntools = ["mcp:x/"]', "names no tool; write 'mcp:x/*' for"),
        ('[[rules]]\neffect = "deny"\nid = "a b"', "'a b' is no id; allowed are up to 100"),
        ('[[rules]]\neffect = "deny"\nid = 5', "5 is no id"),
        ('[[rules]]\neffect = "deny"\nreach = "all"', "'all' is not allowed; allowed is 'self' or"),
        ('[[rules]]\neffect = "deny"\nreason = " "', "' ' is not allowed; allowed is a text"),
        ('[[rules]]\neffect = "deny"\ncode = "denied"', "hosts read it as a cancel by a person"),
        ('[[rules]]\neffect = "deny"\nlisted = "yes"', "'yes' is not allowed; allowed is true or"),
        ('[[rules]]\neffect = "ask"\nlisted = true', "listed: ask rules withhold nothing; remove"),
        ('[[rules]]\neffect = "deny"\nattributes = "x"', "'x' is not allowed; allowed is a table"),
        ('[[rules]]\neffect = "deny"\nattributes.a = 5', "5 is not allowed; allowed is a list of"),
        ('[[rules]]\neffect = "deny"\nwhen = "1 +"', "rules[0].when: '1 +' is no CEL"),
        ('[[rules]]\neffect = "deny"\nwhen = {}', "when: an empty condition"),
        (
            '[[rules]]\neffect = "deny"\nwhen.d.equals = 2020-01-01',
            "when: a value is a date, which is not JSON",
        ),
        (
            '[[rules]]\nid = "a"\neffect = "ask"\n[[rules]]\nid = "a"\neffect = "deny"',
            "p.toml:4: rules[1].id: 'a' is taken by the rule in line 1; give each rule an id",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_cure(text: str, message: str) -> None:
    """Each fault has file and line, the value, and what is allowed."""
    found = faults(text)
    assert len(found) == 1
    assert message in found[0]


def test_all_faults_are_reported_at_once() -> None:
    """A file is mended in one go."""
    text = 'defualt = "ask"\n[[rules]]\neffect = "dney"\ntools = [""]\nreach = 5\n'
    assert len(faults(text)) == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.toml", b"a = ", "it is no TOML: Invalid value"),
        ("p.toml", b'a = "\xff"', "it is no TOML: 'utf-8' codec"),
        ("p.toml", b"a = " + b"[" * 5000 + b"]" * 5000, "it is no TOML: "),
        ("p.toml", b"a" + b".a" * 400_000 + b" = 1", "line 1: a key of more than 50 parts"),
        ("p.toml", b"b = 1\n[a" + b' . "a.b"' * 60 + b"]", "line 2: a key of more than 50 parts"),
        ("p.toml", b"#" * (LARGEST_FILE + 1), "it has more than 1,000,000 bytes; split it"),
        ("p.yaml", b"a: [", "it is no YAML: "),
        ("p.yaml", b"- a", "it is no YAML: the document is no mapping"),
        ("p.yaml", b"a: &x 1\nb: *x", "alias *x is not allowed; write the value again"),
        ("p.yaml", b"rules:\n- id: a\n  id: b", "line 3: 'id' is written twice"),
        ("p.yml", b"a: !!python/object:os.system x", "it is no YAML: "),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    """Broken, hostile and huge files end in an error that says what is wrong."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_document(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_many_hosts_on_one_line_are_no_long_key(tmp_path: Path) -> None:
    """Dots in texts and numbers are not parts of keys."""
    file = tmp_path / "p.toml"
    hosts = ", ".join(f'"h{i}.a.example.com"' for i in range(80))
    numbers = ", ".join(["1.5"] * 80)
    file.write_text(f"a = [{hosts}]\nb = [{numbers}]\nc = '{'.' * 99}'", encoding="utf-8")
    assert set(read_document(file)[0]) == {"a", "b", "c"}


def test_a_missing_file_says_what_its_path_is_relative_to(tmp_path: Path) -> None:
    """The usual mistake is the wrong folder."""
    with pytest.raises(ConfigurationError, match="No such file or directory; its path is relative"):
        read_document(tmp_path / "p.toml")


def test_yaml_says_the_same(tmp_path: Path) -> None:
    """The YAML form of a policy gives equal rules, with their own lines."""
    file = tmp_path / "p.yaml"
    file.write_text(
        "default: deny\nrules:\n  - id: one\n    effect: allow\n    tools: [read_*]\n"
        "    when: {path: {under: /data}}\n\n  - {id: two, effect: deny}\n",
        encoding="utf-8",
    )
    document, lines = read_document(file)
    policy, found = read_policy(document, lines, source="p.yaml")
    assert found == []
    assert policy == read(
        'default = "deny"\n[[rules]]\nid = "one"\neffect = "allow"\ntools = ["read_*"]\n'
        'when.path.under = "/data"\n[[rules]]\nid = "two"\neffect = "deny"\n'
    )
    assert [policy.place(rule) for rule in policy.rules] == ["p.yaml:3 (one)", "p.yaml:8 (two)"]
    file.write_text("", encoding="utf-8")
    assert read_document(file)[0] == {}


def test_relative_paths_start_from_the_policy_files_folder(tmp_path: Path) -> None:
    """``relative_to`` is itself relative to the file that says it, never to the current folder."""
    assert read('relative_to = "work"', tmp_path).relative_to == str(tmp_path / "work")


def test_a_policy_written_out_is_the_same_policy() -> None:
    """Reading what was written gives an equal policy, whatever the texts hold."""
    policy = read(WHOLE)
    assert read(policy_to_toml(policy)) == policy
    odd = read(to_toml({"rules": [{"effect": "deny", "reason": 'a "b"\\\n\x7f\u2028é', "when": {
        "odd key": {"equals": [1, 2.5, True, {"x y": {}}]}}}]}))  # fmt: skip
    assert read(policy_to_toml(odd)) == odd


def test_what_toml_cannot_say_is_refused() -> None:
    """There is no null in TOML."""
    with pytest.raises(ValueError, match="a NoneType cannot be written as TOML"):
        to_toml({"a": None})
