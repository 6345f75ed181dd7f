"""The JSON of a graph as text, one line per node, without building the graph.

    mul: float32[4, 8] = torch.mul(l_x_, 2)

So an untrusted graph can be read without importing its functions. Two nodes with equal lines may
differ in other data (`Row.data`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

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


def argument_text(value: object) -> str:
    """Return an argument in JSON of `encode_value` as Python would write it.

    >>> argument_text({"tuple": [{"node": "x"}, 2]})
    '(x, 2)'
    """
    if isinstance(value, list):
        return f"[{_join_arguments(cast('list[object]', value))}]"
    if not isinstance(value, dict):
        return repr(value)
    keyed = cast("Json", value)
    kind, content = next(iter(keyed.items()), ("", None))
    write = _WRITERS.get(kind) if len(keyed) == 1 else None
    if kind in _LISTS and not isinstance(content, list):
        write = None
    return write(content) if write is not None else json.dumps(keyed)


def _join_arguments(parts: Sequence[object]) -> str:
    return ", ".join(map(argument_text, parts))


def _tuple(parts: Sequence[object]) -> str:
    return f"({_join_arguments(parts)},)" if len(parts) == 1 else f"({_join_arguments(parts)})"


def _dict(pairs: Sequence[object]) -> str:
    listed = (cast("list[object]", pair) if isinstance(pair, list) else [pair] for pair in pairs)
    return "{" + ", ".join(": ".join(map(argument_text, pair)) for pair in listed) + "}"


def _of_torch(name: object) -> str:
    return f"torch.{name}"


_LISTS: Mapping[str, Callable[[Sequence[object]], str]] = {
    "tuple": _tuple,
    "size": lambda parts: f"torch.Size([{_join_arguments(parts)}])",
    "slice": lambda parts: f"slice({_join_arguments(parts)})",
    "range": lambda parts: f"range({_join_arguments(parts)})",
    "complex": lambda parts: f"complex({_join_arguments(parts)})",
    "dict": _dict,
}

_WRITERS: Mapping[str, Callable[..., str]] = {
    **_LISTS,
    "node": str,
    "target": str,
    "float": str,
    "dtype": _of_torch,
    "memory_format": _of_torch,
    "layout": _of_torch,
    "device": lambda name: f"torch.device({name!r})",
    "ellipsis": lambda _: "...",
}
