"""FX graphs as JSON and back: the same nodes, names, order, arguments, sub-graphs and constants.

A graph is `{"class": name, "nodes": [...], "subgraphs": {attribute: graph}, "values": {...}}`; the
outermost one also holds `"constants"`, a `TensorIndex` for all sub-graphs, under qualified names
(`cond_true_0.weight`). Functions are named (see `callables`), never pickled.

Not kept: leaf modules (`call_module` of an `nn.Linear`; Dynamo makes none), pytree calling
conventions (the graph's placeholders are its flat inputs), stack traces and other metadata.
"""

import builtins
import keyword
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.errors import CaseError, NotHeld, count_of, nearest
from ctk.compiler.fx.walk import attribute_targets, fetch
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.limits import NAME_LENGTH, NODES, check_at_most
from ctk.toolkit.case.formats.plain_text import one_line, quote_value
from ctk.toolkit.case.formats.schema import convert, encode
from ctk.toolkit.case.formats.strict_json import (
    Json,
    expect,
    items,
    look_up,
    member,
    optional,
    prefix_errors,
)
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.formats.tensors import Keep, keep_all, pack_tensors, unpack_tensors
from ctk.toolkit.case.graphs.allow_list import check_attribute, check_method
from ctk.toolkit.case.graphs.argument_json import Decoder, encode_value
from ctk.toolkit.case.graphs.callable_places import check_callables
from ctk.toolkit.case.graphs.callables import target_from_name, target_to_name
from ctk.toolkit.case.graphs.python_numbers import check_numbers
from ctk.toolkit.case.graphs.triton_kernels import (
    OPERANDS,
    is_kernel_call,
    kept_arguments,
    loaded_arguments,
    remember,
    remembered_operands,
)
from ctk.toolkit.case.graphs.untrusted_calls import check_untrusted
from ctk.toolkit.case.graphs.value_types import META_KEY, check_value_json, node_value_json

_TYPES: Mapping[str, Any] = {
    "Tensor": torch.Tensor,
    "Parameter": torch.nn.Parameter,
    "SymInt": torch.SymInt,
    "SymFloat": torch.SymFloat,
    "SymBool": torch.SymBool,
    "int": int,
    "float": float,
    "bool": bool,
}
"""The kept annotations of placeholders; they have no effect on a run."""


# --- writing ------------------------------------------------------------------------------------


def graph_to_json(
    gm: GraphModule, *, keep: Keep = keep_all, measure: bool = True
) -> tuple[Json, dict[str, Tensor]]:
    """Return a graph as JSON, and the values of its constants.

    Args:
        keep: Which constants to store by value; the others become recipes.

    Returns:
        The JSON, and arrays for a safetensors file.

    Raises:
        CaseError: A node or constant cannot be kept; the message names it.
    """
    data = _write_graph(gm, where="graph")
    packed = pack_tensors(constants_of(gm), keep=keep, measure=measure)
    return {**data, "constants": encode(packed.index)}, packed.arrays


def constants_of(gm: GraphModule) -> dict[str, Tensor]:
    """Return the tensors that a graph and its sub-graphs read, by qualified name."""
    found: dict[str, Tensor] = {}
    for path, value in _attributes(gm):
        if isinstance(value, Tensor):
            found[path] = value
        elif isinstance(value, GraphModule):
            found |= {f"{path}.{name}": tensor for name, tensor in constants_of(value).items()}
    return found


def target_names(data: object) -> Iterator[str]:
    """Yield the names of the functions in JSON of `graph_to_json`, sub-graphs included.

    The JSON may be untrusted: malformed parts are skipped here and refused by `graph_from_json`.
    """
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(cast("list[object]", part))
        elif isinstance(part, dict):
            known = cast("Json", part)
            target = known.get("target")
            is_function = known.get("op") == "call_function" or known.keys() == {"target"}
            if is_function and isinstance(target, str):
                yield target
            waiting += reversed(known.values())


