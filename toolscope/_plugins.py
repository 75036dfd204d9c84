"""Finds plugins, refuses those that could fail in silence, and takes their hookimpls apart.

pluggy loads entry points in file-system order, stops at the first broken one, lets the second of
two plugins of one name vanish, and accepts a misspelt hook or a forgotten marker. Everything it
would let pass is refused here, when the engine is made.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import pluggy

from toolscope import hookspecs
from toolscope._chain import CallRule, ListRule, Observer
from toolscope._config import Configuration, structure_settings
from toolscope._inventory import PluginRecord
from toolscope._version import __version__
from toolscope.builtin import BUILTINS
from toolscope.errors import ConfigurationError, Fault, PluginError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Assembly", "Hooks", "assemble"]

HOOKS: Final = ("filter_tools", "on_tool_call", "on_decision")
_SYNC_HOOKS: Final = ("filter_tools", "on_decision")


@attrs.frozen(kw_only=True)
class Hooks:
    """The hookimpls of all active plugins, by hook, in order of plugin names."""

    list_rules: tuple[ListRule, ...]
    call_rules: tuple[CallRule, ...]
    observers: tuple[Observer, ...]


@attrs.frozen(kw_only=True)
class Assembly:
    """What came of a configuration: the records, the hooks, and every fault.

    With faults, the hooks hold only what could be used, and no engine may be made of them.
    ``plugins`` are the active plugin objects by name, for the command: some explain themselves.
    """

    records: tuple[PluginRecord, ...]
    hooks: Hooks
    faults: tuple[Fault, ...]
    plugins: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Candidate:
    """A plugin that could be made active: an entry point, or what was given in code."""

    name: str
    given: object = None
    entry_point: "EntryPoint | None" = None
    builtin: bool = False

    @property
    def distribution(self) -> tuple[str | None, str | None]:
        if self.builtin:
            return "toolscope-policy", __version__
        if self.entry_point is None or self.entry_point.dist is None:
            return None, None
        return self.entry_point.dist.name, self.entry_point.dist.version

    @property
    def described(self) -> str:
        name, version = self.distribution
        return f"plugin {self.name!r}" + (f" of {name} {version}" if name else "")


def assemble(configuration: Configuration, given: Sequence[object] | None = None) -> Assembly:
    """Builds every selected plugin: the built-ins, and of ``given`` (None = the installed ones)
    those that ``enable`` names (absent = all). What is not selected is never imported.
    """  # noqa: D205
    faults: list[Fault] = []
    candidates = [_Candidate(name=n, given=cls, builtin=True) for n, cls in BUILTINS.items()]
    if given is None:
        candidates += _installed()
    else:
        candidates += [_Candidate(name=_name_in_code(one), given=one) for one in given]
    candidates.sort(key=lambda c: (c.name, c.distribution[0] or ""))

    def fault(path: str, problem: str, cure: str | None = None) -> None:
        faults.append(Fault(path=path, problem=problem, cure=cure, source=configuration.source))

    known = sorted({candidate.name for candidate in candidates})
    for path, name in [
        *((f"enable[{place}]", name) for place, name in enumerate(configuration.enable or ())),
        *((f"plugins.{name}", name) for name in configuration.plugins),
    ]:
        if name not in known:
            near = nearest(name, known, 1)
            fault(
                path,
                f"no plugin named {name!r} is installed",
                f"did you mean {near[0]!r}?" if near else f"installed are {', '.join(known)}",
            )

    records: list[PluginRecord] = []
    plugins: dict[str, object] = {}
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    names = [candidate.name for candidate in candidates]
    for candidate in candidates:
        name, (distribution, version) = candidate.name, candidate.distribution
        record = PluginRecord(name=name, distribution=distribution, version=version, active=False)
        if not candidate.builtin and not _selected(name, configuration):
            records.append(attrs.evolve(record, why_not="the configuration does not enable it"))
            continue
        if not candidate.builtin and names.count(name) > 1:
            holders = [c.distribution[0] or "given in code" for c in candidates if c.name == name]
            problem = f"two plugins are named {name!r} ({', '.join(holders)}), and either could run"
            if candidate is next(c for c in candidates if c.name == name and not c.builtin):
                fault("", problem, "rename or remove one")
            records.append(attrs.evolve(record, why_not=problem))
            continue
        plugin, wrong = _build(candidate, configuration)
        if not wrong:
            try:
                hooks = _register(manager, name, plugin)
                records.append(attrs.evolve(record, hooks=hooks, active=True))
                plugins[name] = plugin
                continue
            except PluginError as error:
                wrong = [Fault(path=candidate.described, problem=error.problem)]
        faults += wrong
        records.append(attrs.evolve(record, why_not="; ".join(one.problem for one in wrong)))
    return Assembly(
        records=tuple(records), hooks=_hooks(manager), faults=tuple(faults), plugins=plugins
    )


def _installed() -> list[_Candidate]:
    from importlib.metadata import entry_points

    found = entry_points(group=hookspecs.PROJECT)
    return [_Candidate(name=entry_point.name, entry_point=entry_point) for entry_point in found]


def _selected(name: str, configuration: Configuration) -> bool:
    return configuration.enable is None or name in configuration.enable


def _name_in_code(given: object) -> str:
    cls = given if isinstance(given, type) else type(given)
    name = getattr(given, "name", cls.__name__)
    if not isinstance(name, str) or not name:
        raise PluginError(cls.__name__, f"its name is {name!r}; allowed is a text")
    return name


# --------------------------------------------------------------------------------------------
# Building one plugin
# --------------------------------------------------------------------------------------------


def _build(candidate: _Candidate, configuration: Configuration) -> tuple[object, list[Fault]]:
    """The plugin object, or what is wrong with it, its class or its settings."""
    at = f"plugins.{candidate.name}"
    table: Mapping[str, Any] | None = configuration.plugins.get(candidate.name)

    def wrong(problem: str, cure: str | None = None) -> tuple[None, list[Fault]]:
        return None, [Fault(path=candidate.described, problem=problem, cure=cure)]

    cls = candidate.given
    if candidate.entry_point is not None:
        try:
            cls = candidate.entry_point.load()
        except Exception as error:  # noqa: BLE001  (importing it runs a stranger's code)
            return wrong(
                f"it cannot be imported ({type(error).__name__}: {error})",
                "mend or remove it, or leave it out of 'enable'",
            )
        if not isinstance(cls, type):
            return wrong(f"its entry point is a {type(cls).__name__}; allowed is a class")
    if not isinstance(cls, type):
        if table is not None:
            fault = Fault(
                path=at,
                problem="the plugin was given as an object, which has its settings already",
                cure="give the class, or remove the table",
                source=configuration.source,
            )
            return None, [fault]
        return cls, []
    settings_class = getattr(cls, "Settings", None)
    arguments: list[object] = []
    if settings_class is not None:
        if not (isinstance(settings_class, type) and attrs.has(settings_class)):
            return wrong("its Settings are no attrs class")
        settings, faults = structure_settings(
            settings_class,
            table or {},
            at=at,
            source=configuration.source,
            folder=configuration.folder,
        )
        if settings is None:
            return None, faults
        arguments.append(settings)
    elif table:
        fault = Fault(path=at, problem="this plugin has no settings", source=configuration.source)
        return None, [fault]
    try:
        return cls(*arguments), []
    except ConfigurationError as error:  # of a file of the plugin's own: the faults say where
        return None, list(error.faults)
    except Exception as error:  # noqa: BLE001  (a stranger's constructor)
        return wrong(f"it cannot be built ({type(error).__name__}: {error})")


# --------------------------------------------------------------------------------------------
# Taking it apart
# --------------------------------------------------------------------------------------------


def _register(manager: pluggy.PluginManager, name: str, plugin: object) -> tuple[str, ...]:
    """Registers the plugin and names its hooks, or says what is wrong with it."""
    hooks = []
    for attribute in dir(plugin):
        try:
            options = manager.parse_hookimpl_opts(plugin, attribute)
            named = attribute in HOOKS and callable(getattr(plugin, attribute))
        except Exception as error:  # a property of the plugin's
            raise PluginError(
                name, f"its attribute {attribute!r} raises {type(error).__name__}: {error}"
            ) from error
        if options is None:
            if named:
                raise PluginError(
                    name, f"its method {attribute!r} has a hook's name but no @hookimpl; mark it"
                )
            continue
        hooks.append(_checked(name, plugin, attribute, options))
    if not hooks:
        raise PluginError(
            name, f"it has no hookimpl; mark at least one of {', '.join(HOOKS)} with @hookimpl"
        )
    try:
        manager.register(plugin, name=name)
    except (pluggy.PluginValidationError, ValueError) as error:
        manager.unregister(name=name)
        raise PluginError(name, " ".join(str(error).split())) from error
    return tuple(sorted(hooks, key=HOOKS.index))


def _checked(name: str, plugin: object, attribute: str, options: Mapping[str, Any]) -> str:
    """The hook that a marked method implements; refuses what pluggy would accept in silence."""
    hook = options.get("specname") or attribute
    if hook not in HOOKS:
        near = nearest(hook, HOOKS, 1)
        raise PluginError(
            name,
            f"there is no hook {hook!r}; "
            + (f"did you mean {near[0]!r}?" if near else f"hooks are {', '.join(HOOKS)}"),
        )
    if options.get("optionalhook"):
        raise PluginError(name, f"{attribute!r} is an optionalhook; a misspelt one would be silent")
    if options.get("wrapper") or options.get("hookwrapper"):
        raise PluginError(
            name,
            f"{attribute!r} is a hook wrapper; it could see and change other plugins' verdicts",
        )
    function = getattr(plugin, attribute)
    if hook in _SYNC_HOOKS and (
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    ):
        raise PluginError(
            name, f"{attribute!r} is async; {hook} is sync (on_tool_call may be async)"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise PluginError(
            name, f"{attribute!r} cannot be called ({error}); a method takes 'self' first"
        ) from error
    for parameter in parameters:
        if parameter.default is not parameter.empty:
            raise PluginError(
                name,
                f"argument {parameter.name!r} of {attribute!r} has a default; pluggy passes it or "
                "not, depending on its version",
            )
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise PluginError(
                name, f"argument {parameter.name!r} of {attribute!r} is not a plain argument"
            )
    return str(hook)


def _hooks(manager: pluggy.PluginManager) -> Hooks:
    return Hooks(
        list_rules=tuple(
            ListRule(impl.plugin_name, impl.function, tuple(impl.argnames))
            for impl in _in_order(manager.hook.filter_tools.get_hookimpls())
        ),
        call_rules=tuple(
            CallRule.of(impl.plugin_name, impl.function, tuple(impl.argnames))
            for impl in _in_order(manager.hook.on_tool_call.get_hookimpls())
        ),
        observers=tuple(
            Observer(impl.plugin_name, impl.function, tuple(impl.argnames))
            for impl in _in_order(manager.hook.on_decision.get_hookimpls())
        ),
    )


def _in_order(impls: Iterable[pluggy.HookImpl]) -> list[pluggy.HookImpl]:
    return sorted(impls, key=lambda impl: impl.plugin_name)
