"""The named matchers: small tests of one argument that are easy to get wrong by hand.

A matcher is made of what the policy says and answers True, False, or None where it cannot tell.
``generous`` is for denies and asks: then one part that matches is enough, and what looks alike
counts. Otherwise every part must match exactly.
"""

import os.path
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import ada_url

from toolscope_rules.patterns import Pattern, PatternIndex
from toolscope_rules.shell import Words, all_runs, base_name, read_line

__all__ = ["MATCHERS", "Matcher", "Truth", "all_of", "any_of", "make_matcher", "same"]

Truth: TypeAlias = bool | None
"""True, False, or None: it cannot be told."""

Matcher: TypeAlias = Callable[[Any, bool], Truth]
"""From an argument's value, and whether to match generously."""


def any_of(truths: Iterable[Truth]) -> Truth:
    """True if one is, else None if one is, else False."""
    result: Truth = False
    for truth in truths:
        if truth:
            return True
        if truth is None:
            result = None
    return result


def all_of(truths: Iterable[Truth]) -> Truth:
    """False if one is, else None if one is, else True."""
    result: Truth = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            result = None
    return result


# --------------------------------------------------------------------------------------------
# Shell lines
# --------------------------------------------------------------------------------------------


def _shell_program(wanted: object, _: str | None) -> Matcher:
    programs = frozenset(_texts(wanted))
    folded = frozenset(base_name(program) for program in programs)

    def is_one(words: Words, generous: bool) -> Truth:
        program = words[0] if words else None
        if program is None:
            return None
        return base_name(program) in folded if generous else program in programs

    return _over_commands(is_one)


def _starts_with_words(wanted: object, _: str | None) -> Matcher:
    rows: list[object] = [wanted]
    if isinstance(wanted, list) and wanted and all(isinstance(row, list) for row in wanted):
        rows = wanted
    starts = [tuple(_texts(row)) for row in rows]

    def is_one(words: Words, generous: bool) -> Truth:
        test = _begins_loosely if generous else _begins
        return any_of(test(words, start) for start in starts)

    return _over_commands(is_one)


def _begins(words: Words, start: Sequence[str]) -> Truth:
    if len(words) < len(start):
        return False
    pairs = zip(words, start, strict=False)
    return all_of(None if word is None else word == wanted for word, wanted in pairs)


def _begins_loosely(words: Words, start: Sequence[str]) -> Truth:
    """The same, with options (and a value of each) allowed between the wanted words."""
    if not words:
        return False
    if words[0] is None:
        return None
    if base_name(words[0]) != base_name(start[0]):
        return False
    places = {1}
    for wanted in start[1:]:
        reached = set[int]()
        for place in places:
            while place < len(words):
                word = words[place]
                if word is None:
                    return None
                if word == wanted:
                    reached.add(place + 1)
                before_is_option = place > 1 and (words[place - 1] or "").startswith("-")
                if not word.startswith("-") and not before_is_option:
                    break
                place += 1
        places = reached
        if not places:
            return False
    return True


def _over_commands(is_one: Callable[[Words, bool], Truth]) -> Matcher:
    def matcher(value: Any, generous: bool) -> Truth:
        line = read_line(value) if isinstance(value, str) else None
        if line is None:
            return None
        if generous:
            return any_of(is_one(words, True) for words in all_runs(line))
        truth = all_of(is_one(words, False) for words in line.commands)
        if truth and not (line.plain and line.commands):
            return None
        return truth

    return matcher


# --------------------------------------------------------------------------------------------
# Paths
# --------------------------------------------------------------------------------------------

_LONGEST_PATH: Final = 4096


def _under(wanted: object, folder: str | None) -> Matcher:
    folders = []
    for text in _texts(wanted):
        path = _absolute(text, folder)
        if path is None:
            raise ValueError(
                f"{text!r} is no absolute path; write one, or say with 'relative_to' in the policy "
                "where relative paths start"
            )
        folders.append(frozenset(_forms(path)))

    def is_one(value: Any, generous: bool) -> Truth:
        path = _absolute(value, folder) if isinstance(value, str) else None
        if path is None:
            return None
        if not generous:
            return any(
                all(any(_is_below(form, top) for top in tops) for form in _forms(path))
                for tops in folders
            )
        forms = {form.casefold() for form in _forms(path)}
        return any(
            _is_below(form, top.casefold()) for tops in folders for top in tops for form in forms
        )

    return _over_elements(is_one)


def _absolute(text: str, folder: str | None) -> str | None:
    """The path as an absolute one, its ``..`` still in it; None where that is not certain."""
    if text[:5].lower() == "file:":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            return None
        text = unquote(parts.path)
    elif "://" in text:
        return None
    if not text or "\0" in text or len(text) > _LONGEST_PATH or text.startswith("~"):
        return None
    if text.startswith("/"):
        return text
    return None if folder is None else f"{folder}/{text}"


