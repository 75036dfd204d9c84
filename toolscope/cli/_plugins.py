"""``toolscope plugins``: which plugins are installed, which run, and why not the others."""

from toolscope._inventory import PluginRecord
from toolscope._plugins import assemble
from toolscope.cli._input import ConfigOption, JsonOption, find_configuration
from toolscope.cli._output import complain, say_configuration, write_json, write_row

__all__ = ["plugins"]


def plugins(*, json: JsonOption = False, config: ConfigOption = None) -> int:
    """List the plugins: which run, and why the others do not.

    Exit status: 0, also where a plugin is broken; 2 if the configuration cannot be read.
    """
    configuration = find_configuration(config)
    assembly = assemble(configuration)
    say_configuration(configuration)
    for fault in assembly.faults:
        complain(str(fault))
    if json:
        write_json(
            {
                "plugins": [
                    {
                        "name": one.name,
                        "distribution": one.distribution,
                        "version": one.version,
                        "hooks": list(one.hooks),
                        "active": one.active,
                        "why_not": one.why_not,
                    }
                    for one in assembly.records
                ]
            }
        )
        return 0
    width = min(24, max(len(one.name) for one in assembly.records))
    for one in assembly.records:
        style = "green" if one.active else "red"
        write_row(one.name, _described(one), style=style, indent=0, width=width)
    return 0


def _described(one: PluginRecord) -> str:
    home = f"{one.distribution} {one.version}"
    if one.active:
        return f"active, {home}, hooks {', '.join(one.hooks)}"
    return f"not active, {home}: {one.why_not}"
