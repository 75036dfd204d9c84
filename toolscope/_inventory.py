"""What an engine says of its plugins."""

import attrs

__all__ = ["PluginRecord"]


@attrs.frozen(kw_only=True)
class PluginRecord:
    """One plugin as ``engine.plugins`` and the command show it.

    ``distribution`` and ``version`` are None for a plugin given in code, ``hooks`` is empty for one
    that was not imported, ``why_not`` says why a plugin is not active.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    hooks: tuple[str, ...] = ()
    active: bool = True
    why_not: str | None = None
