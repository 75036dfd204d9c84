"""Whether what an event of a case came to is what the case expects."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tests.case_words import choose

__all__ = ["Facts", "unmet"]

Facts: TypeAlias = dict[str, Any]
"""What an event came to, by the words of ``expected``."""


def unmet(expected: Mapping[str, Any], facts: Facts, all_facts: Mapping[str, Facts]) -> list[str]:
    """What of ``expected`` an event's facts do not meet, one text each."""
    found = []
    for word, wanted in expected.items():
        if word in ("event", "acceptable", "why", "note"):
            continue
        if (wrong := _unmet(word, wanted, facts, all_facts)) is not None:
            found.append(f"{word}: expected {_shown(wanted)}, got {_shown(wrong)}")
    return found


_MISSING: Final = "nothing of the kind"


def _unmet(word: str, wanted: Any, facts: Facts, all_facts: Mapping[str, Facts]) -> Any:
    """What was found instead of what is wanted; None where it was met."""
    match word:
        case "listed":
            return None if facts.get(word) == sorted(wanted) else facts.get(word, _MISSING)
        case "hidden":
            listed = facts.get("listed", _MISSING)
            return None if not set(wanted) & set(listed) else listed
        case "request_tools" if isinstance(wanted, list):
            return None if facts.get(word) == sorted(wanted) else facts.get(word, _MISSING)
        case "within_s":
            return None if facts[word] <= wanted else facts[word]
        case "same_as":
            one, other = _result(facts), _result(all_facts[wanted])
            return None if one == other else (one, other)
        case "executed_by" if wanted is not None:
            found = str(facts.get(word))
            return None if found.rpartition(":")[2] == wanted.rpartition(":")[2] else found
        case "state":
            found = facts.get(word, _MISSING)
            return None if wanted in (found, *_STATES.get(str(found), ())) else found
        case "decisions" | "results" | "result_for" | "executions" | "results_per_call":
            return _unmet_map(word, wanted, facts)
        case "flags":
            return _unmet_flags(wanted, facts)
        case "names" | "suggests" | "errors_name" | "error_names":
            text = " ".join(str(facts.get(one, "")) for one in ("text", "errors", "record"))
            return None if all(one in text for one in _list(wanted)) else text
        case "message_has" | "message_lacks":
            text = str(facts.get("message", "")).casefold()
            has = [one.casefold() in text for one in _list(wanted)]
            met = all(has) if word == "message_has" else not any(has)
            return None if met else text
        case "audit_has" | "audit_lacks":
            text = str(facts.get("record", ""))
            has = [_in_record(one, text) for one in _list(wanted)]
            met = all(has) if word == "audit_has" else bool(text) and not any(has)
            return None if met else text
        case "warning" | "refused" | "error_before_request" | "placeholder" | "dropped_extra":
            seen = bool(facts.get(word))
            return None if seen is bool(wanted) else seen
        case "message_names_reset" | "collision":
            return None if bool(facts.get(word)) is wanted else facts.get(word, _MISSING)
        case _:
            if word not in facts:
                return _MISSING
            return None if facts[word] == wanted else (facts[word], facts.get("message"))


_STATES: Final[Mapping[str, Sequence[str]]] = {
    "asked": ("waiting", "pending"),
    "handed_out": ("allowed", "running"),
    "completed": ("executed", "done"),
}
"""Other words of cases for the states of a call."""


def _result(facts: Facts) -> Any:
    """What an event's call ended with; of a list, what was listed."""
    failure = facts.get("failure")
    return failure or (facts.get("decision"), facts.get("result"), facts.get("listed"))


def _unmet_map(word: str, wanted: Any, facts: Facts) -> Any:
    found = facts.get(word, {})
    if not isinstance(wanted, Mapping):
        wanted = dict.fromkeys(found, wanted)
        return None if found and found == wanted else found
    return None if all(found.get(key) == value for key, value in wanted.items()) else found


def _unmet_flags(wanted: Any, facts: Facts) -> Any:
    flags = facts.get("flags", {})
    pairs = wanted.items() if isinstance(wanted, Mapping) else [(one, True) for one in wanted]
    for name, value in pairs:
        choose("a flag", name, ("hidden_in_history", "empty_list"))
        if isinstance(value, list):
            if sorted(facts.get(name, ())) != sorted(value):
                return facts.get(name, _MISSING)
        elif flags.get(name) is not bool(value):
            return flags
    return None


def _in_record(one: Any, text: str) -> bool:
    one = {"decision": "effect", "args": "arguments_digest"}.get(str(one), one)
    return str(one) in text if not isinstance(one, Mapping) else json.dumps(one)[1:-1] in text


def _list(wanted: Any) -> Sequence[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else text[:397] + "..."
