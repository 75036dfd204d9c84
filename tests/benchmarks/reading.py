"""P10: reading a session with 1,000 tools from its text, against lax cattrs on the same types.

Run with ``python tests/benchmarks/reading.py``; it prints the median of the in-round ratios.
Both sides parse the text, make the same `Tool` and `Annotations` objects and leave the schemas to
be frozen on first use; the reader also checks every type, refuses what is not plain JSON, and
keeps the whole document.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from toolscope.ahp import wire
from toolscope.model import Annotations, Deferred, Tool

SIZE = 1_000
ROUNDS = 60


def session_text(size: int = SIZE) -> str:
    """A session whose host offers this many tools, each with a schema of three properties."""
    tools = [
        {
            "name": f"tool_{index}",
            "title": f"Tool {index}",
            "description": f"Does one thing of the kind {index}, and says how it went. " * 2,
            "inputSchema": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "where to look"},
                    "limit": {"type": "integer"},
                    "names": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["path"],
            },
            "annotations": {"readOnlyHint": index % 2 == 0, "destructiveHint": False},
            "availability": "userChats" if index % 10 == 0 else "session",
            "_meta": {"index": index},
        }
        for index in range(size)
    ]
    chats = [{"resource": "ahp-chat:/main", "origin": {"kind": "user"}}]
    return json.dumps({"activeClients": [], "chats": chats, "serverTools": tools})


@attrs.frozen
class LaxSession:
    """What cattrs is asked to make."""

    activeClients: list[Any]
    chats: list[Any]
    serverTools: list[Tool]


def lax_converter() -> cattrs.Converter:
    """Cattrs as it comes: it coerces primitives and drops what it does not know."""
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook_func(
        lambda type_: "Deferred" in str(type_), lambda value, _: Deferred(value)
    )
    converter.register_structure_hook_func(
        lambda type_: "Availability" in str(type_), lambda value, _: str(value)
    )
    converter.register_structure_hook(
        Annotations,
        make_dict_structure_fn(
            Annotations,
            converter,
            read_only=override(rename="readOnlyHint"),
            destructive=override(rename="destructiveHint"),
            idempotent=override(rename="idempotentHint"),
            open_world=override(rename="openWorldHint"),
        ),
    )
    not_on_the_wire: tuple[str, ...] = (
        "own_name",
        "provider",
        "tags",
        "former_names",
        "source",
        "_raw",
        "_digests",
    )
    converter.register_structure_hook(
        Tool,
        make_dict_structure_fn(
            Tool,
            converter,
            _input_schema=override(rename="inputSchema"),
            _output_schema=override(rename="outputSchema"),
            **{name: override(omit=True) for name in not_on_the_wire},  # type: ignore[arg-type]
        ),
    )
    return converter


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def reading_ratio(rounds: int = ROUNDS) -> float:
    """The median of the in-round ratios, ours over lax cattrs."""
    text = session_text()
    converter = lax_converter()

    def lax() -> LaxSession:
        return converter.structure(json.loads(text), LaxSession)

    def ours() -> wire.SessionState:
        return wire.read_session(text)

    mine, theirs = ours().server_tools[7], lax().serverTools[7]
    assert mine.input_schema == theirs.input_schema
    assert mine.annotations == theirs.annotations
    measured = [(seconds(ours), seconds(lax)) for _ in range(rounds)]
    return statistics.median(mine / theirs for mine, theirs in measured)


if __name__ == "__main__":
    print(f"P10  read {SIZE:,} tools: {reading_ratio():.2f}x lax cattrs (goal 1.1x)")
