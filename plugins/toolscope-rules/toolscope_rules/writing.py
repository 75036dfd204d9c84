"""Writes a policy out as the TOML file that `toolscope_rules.reading` reads back.

A policy and its written-out form decide alike; comments and the layout of a file are not kept.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolscope_rules.patterns import Pattern
from toolscope_rules.rules import Policy, Rule
from toolscope_rules.selectors import Selector

__all__ = ["policy_to_data", "policy_to_toml", "to_toml"]


def policy_to_toml(policy: Policy) -> str:
    """The policy as a TOML file."""
    return to_toml(policy_to_data(policy))


def policy_to_data(policy: Policy) -> dict[str, Any]:
    """The policy as the tables of a file; what has its default is left out."""
    blank = Policy()
    data: dict[str, Any] = {}
    for name in ("default", "trusted", "absent_origin", "relative_to", "known_tools"):
        value = getattr(policy, name)
        if value != getattr(blank, name):
            data[name] = list(value) if isinstance(value, tuple) else str(value)
    data["rules"] = [_rule(rule) for rule in policy.rules]
    return data


def _rule(rule: Rule) -> dict[str, Any]:
    data: dict[str, Any] = {"id": rule.id, "effect": str(rule.effect)}
    if rule.tools is not None:
        data["tools"] = _written(rule.tools)
    if rule.exceptions:
        data["except"] = _written(rule.exceptions)
    if rule.origins is not None:
        data["origins"] = list(rule.origins)
    if rule.agents is not None:
        data["agents"] = _written(rule.agents)
    if rule.subjects is not None:
        data["subjects"] = _written(rule.subjects)
    if rule.attributes:
        data["attributes"] = {name: _written(one) for name, one in rule.attributes.items()}
    if rule.reach != "self":
        data["reach"] = rule.reach
    if rule.when is not None:
        data["when"] = rule.when.data
    if rule.reason is not None:
        data["reason"] = rule.reason
    if rule.code is not None:
        data["code"] = rule.code
    if rule.listed:
        data["listed"] = True
    return data


def _written(selectors: Iterable[Selector | Pattern]) -> list[str]:
    return [one.text for one in selectors]


def to_toml(document: Mapping[str, Any]) -> str:
    """A table as TOML; each array of tables as ``[[name]]``.

    Raises:
        ValueError: It holds a null, or something else that TOML cannot say.
    """
    lines, tables = [], []
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            for one in value:
                tables += ["", f"[[{_key(key)}]]", *_pairs(one)]
        else:
            lines += _pairs({key: value})
    return "\n".join([*lines, *tables, ""])


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "a").replace("-", "a").isalnum()
    return key if plain else _value(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # A JSON text is a TOML text, but for the one control character that JSON lets stand.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return "{ " + ", ".join(_pairs(value)) + " }" if value else "{}"
    raise ValueError(f"a {type(value).__name__} cannot be written as TOML")
