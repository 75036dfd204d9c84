"""Conditions on arguments: three-valued, generous for denies, exact for allows and grants."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolscope_rules import holds, read_condition
from toolscope_rules.matchers import all_of, any_of, same

from toolscope.model import HOST, Agent, Scope, Tool, freeze

TRUTHS = st.sampled_from([True, False, None])


def outcome(condition: Any, arguments: dict[str, Any], *, folder: str | None = None) -> Any:
    """What an allow and what a deny make of the condition."""
    read = read_condition(condition, folder)
    frozen = freeze(arguments)
    return read.holds(frozen, generous=False), read.holds(frozen, generous=True)


@given(truths=st.lists(TRUTHS, max_size=6))
def test_unknown_is_neither(truths: list[bool | None]) -> None:
    """Kleene's logic: unknown gives way to what settles the matter, and to nothing else."""
    assert all_of(truths) is (False if False in truths else None if None in truths else True)
    assert any_of(truths) is (True if True in truths else None if None in truths else False)


@pytest.mark.parametrize(
    ("line", "allow", "deny"),
    [
        ("git status", True, True),
        ("git status && git log", True, True),
        ("git status && make", False, True),
        ("make", False, False),
        ("make git", False, False),
        ("sudo git", False, True),
        ("/usr/bin/git a", False, True),
        ("GIT a", False, True),
        ("A=1 git a", None, True),
        ("git a > out", None, True),
        ("git 'a", None, None),
        ("$X a", None, None),
        ("$X a; make", False, None),
        ("", None, False),
        (7, None, None),
        (["git", "a"], None, None),
    ],
)
def test_shell_program(line: object, allow: bool | None, deny: bool | None) -> None:
    """An allow needs every command to match, a deny any; a line in doubt is unknown."""
    assert outcome({"command": {"shell_program": "git"}}, {"command": line}) == (allow, deny)


@pytest.mark.parametrize(
    ("line", "allow", "deny"),
    [
        ("npm test", True, True),
        ("npm test -- unit", True, True),
        ("npm tests", False, False),
        ("npm -s test", False, True),
        ("npm --prefix x test", False, True),
        ("npm run test", False, False),
        ("npm", False, False),
        ("npm test && ls", False, True),
        ("npm te*", None, None),
        ("npm $X", None, None),
        ("'npm' \"test\"", True, True),
    ],
)
def test_starts_with_words(line: str, allow: bool | None, deny: bool | None) -> None:
    """The first words of each command; for a deny, options in between change nothing."""
    condition = {"command": {"starts_with_words": ["npm", "test"]}}
    assert outcome(condition, {"command": line}) == (allow, deny)


def test_starts_with_words_takes_alternatives() -> None:
    """A list of lists is one of them; a text is one word."""
    several = {"c": {"starts_with_words": [["npm", "test"], ["npm", "ci"]]}}
    assert outcome(several, {"c": "npm ci; npm test"}) == (True, True)
    assert outcome({"c": {"starts_with_words": "npm"}}, {"c": "npm ci"}) == (True, True)


@pytest.mark.parametrize(
    ("path", "allow", "deny"),
    [
        ("/etc/hosts", True, True),
        ("/etc", True, True),
        ("/etcetera", False, False),
        ("/data/a", False, False),
        ("/data/../etc/hosts", True, True),
        ("/etc/../data/a", False, False),
        ("//etc//hosts", True, True),
        ("/ETC/hosts", False, True),
        ("file:///etc/hosts", True, True),
        ("file:///%65tc/hosts", True, True),
        ("file://elsewhere/etc/hosts", None, None),
        ("https://a.test/etc", None, None),
        ("etc/hosts", None, None),
        ("~/x", None, None),
        ("/etc/\0", None, None),
        ("/" + "a/" * 3000, None, None),
        ("", None, None),
        (5, None, None),
        ([], None, None),
        (["/etc/a", "/etc/b"], True, True),
        (["/etc/a", "/data/b"], False, True),
        (["/data/b", "x"], False, None),
    ],
)
def test_under(path: object, allow: bool | None, deny: bool | None) -> None:
    """A path below a folder, normalised; where it starts must be certain."""
    assert outcome({"path": {"under": "/etc"}}, {"path": path}) == (allow, deny)


