"""The pattern language: what matches, what does not, and many at once as each alone."""

import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolscope_rules.names import look_alike_keys
from toolscope_rules.patterns import Pattern, PatternIndex


def matches(pattern: str, text: str, *, generous: bool = False) -> bool:
    """Whether one pattern matches the whole text."""
    return Pattern(pattern).matches(text, generous=generous)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("read", "read", True),
        ("read", "read_file", False),
        ("read", "rea", False),
        ("read_*", "read_file", True),
        ("read_*", "read_", True),
        ("read_*", "read", False),
        ("read_*", "read_a/b", False),
        ("read_**", "read_a/b", True),
        ("*_file", "read_file", True),
        ("*_file", "read_files", False),
        ("*", "read", True),
        ("*", "a/b", False),
        ("**", "a/b", True),
        ("a/*/c", "a/b/c", True),
        ("a/*/c", "a/b/b/c", False),
        ("a/**/c", "a/b/b/c", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("*a*b*", "xaxbx", True),
        ("*a*b*", "xbxax", False),
        ("**a*b", "xa/yab", True),
        ("***", "a/b", True),
    ],
)
def test_exact_matching(pattern: str, text: str, expected: bool) -> None:
    """``*`` stays in its segment, ``**`` does not, and a prefix of something is no match of it."""
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("delete_row", "DELETE_ROW", True),
        ("DELETE_ROW", "delete_row", True),
        ("list_files", "LIST_FILES", True),
        ("delete_row", "dеlete_row", True),  # a Cyrillic letter
        ("delete_row", "delete\u200b_row", True),
        ("delete_row", "ｄelete_row", True),
        ("delete_row", "de1ete_row", True),
        ("pay", "pay\u202e", True),
        ("file", "ﬁle", True),
        ("delete_row", "delete_rows", False),
        ("mail", "mall", False),
        ("list", "iist", False),
        ("Iist", "list", True),  # the pattern has a capital I, which looks like an l
        ("a/*", "a/b/c", True),
        ("d*", "Dеlete", True),
    ],
)
def test_generous_matching(pattern: str, text: str, expected: bool) -> None:
    """Denies and asks look through case, invisible signs and look-alikes; ``*`` crosses."""
    assert matches(pattern, text, generous=True) is expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "an empty pattern matches nothing"),
        ("a?", "'?' in the pattern 'a?' is not special here"),
        ("[ab]*", "'[' in the pattern"),
        ("{a,b}", "'{' in the pattern"),
        ("a" * 257, "a pattern of 257 characters; allowed are 256"),
        ("*a" * 17, "has more than 16 wildcards"),
        ("\u200b", "has only invisible characters"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, message: str) -> None:
    """Signs of other pattern languages would silently match only themselves."""
    with pytest.raises(ValueError, match=r".") as caught:
        Pattern(pattern)
    assert message in str(caught.value)


def by_definition(pattern: str, text: str) -> bool:
    """The pattern language written down a second time, as slow and as plain as can be."""

    @cache
    def rest(p: int, t: int) -> bool:
        if p == len(pattern):
            return t == len(text)
        if pattern.startswith("**", p):
            q = p
            while pattern.startswith("*", q):
                q += 1
            return any(rest(q, u) for u in range(t, len(text) + 1))
        if pattern[p] == "*":
            end = text.find("/", t)
            end = len(text) if end < 0 else end
            return any(rest(p + 1, u) for u in range(t, end + 1))
        return t < len(text) and text[t] == pattern[p] and rest(p + 1, t + 1)

    return rest(0, 0)


PATTERNS = st.text("ab/*", min_size=1, max_size=8)
TEXTS = st.text("ab/", max_size=8)


@given(pattern=PATTERNS, text=TEXTS)
def test_one_pattern_means_what_is_written(pattern: str, text: str) -> None:
    """The compiled form agrees with the definition, for every text."""
    assert matches(pattern, text) is by_definition(pattern, text)


@given(patterns=st.lists(PATTERNS, max_size=12), text=TEXTS, generous=st.booleans())
def test_many_at_once_agree_with_one_by_one(patterns: list[str], text: str, generous: bool) -> None:
    """The owners of an index are exactly those whose pattern matches alone."""
    read = [Pattern(pattern) for pattern in patterns]
    index = PatternIndex([(one, 1 << i) for i, one in enumerate(read)], generous=generous)
    alone = sum(1 << i for i, one in enumerate(read) if one.matches(text, generous=generous))
    assert index.owners(text) == alone
    assert bool(index) is bool(patterns)


@given(pattern=PATTERNS, text=TEXTS)
def test_generous_is_never_less(pattern: str, text: str) -> None:
    """What matches exactly matches generously too."""
    assert not matches(pattern, text) or matches(pattern, text, generous=True)


@given(text=st.text(min_size=1, max_size=30))
def test_a_name_looks_like_itself_in_capitals(text: str) -> None:
    """The keys of a text and of its case-folded form have one in common."""
    assert set(look_alike_keys(text)) & set(look_alike_keys(text.casefold()))


def test_no_pattern_is_catastrophic() -> None:
    """Wildcards that make regular expressions run for years cost a step for each character."""
    started = time.perf_counter()
    for generous in (False, True):
        pattern = Pattern("*a" * 16)
        assert not pattern.matches("a" * 20_000 + "b", generous=generous)
        mixed = Pattern("**a*a**a*a**a*a**a*b")
        assert not mixed.matches("a/" * 10_000, generous=generous)
    assert time.perf_counter() - started < 20