def _attributes(gm: GraphModule) -> Iterator[tuple[str, object]]:
    """Yield each attribute that a node reads or calls, once, in order."""
    for target in attribute_targets(gm.graph):
        try:
            yield target, fetch(gm, target)
        except AttributeError as error:
            raise CaseError(
                f"the graph reads attribute {target!r}, which its module does not have"
            ) from error


def _write_graph(gm: GraphModule, where: str) -> Json:
    subgraphs: Json = {}
    values: Json = {}
    for path, value in _attributes(gm):
        if isinstance(value, GraphModule):
            subgraphs[path] = _write_graph(value, f"{where}.{path}")
        elif isinstance(value, torch.nn.Module):
            raise NotHeld(
                f"{where}: module {path!r} ({type(value).__name__}) is called as a whole; capture "
                "the program with torch.compile or torch.export, which see through modules"
            )
        elif callable(value) and not isinstance(value, Tensor):
            raise NotHeld(f"{where}: attribute {path} is {value!r}; a graph holds no functions")
        elif not isinstance(value, Tensor):
            values[path] = encode_value(value, f"{where}: attribute {path}")
    nodes = [_write_node(node, where) for node in gm.graph.nodes]
    check_callables(gm.graph, subgraphs, where)
    name = type(gm).__name__.removesuffix("Impl")
    return {
        "class": name if is_identifier(name) else "GraphModule",  # a traced `<lambda>`
        "nodes": nodes,
        "subgraphs": subgraphs,
        "values": values,
    }


def _write_node(node: Node, where: str) -> Json:
    place = f"{where}: node {node.name}"
    data: Json = {"op": node.op, "name": check_name(node.name, place)}
    data["target"] = _write_target(node, place)
    if node.args:
        args = enumerate(node.args)
        data["args"] = [encode_value(value, f"{place}: argument {index}") for index, value in args]
    if node.kwargs:
        with prefix_errors(place):
            pairs = kept_arguments(node).items()
        data["kwargs"] = {
            key: encode_value(value, f"{place}: argument {key!r}") for key, value in pairs
        }
    kind = next((name for name, kind in _TYPES.items() if kind is node.type), None)
    if node.op == "placeholder" and kind:
        data["type"] = kind
    if (operands := remembered_operands(node)) is not None:
        data[OPERANDS] = operands
    value = node_value_json(node)
    return data if value is None else {**data, "value": value}


def _write_target(node: Node, where: str) -> str:
    with prefix_errors(where):
        is_function = node.op == "call_function"
        name = target_to_name(node.target) if is_function else str(node.target)
    return _check_call(node.op, name, node.args, where)


# --- reading ------------------------------------------------------------------------------------


def graph_from_json(
    data: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    *,
    allow_imports: Collection[str] = (),
    trust: bool = False,
    device: str | None = None,
) -> GraphModule:
    """Build a graph from JSON, possibly untrusted.

    Args:
        allow_imports: Imported modules whose functions may be called.
        trust: Whether the checks of `untrusted_calls` are skipped.
        device: Replaces the device of constants and of arguments.

    Raises:
        CaseError: It is malformed or too large, or calls something that is not allowed.
        TrustError: It makes a call that needs trust.
    """
    check_at_most(_count_nodes(data), NODES, "graph: nodes, sub-graphs included")
    listed = member(data, "constants", dict, "graph")
    index = convert(TensorIndex, listed, where="graph: constants")
    constants = unpack_tensors(index, tensors, device=device, where="graph: constant")

    def resolve(name: str) -> Any:
        return target_from_name(name, allow_imports=allow_imports)

    try:
        return _Reader(resolve, constants, device, trust).graph(data, "graph", prefix="")
    except RecursionError as error:
        raise CaseError("graph: values or sub-graphs are nested too deeply to be real") from error


