"""Broken documents by the thousand: only errors of this package may come out.

    uv run python -m tests.reliability.fuzz [--documents N] [--seed N]

Each document is a sound one with a few random changes: a value replaced by one of another type, a
member dropped, doubled or renamed, a text cut or garbled. They go through the AHP reader, the
configuration, the rules files and the approvals, in turn.
"""

import argparse
import copy
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from toolscope import ToolscopeError
from toolscope._config import read_configuration
from toolscope.ahp.session import Session
from toolscope.model import Approval, Scope

SESSION: dict[str, Any] = {
    "activeClients": [
        {
            "clientId": "desk",
            "displayName": "Desk",
            "tools": [{"name": "pick", "availability": "userChats", "_meta": {"a": [1]}}],
        }
    ],
    "serverTools": [
        {
            "name": "read",
            "inputSchema": {"type": "object", "properties": {"p": {"type": "string"}}},
            "annotations": {"readOnlyHint": True},
        }
    ],
    "chats": [
        {"resource": "c", "title": "t", "origin": {"kind": "user"}},
        {"resource": "w", "origin": {"kind": "tool", "chat": "c", "toolCallId": "1"}},
    ],
    "customizations": [
        {
            "type": "plugin",
            "id": "p",
            "children": [{"type": "agent", "id": "a", "uri": "u", "name": "n", "tools": ["read"]}],
        }
    ],
}
CONFIGURATION: dict[str, Any] = {
    "enable": [],
    "async_timeout": 2.5,
    "plugins": {"availability": {"absent_origin": "tool"}},
}
APPROVAL: dict[str, Any] = {
    "schema": 1,
    "allow": True,
    "provider": "client:desk",
    "own_name": "pick",
    "definition": "0" * 64,
    "arguments": {"digest": "1" * 64},
    "answers": [{"plugin": "p", "reason": "r", "rule": "x"}],
    "reach": "once",
    "chat": "c",
    "call_id": "1",
    "by": "somebody",
    "at": 1.5,
}
SCOPE: dict[str, Any] = (
    Scope(origin="tool", subject="s", attributes={"a": {"x", "y"}}).child().to_json()
)
POLICY: dict[str, Any] = {
    "default": "ask",
    "trusted": ["mcp:files"],
    "rules": [
        {
            "id": "r1",
            "effect": "deny",
            "tools": ["mcp:files/*", "run_*"],
            "origins": ["tool"],
            "when": {"command": {"shell_program": "rm"}},
            "reason": "no",
        }
    ],
}
ODD: list[Any] = [
    None, True, False, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "x", "false", "\ud800",
    "a" * 3_000, [], {}, [[]], [None], {"": None}, {"kind": 3}, ["x", 1], {"a": {"b": []}},
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one)
        for key, item in items:
            found.append((one, key))
            if isinstance(item, (dict, list)) and item:
                pending.append(item)
    return found


def broken(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The document with one to four changes."""
    made = copy.deepcopy(document)
    for _ in range(chance.randint(1, 4)):
        found = places(made)
        if not found:
            break
        container, key = chance.choice(found)
        change = chance.randrange(5)
        if change == 0:
            del container[key]
        elif change == 1 and isinstance(container, dict):
            container[chance.choice(["x", str(key).upper(), f"{key}s", ""])] = container.pop(key)
        elif change == 2 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif change == 3 and isinstance(container[key], str):
            text = container[key]
            container[key] = text[: chance.randrange(len(text) + 1)] + chance.choice(
                ["", "\x00", "*"]
            )
        else:
            container[key] = copy.deepcopy(chance.choice(ODD))
    return made


def as_text(document: dict[str, Any], chance: random.Random) -> str:
    """Its JSON text, now and then cut or garbled."""
    text = json.dumps(document)
    if chance.random() < 0.1:
        place = chance.randrange(len(text))
        text = text[:place] + chance.choice(["", "{", '"', "\\", ",,", "NaN"]) + text[place + 1 :]
    return text


def read_rules(document: dict[str, Any]) -> None:
    from toolscope_rules import read_policy

    read_policy(document)


READERS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any], random.Random], object]]] = {
    "session": (SESSION, lambda made, chance: Session.read(as_text(made, chance))),
    "session as mapping": (SESSION, lambda made, _: Session.read(made)),
    "configuration": (CONFIGURATION, lambda made, _: read_configuration(table=made)),
    "approval": (APPROVAL, lambda made, _: Approval.from_json(made)),
    "scope": (SCOPE, lambda made, _: Scope.from_json(made)),
    "rules": (POLICY, lambda made, _: read_rules(made)),
}


def run(documents: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """How many documents of each kind were read, and how many were refused.

    Raises:
        AssertionError: Something else than an error of this package came out of one.
    """
    chance = random.Random(seed)
    names = list(READERS)
    taken: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for number in range(documents):
        name = names[number % len(names)]
        sound, read = READERS[name]
        made = broken(sound, chance)
        try:
            read(made, chance)
            taken[name] += 1
        except ToolscopeError as error:
            str(error)
            refused[name] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} out of {name}: {made!r}") from error
    return taken, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.perf_counter()
    taken, refused = run(options.documents, options.seed)
    for name in READERS:
        print(f"{name:20} {taken[name]:9,} read {refused[name]:9,} refused")
    print(f"{options.documents:,} documents in {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
