"""Reads recorded streams: JSON lines, or one JSON array, in memory bounded by one entry."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from toolscope.errors import Fault, WireError

__all__ = ["MAX_ENTRY", "Trace"]

MAX_ENTRY: Final = 64 * 1024 * 1024
"""How many bytes one entry of a stream may have."""

_CHUNK: Final = 64 * 1024
_BETWEEN: Final = " \t\r\n,"


class Trace:
    """The entries of a recorded stream, each with the line it begins on.

    Iterating raises `WireError` at the first thing that cannot be read, with its line.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.position = 0
        """How many bytes have been read."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        line = 0
        while raw := self._read_line(line + 1):
            line += 1
            text = _decoded(raw, line).strip()
            if not text:
                continue
            if text.startswith("[") and not _complete(text):
                yield from self._array(_decoded(raw, line), line)
                return
            yield line, _parsed(text, line)

    def _read_line(self, line: int) -> bytes:
        raw = self._stream.readline(MAX_ENTRY + 1)
        self.position += len(raw)
        if len(raw) > MAX_ENTRY:
            raise _too_long(line)
        return raw

    def _array(self, text: str, line: int) -> Iterator[tuple[int, Any]]:
        """The elements of an array that goes over several lines, as they become complete."""
        start = text.index("[") + 1
        line += text.count("\n", 0, start)
        text = text[start:]
        decoder = json.JSONDecoder()
        while True:
            body = text.lstrip(_BETWEEN)
            line += text.count("\n", 0, len(text) - len(body))
            text = body
            if text.startswith("]"):
                self._nothing_after(text[1:], line)
                return
            try:
                value, end = decoder.raw_decode(text)
            except (ValueError, RecursionError) as error:
                if len(text) > MAX_ENTRY:
                    raise _too_long(line) from error
                # Twice as much each time, so that a long element is not tried too often.
                more = self._more(line, max(_CHUNK, len(text)))
                if not more:
                    raise _unreadable(line, f"it is not JSON: {error}") from error
                text += more
                continue
            yield line, value
            line += text.count("\n", 0, end)
            text = text[end:]

    def _more(self, line: int, size: int) -> str:
        raw = self._stream.read(min(size, MAX_ENTRY)) + self._stream.readline(MAX_ENTRY)
        self.position += len(raw)
        return _decoded(raw, line)

    def _nothing_after(self, text: str, line: int) -> None:
        while text or (text := self._more(line, _CHUNK)):
            if text.strip():
                raise _unreadable(line, "something stands behind the end of the array")
            text = ""


def _complete(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _decoded(raw: bytes, line: int) -> str:
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(line, f"it is not UTF-8: {error.reason}") from error


def _parsed(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise _unreadable(line, "it is nested too deep") from error
    except ValueError as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else "an odd number"
        raise _unreadable(line, f"it is not JSON: {problem}") from error


def _too_long(line: int) -> WireError:
    return _unreadable(line, f"an entry of more than {MAX_ENTRY:,} bytes")


def _unreadable(line: int, problem: str) -> WireError:
    return WireError("the trace cannot be read", [Fault(path=f"line {line}", problem=problem)])
