"""The configuration file, and the one converter that turns tables into settings.

cattrs by itself is lenient: it turns the text ``"false"`` into True and the text ``"abc"`` into the
set ``{"a", "b", "c"}``, and its messages do not say what is allowed. The converter here takes every
value as it is, and each fault says where, what, what is allowed and the nearest known name.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, get_args, get_origin

import attrs

from toolscope.errors import ConfigurationError, Fault, nearest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Configuration", "read_configuration", "structure_settings"]

ENVIRONMENT: Final = "TOOLSCOPE_CONFIG"
"""The environment variable that names the configuration file."""

T = TypeVar("T")


def _seconds(instance: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if not (0 < value < math.inf):
        raise ValueError(f"{value!r} is no waiting time; allowed is a number of seconds above 0")


@attrs.frozen(kw_only=True)
class Configuration:
    """The top table of the file (design: section 7), with the place it came from.

    ``enable`` is None where every installed plugin runs; ``async_timeout`` is in seconds.
    """

    enable: tuple[str, ...] | None = None
    async_timeout: float = attrs.field(default=5.0, validator=_seconds)
    plugins: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    path: "Path | None" = None

    @property
    def source(self) -> str | None:
        """What faults name as the place of the configuration."""
        return None if self.path is None else str(self.path)

    @property
    def folder(self) -> "Path | None":
        """What paths in settings are relative to; None where the configuration is no file."""
        return None if self.path is None else self.path.parent


@attrs.frozen(kw_only=True)
class _TopTable:
    enable: tuple[str, ...] | None = None
    async_timeout: float = attrs.field(default=5.0, validator=_seconds)
    plugins: dict[str, dict[str, Any]] = attrs.field(factory=dict)


def read_configuration(
    path: str | os.PathLike[str] | None = None, *, table: Mapping[str, Any] | None = None
) -> Configuration:
    """Reads the file at ``path``, else the one that ``TOOLSCOPE_CONFIG`` names, else nothing.

    The current folder is never looked at: agents write there, and clones bring files. With
    ``table``, that is the configuration and no file or variable is read.

    Raises:
        ConfigurationError: The file cannot be read, or its top table is wrong.
    """
    if table is not None:
        return _top(table, None)
    named = path if path is not None else os.environ.get(ENVIRONMENT) or None
    if named is None:
        return Configuration()
    from pathlib import Path

    file = Path(named).absolute()
    return _top(_table_of(file), file)


def _top(table: Mapping[str, Any], path: "Path | None") -> Configuration:
    source = None if path is None else str(path)
    top, faults = structure_settings(_TopTable, table, at="", source=source, folder=None)
    if top is None:
        raise ConfigurationError("the configuration is wrong", faults)
    return Configuration(
        enable=top.enable, async_timeout=top.async_timeout, plugins=top.plugins, path=path
    )


def _table_of(file: "Path") -> Mapping[str, Any]:
    def broken(problem: str, cure: str | None = None) -> NoReturn:
        fault = Fault(path="", problem=problem, cure=cure, source=str(file))
        raise ConfigurationError("the configuration cannot be read", [fault])

    import tomllib

    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        broken(error.strerror or str(error))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        broken(f"it is no TOML: {error}")
    if file.name != "pyproject.toml":
        return document
    tool = document.get("tool")
    table = tool.get("toolscope") if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        broken("it has no table [tool.toolscope]", "add one, or name a toolscope.toml")
    return table


# --------------------------------------------------------------------------------------------
# The converter
# --------------------------------------------------------------------------------------------


class _Refused(ValueError):  # noqa: N818  (a value, not a failure)
    """A value that a strict hook does not take."""

    def __init__(self, value: object, allowed: str, near: Sequence[str] = ()) -> None:
        self.value = value
        cure = f"allowed is {allowed}"
        if near:
            cure += " (did you mean " + " or ".join(repr(one) for one in near) + "?)"
        self.cure = cure
        super().__init__(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def structure_settings(
    cls: type[T], table: object, *, at: str, source: str | None, folder: "Path | None"
) -> tuple[T | None, list[Fault]]:
    """The table as an instance of the attrs class, or None with every fault in it.

    ``at`` is the place of the table in its document, ``folder`` what paths are relative to.
    """
    from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError

    try:
        return _converter(folder).structure(table, cls), []
    except BaseValidationError as error:
        found = _faults(error, at)
    except StructureHandlerNotFoundError as error:
        found = [Fault(path=at, problem=f"the settings class cannot be read: {error}")]
    except Exception as error:  # noqa: BLE001  (settings classes are plugin code: they raise anything)
        found = _leaf(error, at)
    return None, [attrs.evolve(fault, source=source) for fault in found]


@lru_cache(8)
def _converter(folder: "Path | None") -> Any:
    """A strict converter for primitives, collections, choices, paths; it refuses unknown keys."""
    from pathlib import Path

    from cattrs import Converter
    from cattrs.errors import IterableValidationError, IterableValidationNote
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(forbid_extra_keys=True, detailed_validation=True)

    def exactly(kind: type, allowed: str) -> Callable[[object, object], object]:
        def hook(value: object, target: object) -> object:
            # cattrs before 26 asks by base class first, and enums of text or numbers come here.
            if isinstance(target, type) and issubclass(target, Enum):
                return member(value, target)
            if type(value) is not kind:
                raise _Refused(value, allowed)
            return value

        return hook

    converter.register_structure_hook(str, exactly(str, "text"))
    converter.register_structure_hook(bool, exactly(bool, "true or false"))
    converter.register_structure_hook(int, exactly(int, "a whole number"))

    def number(value: object, _: object) -> float:
        if type(value) not in (int, float):
            raise _Refused(value, "a number")
        return float(value)  # type: ignore[arg-type]

    converter.register_structure_hook(float, number)

    def path(value: object, _: object) -> Path:
        if type(value) is not str or not value:
            raise _Refused(value, "the path of a file")
        if folder is None and not Path(value).is_absolute():
            raise _Refused(value, "an absolute path: there is no file it could be relative to")
        return (folder or Path()) / value

    converter.register_structure_hook(Path, path)

    def choice(value: object, choices: Any) -> object:
        allowed = get_args(choices)
        if any(value == one and type(value) is type(one) for one in allowed):
            return value
        raise _refused_choice(value, allowed)

    converter.register_structure_hook_func(lambda t: _generic(t) is Literal, choice)

    def member(value: object, kind: Any) -> object:
        for one in kind:
            if type(value) is type(one.value) and value == one.value:
                return one
        raise _refused_choice(value, [one.value for one in kind])

    converter.register_structure_hook(Enum, member)
    converter.register_structure_hook_func(
        lambda t: isinstance(t, type) and issubclass(t, Enum), member
    )

    def elements(items: Iterable[tuple[int | str, object]], kind: Any, cl: Any) -> list[object]:
        done, failed = [], []
        for index, item in items:
            try:
                done.append(item if kind is Any else converter.structure(item, kind))
            except Exception as error:  # noqa: BLE001  (gathered: every fault is reported)
                error.add_note(IterableValidationNote(f"at {index!r}", index, kind))
                failed.append(error)
        if failed:
            raise IterableValidationError("elements", failed, cl)
        return done

    def collection(value: object, cl: Any) -> object:
        if type(value) not in (list, tuple):
            raise _Refused(value, "a list")
        kind = (get_args(cl) or (Any,))[0]
        made = elements(enumerate(value), kind, cl)  # type: ignore[arg-type]
        into = _generic(cl)
        return made if into in (list, Sequence) else into(made)

    converter.register_structure_hook_func(
        lambda t: _generic(t) in (list, tuple, set, frozenset, Sequence), collection
    )

    def mapping(value: object, cl: Any) -> object:
        if not isinstance(value, Mapping):
            raise _Refused(value, "a table")
        for key in value:
            if type(key) is not str:
                raise _Refused(key, "a table whose keys are text")
        kind = (get_args(cl) or (str, Any))[1]
        return dict(zip(value, elements(value.items(), kind, cl), strict=True))

    converter.register_structure_hook_func(lambda t: _generic(t) in (dict, Mapping), mapping)

    def of_attrs(cl: Any) -> Callable[[object, object], object]:
        inner = make_dict_structure_fn(cl, converter, _cattrs_forbid_extra_keys=True)

        def hook(value: object, kind: Any) -> object:
            if not isinstance(value, Mapping):
                raise _Refused(value, "a table")
            return inner(value, kind)

        return hook

    converter.register_structure_hook_factory(attrs.has, of_attrs)
    return converter


def _generic(t: Any) -> Any:
    """``list`` of ``list[str]``, and ``list`` of ``list``."""
    return get_origin(t) or t


def _refused_choice(value: object, allowed: Iterable[object]) -> _Refused:
    texts = [one for one in allowed if isinstance(one, str)]
    near = nearest(value, texts, 1) if isinstance(value, str) else ()
    return _Refused(value, " or ".join(repr(one) for one in allowed), near)


def _faults(error: BaseException, at: str) -> list[Fault]:
    """Every fault in what cattrs raised, with its path."""
    from cattrs.errors import ClassValidationError, IterableValidationError

    if isinstance(error, IterableValidationError):
        noted, plain = error.group_exceptions()
        return [
            fault
            for one, note in noted
            for fault in _faults(
                one,
                f"{at}[{note.index}]" if isinstance(note.index, int) else _under(at, note.index),
            )
        ] + [fault for one in plain for fault in _faults(one, at)]
    if isinstance(error, ClassValidationError):
        noted_attributes, plain = error.group_exceptions()
        return [
            fault for one, note in noted_attributes for fault in _faults(one, _under(at, note.name))
        ] + [fault for one in plain for fault in _faults(one, at)]
    return _leaf(error, at)


def _leaf(error: BaseException, at: str) -> list[Fault]:
    from cattrs.errors import ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in attrs.fields(error.cl)]
        return [
            Fault(path=_under(at, key), problem="unknown key", cure=_known(key, known))
            for key in sorted(map(str, error.extra_fields))
        ]
    if isinstance(error, _Refused):
        return [Fault(path=at, problem=f"{_shown(error.value)} is not allowed", cure=error.cure)]
    if isinstance(error, KeyError):
        return [Fault(path=at, problem="it is missing", cure="it has no default: set it")]
    return [Fault(path=at, problem=str(error) or type(error).__name__)]


def _known(key: str, known: Sequence[str]) -> str:
    if near := nearest(key, known, 1):
        return f"did you mean {near[0]!r}?"
    return f"known here are {', '.join(map(repr, known))}" if known else "nothing can be set here"


def _under(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
