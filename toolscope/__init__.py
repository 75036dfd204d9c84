"""Decides which tools an AI agent may be shown, and which of its calls may run.

A host asks a `PolicyEngine` two questions: `PolicyEngine.filter_tools` and
`PolicyEngine.on_tool_call`. A plugin answers them through the hooks in `toolscope.hookspecs`.
"""

from toolscope.engine import PluginRecord, PolicyEngine
from toolscope.errors import (
    ConfigurationError,
    Fault,
    PluginError,
    RecursionRefused,
    ScopeError,
    ToolscopeError,
    ToolsetError,
    WireError,
)
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import (
    HOST,
    MODEL,
    UNKNOWN,
    Agent,
    Ancestor,
    Annotations,
    Availability,
    Origin,
    Provider,
    ProviderKind,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    thaw,
)
from toolscope.verdicts import (
    Code,
    Decision,
    Effect,
    Failure,
    PluginVerdict,
    Verdict,
    ask,
    deny,
)

__all__ = [
    "HOST",
    "MODEL",
    "UNKNOWN",
    "Agent",
    "Ancestor",
    "Annotations",
    "Availability",
    "Code",
    "ConfigurationError",
    "Decision",
    "Effect",
    "Failure",
    "Fault",
    "Listing",
    "Origin",
    "PluginError",
    "PluginRecord",
    "PluginVerdict",
    "PolicyEngine",
    "Provider",
    "ProviderKind",
    "RecursionRefused",
    "Scope",
    "ScopeError",
    "Tool",
    "ToolCall",
    "ToolscopeError",
    "Toolset",
    "ToolsetError",
    "Verdict",
    "WireError",
    "ask",
    "deny",
    "hookimpl",
    "thaw",
]