def _forms(path: str) -> tuple[str, str]:
    """The path as it reads, and as the file system resolves it, symlinks included."""
    return posixpath.normpath("/" + path.lstrip("/")), os.path.realpath(path)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def _over_elements(is_one: Matcher) -> Matcher:
    """A list of values is tested one by one; an empty one tells nothing."""

    def matcher(value: Any, generous: bool) -> Truth:
        if not isinstance(value, list):
            return is_one(value, generous)
        if not value:
            return None
        truths = (is_one(one, generous) for one in value)
        return any_of(truths) if generous else all_of(truths)

    return matcher


# --------------------------------------------------------------------------------------------
# Hosts
# --------------------------------------------------------------------------------------------

_LONGEST_URL: Final = 65_536


def _host(wanted: object, _: str | None) -> Matcher:
    patterns = [Pattern(_normal_host(text)) for text in _texts(wanted)]
    exact, loose = (
        PatternIndex([(one, 1) for one in patterns], generous=generous, separator=".")
        for generous in (False, True)
    )

    def is_one(value: Any, generous: bool) -> Truth:
        if not isinstance(value, str) or len(value) > _LONGEST_URL:
            return None
        try:
            host = _plain_host(value)
        except ValueError:
            return None
        if not host:  # a name and port without a scheme, or a scheme around another URL
            return False if value.partition(":")[0].strip().casefold() in _HOSTLESS else None
        read_otherwise = _host_by_rfc(value)
        if generous:
            names = (host, read_otherwise, _ipv4_in(host))
            return any(name is not None and loose.owners(name) for name in names)
        matched = bool(exact.owners(host))
        return matched if not matched or read_otherwise == host else None

    return _over_elements(is_one)


_HOSTLESS: Final = frozenset({"about", "data", "mailto"})


def _ipv4_in(host: str) -> str | None:
    """The IPv4 address that an IPv6 address stands for, if it is one that does."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return None if mapped is None else str(mapped)


def _plain_host(url: str) -> str:
    """The host as browsers normalise it, without a final dot and brackets; empty for none."""
    return str(ada_url.URL(url).hostname).rstrip(".").strip("[]")


def _host_by_rfc(url: str) -> str | None:
    r"""The host as RFC 3986 libraries read it; browsers and they disagree on ``\`` and ``@``."""
    try:
        host = urlsplit(url).hostname
        return None if host is None else _plain_host(f"https://{_bracketed(host)}")
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def _normal_host(text: str) -> str:
    """The host of a policy, wildcards kept, in the form that URLs are normalised to."""
    wild = []
    labels = text.rstrip(".").split(".")
    while labels and "*" in labels[0]:
        wild.append(labels.pop(0))
    rest = ".".join(labels)
    if "*" in rest or any(label not in ("*", "**") for label in wild):
        raise ValueError(
            f"{text!r} is no host; allowed are 'example.com', '*.example.com' (one label more) and "
            "'**.example.com' (any number)"
        )
    if not rest:
        return text
    try:
        host = _plain_host(f"https://{_bracketed(rest)}/")
    except ValueError:
        host = ""
    if not host or any(sign in rest for sign in "/@?#\\ "):
        raise ValueError(f"{text!r} is no host; write the name alone, as in 'example.com'")
    return ".".join([*wild, host])


# --------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _equals(wanted: object, _: str | None) -> Matcher:
    return lambda value, generous: same(value, wanted)


def _one_of(wanted: object, _: str | None) -> Matcher:
    if not isinstance(wanted, list):
        raise ValueError(f"{wanted!r} is no list of values")  # noqa: TRY004
    if not wanted:
        raise ValueError("[] holds no value, so the condition would never hold")
    return lambda value, generous: any(same(value, one) for one in wanted)


def _bound(wanted: object, holds: Callable[[Any, Any], bool]) -> Matcher:
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)):
        raise ValueError(f"{wanted!r} is no number")  # noqa: TRY004

    def matcher(value: Any, generous: bool) -> Truth:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return holds(value, wanted)

    return matcher


def _at_least(wanted: object, _: str | None) -> Matcher:
    return _bound(wanted, lambda value, bound: value >= bound)


def _at_most(wanted: object, _: str | None) -> Matcher:
    return _bound(wanted, lambda value, bound: value <= bound)


def _texts(wanted: object) -> list[str]:
    texts = [wanted] if isinstance(wanted, str) else wanted
    if (
        not isinstance(texts, list)
        or not texts
        or not all(isinstance(text, str) and text for text in texts)
    ):
        raise ValueError("allowed is a text, or a list of at least one text")
    return texts


MATCHERS: Final[Mapping[str, Callable[[object, str | None], Matcher]]] = {
    "shell_program": _shell_program,
    "starts_with_words": _starts_with_words,
    "under": _under,
    "host": _host,
    "equals": _equals,
    "one_of": _one_of,
    "at_least": _at_least,
    "at_most": _at_most,
}
"""Every named matcher: what makes it of the policy's value and the folder of relative paths."""


def make_matcher(name: str, wanted: object, folder: str | None) -> Matcher:
    """The matcher of this name for this value.

    Raises:
        ValueError: There is no such matcher, or the value is not what it takes.
    """
    try:
        return MATCHERS[name](wanted, folder)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