def test_under_follows_symlinks(tmp_path: Path) -> None:
    """A link into a folder is below it for a deny, and a link out of it is not for an allow."""
    for folder in ("open", "secret"):
        (tmp_path / folder).mkdir()
    (tmp_path / "open" / "link").symlink_to(tmp_path / "secret")
    path = {"path": str(tmp_path / "open" / "link" / "key")}
    assert outcome({"path": {"under": str(tmp_path / "secret")}}, path) == (False, True)
    assert outcome({"path": {"under": str(tmp_path / "open")}}, path) == (False, True)
    (tmp_path / "alias").symlink_to(tmp_path / "open")
    inside = {"path": str(tmp_path / "open" / "a")}
    assert outcome({"path": {"under": str(tmp_path / "alias")}}, inside) == (True, True)


def test_relative_paths_start_where_the_policy_says(tmp_path: Path) -> None:
    """With a folder, relative paths are as good as absolute ones."""
    condition = {"path": {"under": "docs"}}
    folder = str(tmp_path)
    assert outcome(condition, {"path": "docs/a"}, folder=folder) == (True, True)
    assert outcome(condition, {"path": "docs/../a"}, folder=folder) == (False, False)
    with pytest.raises(ValueError, match="'docs' is no absolute path; write one, or say"):
        read_condition(condition)


@pytest.mark.parametrize(
    ("url", "allow", "deny"),
    [
        ("https://api.example.com/x", True, True),
        ("https://API.EXAMPLE.COM:8443", True, True),
        ("https://api.example.com./", True, True),
        ("https://user@api.example.com", True, True),
        ("https://a.b.example.com", False, True),
        ("https://example.com", False, False),
        ("https://api.example.com.evil.test", False, False),
        ("https://api.example.com@evil.test", False, False),
        ("https://evil.test\\@api.example.com", False, True),
        ("https:\\\\api.example.com", None, True),
        ("https://api.examp1e.com", False, True),
        ("https://ａpi.example.com", True, True),
        ("api.example.com", None, None),
        ("data:text/plain,x", False, False),
        ("", None, None),
        (None, None, None),
        ("https://" + "a" * 70_000, None, None),
        ("a.example.com:8080/admin", None, None),
        ("view-source:https://a.example.com/", None, None),
        ("jdbc:mysql://a.example.com/x", None, None),
        ("mailto:a@a.example.com", False, False),
    ],
)
def test_host(url: object, allow: bool | None, deny: bool | None) -> None:
    """The host after normalisation; where libraries disagree about it, no allow holds."""
    assert outcome({"url": {"host": "*.example.com"}}, {"url": url}) == (allow, deny)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://0x7f.1/"),
        ("127.0.0.1", "http://2130706433/"),
        ("::1", "http://[0:0::1]:80/"),
        ("[::1]", "http://[::1]/"),
        ("münchen.example", "https://xn--mnchen-3ya.example/"),
        ("**.example.com", "https://a.b.example.com/"),
        ("**", "https://anything.test/"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
    ],
)
def test_hosts_have_one_form(host: str, url: str) -> None:
    """A deny of a host meets it however it is written."""
    assert outcome({"url": {"host": host}}, {"url": url})[1] is True


