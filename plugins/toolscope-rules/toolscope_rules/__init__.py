"""The toolscope plugin ``rules``: policy as a file.

The table ``[plugins.rules]`` names a TOML file of allow, ask and deny rules over tools, chats,
agents and arguments. Without such a file the plugin has no opinion. The README describes the file.
"""

from toolscope_rules.conditions import Condition, holds, read_condition
from toolscope_rules.diagnosis import Finding, diagnose
from toolscope_rules.plugin import RulesPlugin, RulesSettings, load_policy
from toolscope_rules.reading import read_policy
from toolscope_rules.rules import Policy, Rule

__all__ = [
    "Condition",
    "Finding",
    "Policy",
    "Rule",
    "RulesPlugin",
    "RulesSettings",
    "diagnose",
    "holds",
    "load_policy",
    "read_condition",
    "read_policy",
]
