"""Adapters: one thin module per agent host. Each translates; every decision is the engine's.

An adapter is imported by its own name (``toolscope.hosts.langchain``) and needs the extra of that
name. Importing this package imports no host.

A tool says where it may be used in its host's own slot for metadata, under `AVAILABILITY_KEY`, or
with the portable decorator `available_in` under the host's own decorator. Both are read, and the
narrower counts.
"""

from toolscope.hosts._marks import (
    AVAILABILITY_KEY,
    ORIGIN_KEY,
    available_in,
    declared_availability,
)
from toolscope.hosts._point import EnforcementPoint, Policy

__all__ = [
    "AVAILABILITY_KEY",
    "ORIGIN_KEY",
    "EnforcementPoint",
    "Policy",
    "available_in",
    "declared_availability",
]