@pytest.mark.parametrize(
    ("condition", "arguments", "expected"),
    [
        ({"n": {"equals": 1}}, {"n": 1.0}, True),
        ({"n": {"equals": 1}}, {"n": True}, False),
        ({"n": {"equals": "1"}}, {"n": 1}, False),
        ({"n": {"equals": [1, {"a": 2.0}]}}, {"n": [1.0, {"a": 2}]}, True),
        ({"n": {"equals": [1]}}, {"n": [1, 2]}, False),
        ({"n": {"one_of": ["a", 2]}}, {"n": 2.0}, True),
        ({"n": {"at_least": 3, "at_most": 5}}, {"n": 4}, True),
        ({"n": {"at_least": 3, "at_most": 5}}, {"n": 5.5}, False),
        ({"n": {"at_least": 3}}, {"n": "4"}, None),
        ({"n": {"at_least": 3}}, {"n": True}, None),
        ({"n": {"at_least": 3}}, {}, None),
        ({"n": {"present": True}}, {}, False),
        ({"n": {"present": False}}, {}, True),
        ({"n": {"present": True}}, {"n": None}, True),
        ({"/a/b": {"equals": 1}}, {"a": {"b": 1}}, True),
        ({"/a/1": {"equals": 2}}, {"a": [1, 2]}, True),
        ({"/a/7": {"equals": 2}}, {"a": [1, 2]}, None),
        ({"/a/x": {"equals": 2}}, {"a": [1, 2]}, None),
        ({"/a~1b": {"equals": 1}}, {"a/b": 1}, True),
        ([{"a": {"equals": 1}}, "args.b == 2"], {"a": 1, "b": 2}, True),
        ([{"a": {"equals": 1}}, "args.b == 2"], {"a": 2}, False),
        ([{"a": {"equals": 1}}, "args.b == 2"], {"a": 1}, None),
    ],
)
def test_values(condition: Any, arguments: dict[str, Any], expected: bool | None) -> None:
    """Numbers compare as numbers, nothing is turned into another type, missing is unknown."""
    assert outcome(condition, arguments) == (expected, expected)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=6,
    )
)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    """`same` is reflexive, and never takes a yes for a number."""
    assert same(value, value)
    assert not same(True, 1)
    assert not same(0, False)


