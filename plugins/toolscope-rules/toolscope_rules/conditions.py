"""Conditions on arguments: true, false or unknown.

A condition is kept as data and read here, from a rule's ``when`` or from a standing grant::

    {"command": {"shell_program": "git"}}          one argument, named matchers (all must hold)
    {"/options/depth": {"at_most": 3}}             an argument inside others, by JSON pointer
    "args.sum < 100 && args.currency == 'EUR'"     CEL, over args, scope and tool
    [condition, condition]                         all must hold

A missing argument, and whatever cannot be evaluated, makes a condition unknown.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

from toolscope.errors import nearest
from toolscope.model import Scope, Tool, canonical_json
from toolscope_rules.expressions import Expression, NotComputable
from toolscope_rules.matchers import MATCHERS, Matcher, Truth, all_of, make_matcher

__all__ = ["Condition", "Leaf", "holds", "read_condition"]

Data: TypeAlias = "str | Mapping[str, Any] | list[Any]"

_MOST_LEAVES: Final = 100
_MISSING: Final = object()


@attrs.frozen
class Leaf:
    """One test: an expression, or a matcher of one argument (``present`` has none)."""

    text: str
    """The test as a person reads it: ``command shell_program 'git'``."""
    expression: Expression | None = attrs.field(default=None, repr=False)
    path: tuple[str, ...] = ()
    matcher: Matcher | None = attrs.field(default=None, repr=False)
    present: bool | None = None
    values: tuple[Any, ...] = ()
    """The values that the test takes, where it names them all; of a bound, the bound."""
    is_bound: bool = False

    def test(
        self,
        arguments: Mapping[str, Any],
        scope: Scope | None,
        tool: Tool | None,
        *,
        generous: bool,
    ) -> tuple[Truth, str]:
        """Whether it holds, and why that cannot be told where it is None."""
        if self.expression is not None:
            try:
                return self.expression.holds(arguments, scope, tool), ""
            except NotComputable as error:
                return None, str(error)
        value = _at(arguments, self.path)
        if self.present is not None:
            return (value is not _MISSING) is self.present, ""
        if value is _MISSING or self.matcher is None:
            return None, f"the argument '{'/'.join(self.path)}' is missing"
        truth = self.matcher(value, generous)
        return truth, "the argument cannot be taken apart with certainty" if truth is None else ""


@attrs.frozen
class Condition:
    """Tests that must all hold. ``data`` is what it was read from."""

    data: Data
    leaves: tuple[Leaf, ...] = attrs.field(eq=False, repr=False)

    def holds(
        self,
        arguments: Mapping[str, Any],
        scope: Scope | None = None,
        tool: Tool | None = None,
        *,
        generous: bool,
    ) -> Truth:
        """Whether it holds for a call; None where that cannot be told.

        ``generous`` is for denies and asks (one part that matches is enough, what looks alike
        counts), its opposite for allows and grants (every part must match, exactly).
        """
        return all_of(
            leaf.test(arguments, scope, tool, generous=generous)[0] for leaf in self.leaves
        )

    def contradiction(self) -> str | None:
        """Two tests of one argument that no value meets both of; None where none was found.

        Only what is evident is found: bounds that cross, values that another test refuses, and an
        argument that must be absent and have a value.
        """
        by_path: dict[tuple[str, ...], list[Leaf]] = {}
        for leaf in self.leaves:
            if leaf.expression is None:
                by_path.setdefault(leaf.path, []).append(leaf)
        for leaves in by_path.values():
            tests = [leaf for leaf in leaves if leaf.matcher is not None]
            for leaf in leaves:
                if leaf.present is False and tests:
                    return f"[{leaf.text}] and [{tests[0].text}]"
                for other in tests:
                    if leaf.is_bound and not other.is_bound:
                        continue
                    if leaf.values and not any(
                        other.matcher is None or other.matcher(value, True) is not False
                        for value in leaf.values
                    ):
                        return f"[{leaf.text}] and [{other.text}]"
        return None


def read_condition(data: object, folder: str | None = None) -> Condition:
    """Reads a condition; relative paths in it and in arguments start from ``folder``.

    Raises:
        ValueError: It is not well formed. The text says what is wrong, and what is allowed.
    """
    leaves = tuple(_leaves(data, folder, nested=False))
    if not leaves:
        raise ValueError("an empty condition; leave 'when' out where none is meant")
    if len(leaves) > _MOST_LEAVES:
        raise ValueError(f"a condition of {len(leaves)} tests; allowed are {_MOST_LEAVES}")
    return Condition(data, leaves)  # type: ignore[arg-type]  # _leaves refuses all else


def holds(condition: object, arguments: Mapping[str, Any]) -> bool | None:
    """Whether the condition of a standing grant holds for the arguments of a call.

    Every part must match, exactly. None where that cannot be told, and for a condition that is not
    well formed: neither may be taken for a yes. `read_condition` says what is wrong with one.
    """
    try:
        read = _read_again(canonical_json(condition))
    except (TypeError, ValueError, RecursionError):
        return None
    return None if read is None else read.holds(arguments, generous=False)


@lru_cache(maxsize=256)
def _read_again(text: str) -> Condition | None:
    import json

    try:
        return read_condition(json.loads(text))
    except ValueError:
        return None


def _leaves(data: object, folder: str | None, *, nested: bool) -> Iterator[Leaf]:
    match data:
        case str():
            yield Leaf(text=data, expression=Expression(data))
        case list() if not nested:
            for one in data:
                yield from _leaves(one, folder, nested=True)
        case Mapping():
            for argument, tests in data.items():
                yield from _of_argument(argument, tests, folder)
        case _:
            raise ValueError(
                f"a condition is a {type(data).__name__}; allowed are CEL text, a table of "
                "arguments, and a list of these"
            )


def _of_argument(argument: object, tests: object, folder: str | None) -> Iterator[Leaf]:
    if not isinstance(argument, str):
        raise ValueError(f"the argument {argument!r} is no text")  # noqa: TRY004
    if not isinstance(tests, Mapping) or not tests:
        raise ValueError(
            f"'{argument}' has no matcher; write one as in {argument} = {{ equals = ... }}; there "
            f"are {', '.join((*MATCHERS, 'present'))}"
        )
    path = _path(argument)
    for name, wanted in tests.items():
        text = f"{argument} {name} {wanted!r}"
        if name == "present":
            if not isinstance(wanted, bool):
                raise ValueError(f"'{argument}': 'present' takes true or false")
            yield Leaf(text=text, path=path, present=wanted)
            continue
        if name not in MATCHERS:
            near = nearest(str(name), (*MATCHERS, "present"), 1)
            cure = (
                f"did you mean {near[0]!r}?"
                if near
                else f"there are {', '.join((*MATCHERS, 'present'))}"
            )
            raise ValueError(f"'{argument}': there is no matcher {name!r}; {cure}")
        try:
            matcher = make_matcher(name, wanted, folder)
        except ValueError as error:
            raise ValueError(f"'{argument}': {error}") from None
        bound = name in ("at_least", "at_most")
        values = tuple(wanted) if name == "one_of" else (wanted,) * (bound or name == "equals")
        yield Leaf(text=text, path=path, matcher=matcher, values=values, is_bound=bound)


def _path(argument: str) -> tuple[str, ...]:
    """An argument's name, or the keys of a JSON pointer (RFC 6901) where it begins with ``/``."""
    if not argument.startswith("/"):
        return (argument,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in argument[1:].split("/"))


def _at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for key in path:
        if isinstance(value, Mapping):
            value = value.get(key, _MISSING)
        elif (
            isinstance(value, list)
            and key.isascii()
            and key.isdigit()
            and int(key[:9]) < len(value)
        ):
            value = value[int(key[:9])]
        else:
            return _MISSING
    return value
