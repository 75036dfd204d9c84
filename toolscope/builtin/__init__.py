"""The plugins that always run. They are written as a stranger would write them."""

from toolscope.builtin.allowlist import AllowlistPlugin
from toolscope.builtin.availability import AvailabilityPlugin

__all__ = ["BUILTINS", "AllowlistPlugin", "AvailabilityPlugin"]

BUILTINS = {"allowlist": AllowlistPlugin, "availability": AvailabilityPlugin}
"""The built-in plugins by name."""