@pytest.mark.parametrize(
    ("expression", "arguments", "expected"),
    [
        ("args.n < 100 && args.unit == 'EUR'", {"n": 99.5, "unit": "EUR"}, True),
        ("args.n == 1.0", {"n": 1}, True),
        ("args.n == 1", {}, None),
        ("has(args.n) && args.n == 1", {}, False),
        ("args.n == 1 || true", {}, True),
        ("args.n > 'a'", {"n": 1}, None),
        ("args.n", {"n": "yes"}, None),
        ("args.l.exists(x, x > 2)", {"l": [1, 2, 3]}, True),
        ("args.l[9] == 1", {"l": []}, None),
        ("1 / 0 == 1", {}, None),
        ("args.n > 1", {"n": 2**70}, None),
        ("args.s.matches('^(a+)+$')", {"s": "a" * 5000 + "b"}, False),
        ("args.s.matches(r'^[a-z]+@[a-z]+[.]test$')", {"s": "ann@home.test"}, True),
        ("args.s.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}$')", {"s": "2026-12-01"}, True),
        ("nothing_like_it(args)", {}, None),
        ("scope.origin == 'tool' && scope.agent == 'bot'", {}, True),
        ("'red' in scope.attributes.teams", {}, True),
        ("scope.subject == 'ann'", {}, None),
        ("tool.provider == 'host' && 'x' in tool.tags", {}, True),
    ],
)
def test_expressions(expression: str, arguments: dict[str, Any], expected: bool | None) -> None:
    """CEL over arguments, scope and tool; what has no answer is unknown."""
    scope = Scope(origin="tool", agent=Agent(name="bot"), attributes={"teams": {"red", "blue"}})
    tool = Tool(name="t", provider=HOST, tags={"x"})
    read = read_condition(expression)
    assert read.holds(freeze(arguments), scope, tool, generous=True) is expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 +", "'1 +' is no CEL: "),
        ("", "'' is no CEL"),
        ("a" * 2001, "an expression of 2001 characters; allowed are 2000"),
        ("(" * 500 + "1" + ")" * 500, "is no CEL"),
        ("args.s.matches(args.p)", "a pattern that is not written out; write text.matches("),
        ("matches(args.s, 'a')", "a pattern that is not written out"),
        ("args.s.matches('a' + 'b')", "a pattern that is not written out"),
        ("args.s.matches('[ab]{500}c{100}')", "its regular expressions are of size"),
        ("args.s.matches('(a{100}){100,}')", "its regular expressions are of size"),
        ("args.s.matches('.*.*.*.*.*{9999}')", "its regular expressions are of size"),
        ("args.a.all(x, true)" + " && args.a.all(x, true)" * 3, "uses 4 macros; allowed are 3"),
    ],
)
def test_expressions_that_are_refused(expression: str, message: str) -> None:
    """What is no CEL, or could take for ever, is refused when the policy is read."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_condition(expression)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "arguments"),
    [
        ("args.l.all(x, args.l.all(y, x + y >= 0))", {"l": list(range(9000))}),
        ("args.l.all(x, args.l.all(y, args.l.all(z, true)))", {"l": list(range(500))}),
        ("args.l.all(x, 'a'.matches('(a{5}){5}') || true)", {"l": list(range(9000))}),
        ("args.l.all(x, args.l.all(y, args.l == args.l))", {"l": list(range(300))}),
        ("args.l.all(x, x in args.l)", {"l": list(range(9000))}),
        ("args.s.matches('[ab]*a[ab]{50}b')", {"s": "ab" * 50_000}),
        ("[args.s].map(a, " + "+".join(["a"] * 160) + ").size() > 0", {"s": "x" * 900_000}),
        ("args.s == 'x'", {"s": "x" * 2_000_000}),
        ("args.l == 1", {"l": [0] * 50_000}),
        (
            "[[args.s].map(a, ["
            + ",".join(["a"] * 60)
            + "])].map(b, ["
            + ",".join(["b"] * 60)
            + "]).map(c, ["
            + ",".join(["c"] * 60)
            + "]) == []",
            {"s": "x" * 900_000},
        ),
    ],
)
def test_expressions_that_could_take_for_ever_are_unknown(
    expression: str, arguments: dict[str, Any]
) -> None:
    """Nothing stops CEL once it runs, so what could take too long is not begun."""
    started = time.perf_counter()
    assert read_condition(expression).holds(freeze(arguments), generous=True) is None
    assert time.perf_counter() - started < 10


@given(text=st.text("args.sl()[]{}'\"\\+-*/%<>=!&|?:,0 1xin", max_size=40) | st.text(max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    """No text, however strange, breaks the reader or the evaluation."""
    try:
        read = read_condition(text)
    except ValueError:
        return
    assert read.holds(freeze({"s": "a", "l": [1]}), generous=True) in (True, False, None)


def test_macros_within_the_limits_run() -> None:
    """The limits leave room for what policies need."""
    read = read_condition("args.l.all(x, x.name.startsWith('a') && x.n + 1 < 9000)")
    rows = [{"name": "abc", "n": i} for i in range(1000)]
    assert read.holds(freeze({"l": rows}), generous=False) is True


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({}, "an empty condition"),
        ([], "an empty condition"),
        (5, "a condition is a int"),
        ([["args.a == 1"]], "a condition is a list"),
        ({"a": {}}, "'a' has no matcher"),
        ({"a": 5}, "'a' has no matcher"),
        ({"a": {"shel_program": "git"}}, "there is no matcher 'shel_program'; did you mean"),
        ({"a": {"zzz": "git"}}, "there is no matcher 'zzz'; there are shell_program"),
        ({"a": {"present": 1}}, "'present' takes true or false"),
        ({"a": {"shell_program": []}}, "shell_program: allowed is a text, or a list"),
        ({"a": {"starts_with_words": [[]]}}, "starts_with_words: allowed is a text"),
        ({"a": {"under": 7}}, "under: allowed is a text"),
        ({"a": {"host": "https://x"}}, "is no host; write the name alone"),
        ({"a": {"host": "a.*.b"}}, "'a.*.b' is no host; allowed are 'example.com'"),
        ({"a": {"host": "*x.com"}}, "is no host; allowed are"),
        ({"a": {"one_of": "x"}}, "one_of: 'x' is no list of values"),
        ({"a": {"at_most": "x"}}, "at_most: 'x' is no number"),
        ({f"a{i}": {"equals": 1} for i in range(101)}, "a condition of 101 tests"),
    ],
)
def test_what_is_no_condition_is_refused(condition: Any, message: str) -> None:
    """Each fault says what is wrong and what is allowed."""
    with pytest.raises(ValueError, match=r".") as caught:
        read_condition(condition)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "arguments", "expected"),
    [
        ({"command": {"shell_program": "git"}}, {"command": "git a"}, True),
        ({"command": {"shell_program": "git"}}, {"command": "git a; rm b"}, False),
        ({"command": {"shell_program": "git"}}, {}, None),
        ({"command": {"nonsense": "git"}}, {"command": "git a"}, None),
        ({"command": {"shell_program": object()}}, {"command": "git a"}, None),
        (None, {}, None),
    ],
)
def test_grants_hold_exactly(condition: Any, arguments: Any, expected: bool | None) -> None:
    """The condition of a grant is an allow's; one that cannot be read is no yes."""
    assert holds(condition, arguments) is expected
