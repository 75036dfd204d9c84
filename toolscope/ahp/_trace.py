"""Reads recorded streams: JSON lines, or JSON arrays, in memory bounded by one entry."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from toolscope.errors import Fault, WireError

__all__ = ["MAX_ENTRY", "Trace"]

MAX_ENTRY: Final = 64 * 1024 * 1024
"""How many characters one entry of a stream may have."""

_CHUNK: Final = 64 * 1024
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n,]*")
_NEAR_THE_END: Final = 16
"""An escape or a number that is cut off makes the parser complain this far from the end."""


class Trace:
    """The entries of a recorded stream, each with the line it begins on.

    The elements of an array at the top are entries by themselves, so that neither a long array nor
    a long stream of lines is ever in memory. Iterating raises `WireError` at the first thing that
    cannot be read, with its line.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parser = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self.position = 0
        """How many bytes have been read."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        inside = False
        while (first := self._next(_BETWEEN if inside else _SPACE)) or inside:
            if first == "[" and not inside:
                inside = True
                self._at += 1
            elif first == "]" and inside:
                inside = False
                self._at += 1
            else:
                line = self._line
                yield line, self._value()

    def _next(self, between: re.Pattern[str]) -> str:
        """Goes to the next character that matters; empty at the end of the stream."""
        while True:
            found = between.match(self._text, self._at)
            self._move(self._at if found is None else found.end())
            if self._at < len(self._text) or not self._read():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        while True:
            try:
                value, end = self._parser.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                into = error.pos - self._at
                cut_off = error.msg.startswith("Unterminated")
                if (cut_off or error.pos >= len(self._text) - _NEAR_THE_END) and self._read():
                    continue
                self._move(self._at + into)
                raise self._unreadable(f"it is not JSON: {error.msg}") from error
            except RecursionError as error:
                raise self._unreadable("it is nested too deep") from error
            except ValueError as error:
                raise self._unreadable("an integer of too many digits") from error
            self._move(end)
            return value

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _read(self) -> bool:
        """Reads on; twice as much each time, so that a long entry is not tried too often."""
        kept = self._text[self._at :]
        if len(kept) > MAX_ENTRY:
            raise self._unreadable(f"an entry of more than {MAX_ENTRY:,} characters")
        raw = self._stream.read(max(_CHUNK, len(kept)))
        self.position += len(raw)
        try:
            self._text, self._at = kept + self._decoder.decode(raw, final=not raw), 0
        except UnicodeDecodeError as error:
            self._line += kept.count("\n") + raw.count(b"\n", 0, error.start)
            raise self._unreadable(f"it is not UTF-8: {error.reason}") from error
        return bool(raw)

    def _unreadable(self, problem: str) -> WireError:
        fault = Fault(path=f"line {self._line}", problem=problem)
        return WireError("the trace cannot be read", [fault])