def _count_nodes(data: object) -> int:
    """Return the number of nodes of a graph and its sub-graphs, also of malformed ones."""
    count, todo = 0, [data]
    while todo:
        graph = todo.pop()
        known = cast("Json", graph) if isinstance(graph, dict) else {}
        nodes, subgraphs = known.get("nodes"), known.get("subgraphs")
        count += len(cast("list[object]", nodes)) if isinstance(nodes, list) else 0
        todo += cast("Json", subgraphs).values() if isinstance(subgraphs, dict) else ()
    return count


_REFUSALS = (RuntimeError, SyntaxError, AttributeError, TypeError, LookupError, ValueError)


@dataclass(frozen=True, slots=True)
class _Reader:
    resolve: Callable[[str], Any]
    constants: Mapping[str, Tensor]
    device: str | None
    trust: bool

    def graph(self, data: Mapping[str, object], where: str, *, prefix: str) -> GraphModule:
        """Build a graph whose constants have names that start with `prefix`."""
        _check_keys(data, ("class", "nodes", "subgraphs", "values", "constants"), where)
        root: dict[str, Any] = {}
        subgraphs = member(data, "subgraphs", dict, where)
        for path, sub in subgraphs.items():
            inner = f"{where}.{check_path(path, where)}"
            root[path] = self.graph(expect(sub, dict, inner), inner, prefix=f"{prefix}{path}.")
        decoder = Decoder({}, device=self.device)
        for path, value in member(data, "values", dict, where).items():
            place = f"{where}: attribute {check_path(path, where)}"
            if path in root:
                raise CaseError(f"{place} is a sub-graph and a value")
            root[path] = decoder.decode(value, place)
            if not self.trust:
                check_untrusted("get_attr", path, [root[path]], where)
        graph = self.nodes(data, where)
        check_callables(graph, subgraphs, where)
        check_numbers(graph, where)
        read = attribute_targets(graph)
        unread = root.keys() - set(read)
        if unread:
            raise CaseError(f"{where}: no node reads the attribute {min(unread)!r}")
        for target in read:
            if target not in root:
                name = prefix + target
                problem = f"{where}: constant {name!r} is missing"
                root[target] = look_up(self.constants, name, problem)
        name = check_identifier(member(data, "class", str, where), where)
        try:
            return GraphModule(root, graph, name)
        except _REFUSALS as error:
            reason = one_line(first_line(error), 300)
            raise CaseError(f"{where} is not a graph that FX accepts: {reason}") from error

    def nodes(self, data: Mapping[str, object], where: str) -> Graph:
        graph = Graph()
        made: dict[str, Node] = {}
        listed = items(data, "nodes", dict, where)
        ops = [node.get("op") for node in listed]
        if ops.count("output") != 1 or ops[-1] != "output":
            raise CaseError(
                f"{where}: a graph ends with its one output node; found ops {quote_value(ops[-3:])}"
            )
        for node in listed:
            name = check_identifier(member(node, "name", str, where), f"{where}: node")
            if name in made:
                raise CaseError(f"{where}: two nodes are named {name!r}")
            made[name] = self.node(graph, made, node, f"{where}: node {name}")
        return graph

    def node(self, graph: Graph, made: Mapping[str, Node], data: Json, where: str) -> Node:
        known = ("op", "name", "target", "args", "kwargs", "type", "value", OPERANDS)
        _check_keys(data, known, where)
        decoder = Decoder(made, self.resolve, self.device)
        op, name = member(data, "op", str, where), member(data, "name", str, where)
        target = member(data, "target", str, where)
        args = optional(data, "args", list, where) or []
        kwargs = optional(data, "kwargs", dict, where) or {}
        values = [decoder.decode(arg, f"{where}: argument {i}") for i, arg in enumerate(args)]
        named = {
            check_identifier(key, where): decoder.decode(value, f"{where}: argument {key!r}")
            for key, value in kwargs.items()
        }
        _check_call(op, target, values, where)
        if not self.trust:
            check_untrusted(op, target, [*values, *named.values()], where)
        with prefix_errors(where):
            function = self.resolve(target) if op == "call_function" else target
        named = loaded_arguments(function, named, where)
        if is_kernel_call(function) and (operands := optional(data, OPERANDS, dict, where)):
            remember(named, operands, where)
        kind = optional(data, "type", str, where)
        problem = f"{quote_value(kind)} is not a type of an input"
        node = graph.create_node(
            op,
            function,
            tuple(values),
            named,
            check_name(name, where),
            None if kind is None else look_up(_TYPES, kind, f"{where}: {problem}"),
        )
        node.name = name  # FX itself would call `sum` `sum_1`
        if data.get("value") is not None:
            check_value_json(data["value"], f"{where}: value")
            node.meta[META_KEY] = data["value"]
        return node


