"""Reads a policy file: TOML, or YAML with the extra ``yaml``, with the line of every rule.

Every fault of a file is found at once, each with file, line, rule, what is allowed and the nearest
known name. What is not known is refused: a key that was misspelt would silently restrict nothing.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from toolscope.errors import ConfigurationError, Fault, nearest
from toolscope.model import freeze
from toolscope.verdicts import Effect, deny
from toolscope_rules.conditions import read_condition
from toolscope_rules.lines import Lines, toml_lines, yaml_document
from toolscope_rules.patterns import Pattern
from toolscope_rules.rules import Policy, Rule
from toolscope_rules.selectors import read_selector

__all__ = ["LARGEST_FILE", "read_document", "read_policy"]

LARGEST_FILE: Final = 1_000_000
"""How many bytes a policy file may have."""
MOST_RULES: Final = 10_000

T = TypeVar("T")

_TOP_KEYS: Final = (
    "default", "trusted", "absent_origin", "relative_to", "known_tools", "rules", "tests",
)  # fmt: skip
_RULE_KEYS: Final = (
    "id", "effect", "tools", "except", "origins", "agents", "subjects", "attributes", "reach",
    "when", "reason", "code", "listed",
)  # fmt: skip
_ID: Final = re.compile(r"[\w.:/@-]{1,100}")


def read_document(path: Path) -> tuple[dict[str, Any], Lines]:
    """The tables of a policy file, and the lines of its rules and tests.

    Raises:
        ConfigurationError: It cannot be read, or is no TOML (YAML).
    """

    def broken(problem: str, cure: str | None = None) -> ConfigurationError:
        fault = Fault(path="", problem=problem, cure=cure, source=str(path))
        return ConfigurationError("the policy file cannot be read", [fault])

    try:
        with path.open("rb") as file:
            source = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise broken(
            error.strerror or str(error), "its path is relative to the configuration file"
        ) from error
    if len(source) > LARGEST_FILE:
        raise broken(f"it has more than {LARGEST_FILE:,} bytes", "split it, or shorten it")
    try:
        if path.suffix in (".yaml", ".yml"):
            return yaml_document(source)
        text = source.decode()
        _refuse_long_keys(text)
        return tomllib.loads(text), toml_lines(source)
    except ImportError as error:
        raise broken("reading YAML needs PyYAML", "install toolscope-rules[yaml]") from error
    except (ValueError, RecursionError) as error:
        kind = "YAML" if path.suffix in (".yaml", ".yml") else "TOML"
        text = " ".join(str(error).split()) or "nested too deep"
        raise broken(f"it is no {kind}: {text}") from error


def _refuse_long_keys(text: str) -> None:
    """Refuses dotted keys of very many parts: reading one takes time with the square of them."""
    for number, line in enumerate(_QUOTED.sub('""', text).splitlines(), 1):
        if any(part.count(".") > _MOST_DOTS for part in _BETWEEN_KEYS.split(line)):
            raise ValueError(f"line {number}: a key of more than {_MOST_DOTS} parts")


_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\\n])*"?|\'[^\'\n]*\'?')
_BETWEEN_KEYS: Final = re.compile(r"[,=\[\]{}#]")
_MOST_DOTS: Final = 50


def read_policy(
    document: Mapping[str, Any],
    lines: Lines | None = None,
    *,
    source: str | None = None,
    folder: Path | None = None,
) -> tuple[Policy | None, list[Fault]]:
    """The policy of a document, or None with every fault in it.

    ``source`` names the file in faults and verdicts; ``folder`` is what ``relative_to`` starts
    from.
    """
    reader = _Reader(lines or Lines(), source)
    policy = reader.policy(document, folder)
    return (None, reader.faults) if reader.faults else (policy, [])


class _Wrong(Exception):  # noqa: N818  (a fault that is on its way to the list)
    def __init__(self, problem: str, cure: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure


class _Reader:
    """Gathers the faults of one document."""

    def __init__(self, lines: Lines, source: str | None) -> None:
        self._lines = lines
        self._source = source
        self.faults: list[Fault] = []

    def policy(self, document: Mapping[str, Any], folder: Path | None) -> Policy:
        self._known_keys(document, _TOP_KEYS, "", self._lines.key)
        value = _Values(self, document, "", self._lines.key)
        relative_to = value.get("relative_to", _text, None)
        if relative_to is not None:
            start = (folder or Path()) / relative_to
            relative_to = str(start) if start.is_absolute() else None
            if relative_to is None:
                self._fault("relative_to", "it is relative", "write an absolute path", None)
        return Policy(
            default=value.get("default", _effect, Effect.ALLOW),
            trusted=value.get("trusted", _patterns_as_text, ()),
            absent_origin=value.get("absent_origin", _one_of("user", "tool"), "user"),
            relative_to=relative_to,
            known_tools=value.get("known_tools", _texts, None),
            rules=self._rules(document.get("rules", []), relative_to),
            source=self._source,
        )

    def _rules(self, rows: object, relative_to: str | None) -> tuple[Rule, ...]:
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            self._fault("rules", "it is no array of tables", "write each rule as [[rules]]", None)
            return ()
        if len(rows) > MOST_RULES:
            self._fault("rules", f"{len(rows)} rules", f"allowed are {MOST_RULES}", None)
            return ()
        rules = [self._rule(row, place, relative_to) for place, row in enumerate(rows)]
        seen: dict[str, int | None] = {}
        for place, rule in enumerate(rules):
            if rule.id in seen:
                self._fault(
                    f"rules[{place}].id",
                    f"{rule.id!r} is taken by the rule in line {seen[rule.id]}",
                    "give each rule an id of its own",
                    rule.line,
                )
            seen.setdefault(rule.id, rule.line)
        return tuple(rules)

    def _rule(self, row: Mapping[str, Any], place: int, relative_to: str | None) -> Rule:
        line = self._lines.rule(place)

        def line_of(key: str) -> int | None:
            return self._lines.rule(place, key)

        named = row.get("id")
        at = f"rules[{place}]" + (f" ({named})" if isinstance(named, str) else "")
        self._known_keys(row, _RULE_KEYS, at, line_of)
        value = _Values(self, row, at, line_of)
        if "effect" not in row:
            self._fault(f"{at}.effect", "it is missing", "write 'allow', 'ask' or 'deny'", line)
        effect = value.get("effect", _effect, Effect.DENY)
        listed = value.get("listed", _true_or_false, False)
        if listed and effect is not Effect.DENY:
            self._fault(
                f"{at}.listed", f"{effect} rules withhold nothing", "remove it", line_of("listed")
            )
        return Rule(
            id=value.get("id", _id, f"rule-{place + 1}"),
            effect=effect,
            tools=value.get("tools", _each(read_selector), None),
            exceptions=value.get("except", _each(read_selector), ()),
            origins=value.get("origins", _texts, None),
            agents=value.get("agents", _each(Pattern), None),
            subjects=value.get("subjects", _each(Pattern), None),
            attributes=value.get("attributes", _attributes, {}),
            reach=value.get("reach", _one_of("self", "subtree"), "self"),
            when=value.get("when", lambda one: read_condition(freeze(one), relative_to), None),
            reason=value.get("reason", _text, None),
            code=value.get("code", _code, None),
            listed=listed,
            line=line,
        )

    def _known_keys(
        self,
        row: Mapping[str, Any],
        known: Sequence[str],
        at: str,
        line_of: Callable[[str], int | None],
    ) -> None:
        for key in row:
            if key not in known:
                near = nearest(str(key), known, 1)
                cure = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                path = f"{at}.{key}" if at else str(key)
                self._fault(path, "unknown key", cure, line_of(str(key)))

    def _fault(self, path: str, problem: str, cure: str | None, line: int | None) -> None:
        source = self._source
        if source is not None and line is not None:
            source = f"{source}:{line}"
        self.faults.append(Fault(path=path, problem=problem, cure=cure, source=source))

    def fault_at(self, path: str, error: Exception, line: int | None) -> None:
        """Notes what is wrong with one value."""
        if isinstance(error, _Wrong):
            self._fault(path, error.problem, error.cure, line)
        else:
            self._fault(path, str(error), None, line)


class _Values:
    """The values of one table, each read by what knows its form."""

    def __init__(
        self,
        reader: _Reader,
        row: Mapping[str, Any],
        at: str,
        line_of: Callable[[str], int | None],
    ) -> None:
        self._reader, self._row, self._at, self._line_of = reader, row, at, line_of

    def get(self, key: str, read: Callable[[Any], T], default: Any) -> Any:
        if key not in self._row:
            return default
        try:
            return read(self._row[key])
        except (_Wrong, ValueError) as error:
            path = f"{self._at}.{key}" if self._at else key
            self._reader.fault_at(path, error, self._line_of(key))
            return default


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that nests too deep"
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(f"{_shown(value)} is not allowed", "allowed is a text")
    return value


def _id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise _Wrong(
            f"{_shown(value)} is no id", "allowed are up to 100 letters, digits and _ . : / @ -"
        )
    return value


def _code(value: object) -> str:
    code = _text(value)
    deny("its code is tried out", code=code)  # says which codes are reserved
    return code


def _true_or_false(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"{_shown(value)} is not allowed", "allowed is true or false")
    return value


def _one_of(*allowed: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            near = nearest(value, allowed, 1) if isinstance(value, str) else ()
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            choices = " or ".join(map(repr, allowed))
            raise _Wrong(f"{_shown(value)} is not allowed", f"allowed is {choices}{meant}")
        return value

    return read


def _effect(value: object) -> Effect:
    return Effect(_one_of(*(effect.value for effect in Effect))(value))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise _Wrong(f"{_shown(value)} is not allowed", "allowed is a list of texts")
    return tuple(value)


def _each(read: Callable[[str], T]) -> Callable[[object], tuple[T, ...]]:
    return lambda value: tuple(map(read, _texts(value)))


def _patterns_as_text(value: object) -> tuple[str, ...]:
    return tuple(Pattern(one).text for one in _texts(value))


def _attributes(value: object) -> Mapping[str, tuple[Pattern, ...]]:
    if not isinstance(value, Mapping):
        raise _Wrong(f"{_shown(value)} is not allowed", "allowed is a table of attributes")
    return {
        str(name): tuple(map(Pattern, _texts([one] if isinstance(one, str) else one)))
        for name, one in value.items()
    }
