"""Where in a policy file each rule and each of its keys begins.

The standard library reads TOML without positions, so the values come from there and the lines from
the TOML grammar of tree-sitter.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import tree_sitter
import tree_sitter_toml

__all__ = ["Lines", "toml_lines", "yaml_document"]


@attrs.frozen(kw_only=True)
class Lines:
    """Lines of a file, counted from 1: of top keys, and of each rule and test and their keys."""

    keys: Mapping[str, int] = attrs.field(factory=dict)
    rows: Mapping[str, tuple[tuple[int, Mapping[str, int]], ...]] = attrs.field(factory=dict)

    def key(self, name: str) -> int | None:
        """The line of a top key; None where it is not known."""
        return self.keys.get(name)

    def rule(self, place: int, key: str | None = None) -> int | None:
        """The line of a rule (counted from 0), or of one of its keys."""
        return self.row("rules", place, key)

    def row(self, table: str, place: int, key: str | None = None) -> int | None:
        """The line of one element of an array of tables, or of one of its keys."""
        rows = self.rows.get(table, ())
        if place >= len(rows):
            return None
        line, keys = rows[place]
        return line if key is None else keys.get(key, line)


_LANGUAGE: Final = tree_sitter.Language(tree_sitter_toml.language())
_TABLES: Final = ("rules", "tests")


def toml_lines(source: bytes) -> Lines:
    """The lines of a TOML document that is known to be well formed."""
    keys: dict[str, int] = {}
    rows: dict[str, list[tuple[int, dict[str, int]]]] = {name: [] for name in _TABLES}
    root = tree_sitter.Parser(_LANGUAGE).parse(source).root_node
    for node in root.named_children:
        match node.type:
            case "pair":
                name = _path(node)[0]
                keys.setdefault(name, _line(node))
                if name in rows:
                    rows[name].extend(_inline_rows(node))
            case "table_array_element" if (path := _path(node)) and path[0] in rows:
                if len(path) == 1:
                    rows[path[0]].append((_line(node), {}))
                    keys.setdefault(path[0], _line(node))
                _add_pairs(rows[path[0]], path, node)
            case "table" if (path := _path(node)) and path[0] in rows and len(path) > 1:
                _add_pairs(rows[path[0]], path, node)
            case "table" | "table_array_element":
                keys.setdefault(_path(node)[0], _line(node))
    return Lines(keys=keys, rows={name: tuple(found) for name, found in rows.items()})


def _line(node: tree_sitter.Node) -> int:
    return node.start_point[0] + 1


def _path(node: tree_sitter.Node) -> list[str]:
    """The parts of the key that a pair or a table header begins with."""
    parts: list[str] = []
    pending = [child for child in node.named_children if child.type.endswith("key")][:1]
    while pending:
        one = pending.pop()
        if one.type == "dotted_key":
            pending.extend(reversed(one.named_children))
        else:
            parts.append((one.text or b"").decode().strip("\"'"))
    return parts or [""]


def _add_pairs(
    rows: list[tuple[int, dict[str, int]]], path: list[str], node: tree_sitter.Node
) -> None:
    if not rows:
        return
    _, keys = rows[-1]
    if len(path) > 1:
        keys.setdefault(path[1], _line(node))
        return
    for pair in node.named_children:
        if pair.type == "pair":
            keys.setdefault(_path(pair)[0], _line(pair))


def _inline_rows(pair: tree_sitter.Node) -> Iterator[tuple[int, dict[str, int]]]:
    for value in pair.named_children:
        if value.type == "array":
            for element in value.named_children:
                if element.type == "inline_table":
                    pairs = [one for one in element.named_children if one.type == "pair"]
                    yield _line(element), {_path(one)[0]: _line(one) for one in pairs}


def yaml_document(source: bytes) -> tuple[dict[str, Any], Lines]:
    """The tables of a YAML document, and the lines of its rows.

    Aliases are refused (a few lines of them can stand for any number of values), and so is a key
    that is written twice.

    Raises:
        ImportError: PyYAML is not installed.
        ValueError: It is no YAML, or none that is allowed here.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain values only, each written where it stands."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # of a stub
                raise ValueError(f"alias *{event.anchor} is not allowed; write the value again")
            return super().compose_node(parent, index)

    loader = Loader(source)
    try:
        root = loader.get_single_node()
        document = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()
    if root is None:
        return {}, Lines()
    if not isinstance(root, yaml.MappingNode) or not isinstance(document, dict):
        raise ValueError("the document is no mapping")  # noqa: TRY004  (a fault of the text)
    _refuse_twice(root, yaml.MappingNode)
    keys = {key.value: key.start_mark.line + 1 for key, _ in root.value}
    rows = {}
    for key, value in root.value:
        if key.value in _TABLES and isinstance(value, yaml.SequenceNode):
            rows[key.value] = tuple(
                (
                    element.start_mark.line + 1,
                    {one.value: one.start_mark.line + 1 for one, _ in element.value}
                    if isinstance(element, yaml.MappingNode)
                    else {},
                )
                for element in value.value
            )
    return document, Lines(keys=keys, rows=rows)


def _refuse_twice(root: Any, mapping: Any) -> None:
    """Refuses a key that is written twice in one mapping, which YAML libraries let pass."""
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if not isinstance(node.value, list):
            continue
        if not isinstance(node, mapping):
            pending.extend(node.value)
            continue
        seen = set()
        for key, value in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ValueError(f"line {line}: {key.value!r} is written twice")
                seen.add(key.value)
            pending.append(value)