# --- checks of both directions ------------------------------------------------------------------

_OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")

_ARGUMENTS = {"placeholder": (0, 1), "get_attr": (0, 0), "output": (1, 1), "call_method": (1, 100)}
"""Bounds on the number of positional arguments of a node; none for functions and modules."""


def _check_call(op: str, target: str, args: Sequence[object], where: str) -> str:
    """Check a node's op and target; return the target."""
    if op not in _OPS:
        raise CaseError(f"{where}: {quote_value(op)} is not an op of a graph{nearest(op, _OPS)}")
    with prefix_errors(where):
        if op == "call_method":
            check_method(target)
        elif op == "call_function" and target == "builtins.getattr":
            check_attribute(args[1] if len(args) > 1 else None)
    least, most = _ARGUMENTS.get(op, (0, len(args)))
    if not least <= len(args) <= most:
        raise CaseError(f"{where}: {op} with {count_of(len(args), 'argument')}")
    if op in ("get_attr", "call_module"):
        check_path(target, where)
    elif op == "placeholder":
        check_identifier(target.removeprefix("*").removeprefix("*"), where)
    return target


def _check_keys(data: Mapping[str, object], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise CaseError(f"{where}: unknown key {quote_value(key)}; allowed: {', '.join(known)}")


# --- names --------------------------------------------------------------------------------------
# FX pastes names into the program that it generates and runs. So a name is ASCII (Python folds
# other letters: a fullwidth `torch` would hide the module), not a keyword, hides no name that such
# a program reads, and is not an attribute of a `GraphModule`.


def check_identifier(name: object, where: str) -> str:
    """Return the name of a variable, argument or attribute; raise `CaseError` if not allowed."""
    if isinstance(name, str) and is_identifier(name):
        return name
    raise CaseError(f"{where}: {quote_value(name)} is not allowed as a name in a graph")


def is_identifier(name: str) -> bool:
    """Return whether a name is an ASCII identifier: Python folds other letters."""
    is_name = len(name) <= NAME_LENGTH and name.isascii() and name.isidentifier()
    return is_name and not keyword.iskeyword(name)


def check_name(name: object, where: str) -> str:
    """Return a node's name; raise `CaseError` if it hides a name of FX's programs (`torch`)."""
    checked = check_identifier(name, where)
    if hasattr(builtins, checked) or Graph().placeholder(checked).name == checked:
        return checked
    raise CaseError(f"{where}: FX reserves the name {checked!r}; rename that node")


def check_path(path: str, where: str) -> str:
    """Return the path of an attribute.

    Raises:
        CaseError: It is not a path of names, or hides an attribute of `GraphModule`.
    """
    if len(path) > NAME_LENGTH:
        raise CaseError(f"{where}: {quote_value(path)} is too long for an attribute")
    for part in path.split("."):
        check_identifier(part, where)
        if part.startswith("__") or hasattr(GraphModule, part) or part in vars(torch.nn.Module()):
            raise CaseError(f"{where}: attribute {path!r} would hide {part!r} of torch.nn.Module")
    return path
