"""The JSON of a graph as text, one line per node, without building the graph.

    mul: float32[4, 8] = torch.mul(l_x_, 2)

So an untrusted graph can be read without importing its functions. Two nodes with equal lines may
differ in other data (`Row.data`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.strict_json import Json, expect, items, member, optional
from ctk.toolkit.case.graphs.value_types import value_text


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a graph.

    Attributes:
        subject: Unique in the graph: `node mul`, `node cond_true_0.mul`.
        line: Its text; empty if it has none.
    """

    subject: str
    line: str
    data: Mapping[str, object]


def rows_of(data: Json) -> list[Row]:
    """Return the rows of a graph in JSON of `graph_to_json`; sub-graphs follow it.

    Raises:
        CaseError: It is not a graph.
    """
    try:
        return list(_rows(data, "", ""))
    except RecursionError as error:
        raise CaseError("graph: values or sub-graphs are nested too deeply to be real") from error


def _rows(data: Json, path: str, indent: str) -> Iterator[Row]:
    where = f"graph {path}".rstrip()
    head = f"sub-graph {path}:" if path else ""
    yield Row(f"graph {path}".rstrip(), head, {"class": data.get("class")})
    prefix = f"{path}." if path else ""
    for name, value in member(data, "values", dict, where).items():
        line = f"{indent}self.{name} = {argument_text(value)}"
        yield Row(f"attribute {prefix}{name}", one_line(line), {"value": value})
    for node in items(data, "nodes", dict, where):
        name = member(node, "name", str, where)
        line = f"{indent}{_node_line(node, f'{where}: node {name}')}"
        yield Row(f"node {prefix}{name}", one_line(line), node)
    for name, sub in member(data, "subgraphs", dict, where).items():
        yield from _rows(expect(sub, dict, where), f"{prefix}{name}", "    ")


def _node_line(node: Json, where: str) -> str:
    op, target = member(node, "op", str, where), member(node, "target", str, where)
    args = [argument_text(value) for value in optional(node, "args", list, where) or []]
    if op == "output":
        return f"return {', '.join(args)}"
    pairs = (optional(node, "kwargs", dict, where) or {}).items()
    words = ", ".join([*args, *(f"{key}={argument_text(value)}" for key, value in pairs)])
    known = value_text(node.get("value"))
    begin = f"{node['name']}: {known}" if known else str(node["name"])
    if op == "placeholder":
        return f"{begin} = input{f' or {words}' if words else ''}"
    if op == "get_attr":
        return f"{begin} = self.{target}"
    callee = {"call_method": f".{target}", "call_module": f"self.{target}"}.get(op, target)
    return f"{begin} = {callee}({words})"


NAMED: Mapping[str, str] = {
    "node": "{}",
    "target": "{}",
    "float": "{}",
    "dtype": "torch.{}",
    "memory_format": "torch.{}",
    "layout": "torch.{}",
    "device": "torch.device({!r})",
    "ellipsis": "...",
    "triton_type": "triton.language.{}",
}
"""The kinds of values that JSON names, and how a line shows the name."""

_CALLS: Mapping[str, str] = {
    "size": "torch.Size([{}])",
    "slice": "slice({})",
    "range": "range({})",
    "complex": "complex({})",
}


def name_text(kind: str, content: object) -> str:
    """Return a value that JSON names, for people."""
    return NAMED[kind].format(content)


def argument_text(value: object, write_name: Callable[[str, Any], str] = name_text) -> str:
    """Return an argument in JSON of `encode_value` as Python would write it.

    >>> argument_text({"tuple": [{"node": "x"}, 2]})
    '(x, 2)'

    Args:
        write_name: Returns the text of a value that JSON names, for its kind and its content.
    """
    if isinstance(value, list):
        return f"[{_join(cast('list[object]', value), write_name)}]"
    if not isinstance(value, dict):
        return repr(value)
    keyed = cast("Json", value)
    kind, content = next(iter(keyed.items()), ("", None))
    if len(keyed) == 1 and kind in NAMED:
        return write_name(kind, content)
    if len(keyed) != 1 or not isinstance(content, list):
        return json.dumps(keyed)
    parts = cast("list[object]", content)
    if kind == "tuple":
        return f"({_join(parts, write_name)}{',' if len(parts) == 1 else ''})"
    if kind == "dict":
        pairs = (cast("list[object]", part) if isinstance(part, list) else [part] for part in parts)
        return "{" + ", ".join(_join(pair, write_name, ": ") for pair in pairs) + "}"
    return _CALLS[kind].format(_join(parts, write_name)) if kind in _CALLS else json.dumps(keyed)


def _join(
    parts: Sequence[object], write_name: Callable[[str, Any], str], between: str = ", "
) -> str:
    return between.join(argument_text(part, write_name) for part in parts)
