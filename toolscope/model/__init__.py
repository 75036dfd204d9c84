"""The values a rule and a host exchange with the engine.

All of them are immutable. What comes from outside (schemas, arguments, attributes) is frozen
deeply when it enters, so that no rule can change what another rule or the host will see.
"""

from toolscope._frozen import FrozenDict, FrozenList, Json, canonical_json, freeze, thaw
from toolscope.model._approvals import Answered, AnyArguments, Approval, Reach, arguments_digest
from toolscope.model._calls import InvalidArguments, ToolCall, read_arguments
from toolscope.model._scopes import (
    UNKNOWN,
    Agent,
    Ancestor,
    Origin,
    Scope,
    Unknown,
    narrower_origin,
)
from toolscope.model._tools import (
    HOST,
    MODEL,
    Annotations,
    Availability,
    Deferred,
    Provider,
    ProviderKind,
    Tool,
    Toolset,
    checked_tool,
    narrower_availability,
)

__all__ = [
    "HOST",
    "MODEL",
    "UNKNOWN",
    "Agent",
    "Ancestor",
    "Annotations",
    "Answered",
    "AnyArguments",
    "Approval",
    "Availability",
    "Deferred",
    "FrozenDict",
    "FrozenList",
    "InvalidArguments",
    "Json",
    "Origin",
    "Provider",
    "ProviderKind",
    "Reach",
    "Scope",
    "Tool",
    "ToolCall",
    "Toolset",
    "Unknown",
    "arguments_digest",
    "canonical_json",
    "checked_tool",
    "freeze",
    "narrower_availability",
    "narrower_origin",
    "read_arguments",
    "thaw",
]
