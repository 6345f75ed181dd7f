"""A graph as Python that runs: an `nn.Module` per graph and sub-graph, one operation per line.

    class Graph(torch.nn.Module):
        def __init__(self, constants):
            super().__init__()
            self.register_buffer("b", constants["b"])

        def forward(self, l_x_):
            b = self.b  # float32[8]
            mul = l_x_ * b  # float32[4, 8]
            return (mul,)

Operators that inspect their sub-graph (`autograd_function_apply`) get it as a `GraphModule` from a
builder function; the others get a module class. The text needs torch and the standard library (and
the module of a user's own function, if the graph calls one); launches of Triton kernels need
`with_numbers`, which repros carry. `constants` maps qualified names to tensors, as
`graph_json.constants_of` returns them. The class computes the results of the graph, and Dynamo can
capture it again, except for some operators that only Dynamo writes (2.13: `scan`, `flex_attention`,
`autograd_function_apply`; see `only_dynamo_writes`). With `as_graphs` the text
builds a `GraphModule` instead, for direct use by a compiler.
"""

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.walk import attribute_targets, children, fetch, input_names
from ctk.toolkit.case.formats.plain_text import words
from ctk.toolkit.case.formats.strict_json import prefix_errors
from ctk.toolkit.case.graphs.allow_list import BUILTINS
from ctk.toolkit.case.graphs.callables import names_of_calls, target_to_name
from ctk.toolkit.case.graphs.python_expressions import (
    VariableNames,
    call_text,
    expression,
    function_text,
    keywords_text,
)
from ctk.toolkit.case.graphs.value_types import symbol_of, value_comment

_RESERVED = frozenset({"torch", "operator", "math", "self", "constants", "graph", *BUILTINS})
"""Names that the text itself reads: no variable may hide them."""

_HIGHER_ORDER = "torch.ops.higher_order."
_CALLS_ITS_GRAPHS = words("""
    cond while_loop scan map_impl associative_scan foreach_map flex_attention
    flex_attention_backward
""")
"""Higher-order operators that only call their sub-graph, so that a module class suffices."""

_CAPTURED_AGAIN = words("""
    associative_scan auto_functionalized auto_functionalized_v2 cond hints_wrapper map_impl
    out_dtype print tag_activation_checkpoint while_loop wrap wrap_activation_checkpoint
    wrap_with_autocast wrap_with_set_grad_enabled
""")
"""Higher-order operators that Dynamo captures again from the text."""

Dynamic = Mapping[str, Sequence[str | None]]
"""`Case.dynamic`."""


@dataclass(slots=True)
class _SourceText:
    parts: list[str] = field(default_factory=list[str])
    imports: set[str] = field(default_factory=lambda: {"torch"})
    as_graphs: bool = False


def graph_to_python(
    gm: GraphModule,
    class_name: str = "Graph",
    *,
    symbols_from: Dynamic | None = None,
    header: str | None = None,
    as_graphs: bool = False,
) -> str:
    """Return a graph as the source of a module class, or of functions that build graphs.

    Args:
        class_name: Name of the class; sub-graphs become `<class_name>_<attribute>`, before it.
        symbols_from: `Case.dynamic`. Placeholders that are symbolic sizes leave the signature; they
            are read off the tensors that have them (`s77 = l_x_.size(0)`).
        header: Comment lines for the top, without `#`.
        as_graphs: Write a function `class_name(constants)` that builds a `GraphModule`, nested ones
            too; it takes every placeholder.

    Raises:
        CaseError: The graph holds something that cannot be written; the message names the node.
    """
    program = _SourceText(as_graphs=as_graphs)
    if as_graphs:
        _add_builder(program, gm, class_name, prefix="")
    else:
        _add_class(program, gm, class_name, prefix="", dynamic=symbols_from or {})
    lines = [f"# {line}" for line in (header or "").splitlines()]
    lines += [f"import {name}" for name in sorted(program.imports)]
    return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(program.parts) + "\n"


def only_dynamo_writes(gm: GraphModule) -> bool:
    """Return whether Dynamo could not capture a graph's text again, because of an operator."""
    names = (name for name in names_of_calls(gm) if name.startswith(_HIGHER_ORDER))
    return any(name.removeprefix(_HIGHER_ORDER) not in _CAPTURED_AGAIN for name in names)


def find_computed_sizes(gm: GraphModule, dynamic: Dynamic) -> dict[int, tuple[int, int]]:
    """Return the placeholders that are sizes of others: position -> (other position, dimension)."""
    names = input_names(gm)
    computed_sizes = _sizes_by_node(gm, dynamic).items()
    return {
        names.index(node.name): (names.index(owner), dim) for node, (owner, dim) in computed_sizes
    }


def signature_names(gm: GraphModule, symbols_from: Dynamic | None = None) -> list[str]:
    """Return the placeholders that `forward` of `graph_to_python` takes, in order, by node name."""
    sizes = _sizes_by_node(gm, symbols_from or {})
    return [node.name for node in gm.graph.find_nodes(op="placeholder") if node not in sizes]


def _sizes_by_node(gm: GraphModule, dynamic: Dynamic) -> dict[Node, tuple[str, int]]:
    """Return, for each placeholder that is a size of another, the other and the dimension."""
    where: dict[str, tuple[str, int]] = {}
    for name, symbols in dynamic.items():
        for dim, symbol in enumerate(symbols):
            if symbol is not None:
                where.setdefault(symbol, (name, dim))
    placeholders = gm.graph.find_nodes(op="placeholder")
    symbols = {node: symbol_of(node) or node.name for node in placeholders}
    names = {node.name for node in placeholders}
    return {
        node: where[symbol]
        for node, symbol in symbols.items()
        if symbol in where and node.name not in dynamic and where[symbol][0] in names
    }


def _add_class(
    program: _SourceText, gm: GraphModule, class_name: str, *, prefix: str, dynamic: Dynamic
) -> None:
    fields = {path: path.replace(".", "_") for path in attribute_targets(gm.graph)}
    if len(set(fields.values())) < len(fields):
        raise CaseError(
            f"attributes {sorted(fields)} of {class_name} have equal names in the class"
        )
    init = ["def __init__(self, constants):", "    super().__init__()"]
    for path, value in _attribute_texts(program, gm, class_name, prefix).items():
        is_parameter = isinstance(fetch(gm, path), torch.nn.Parameter)
        is_buffer = value.startswith("constants[") and not is_parameter
        name = fields[path]
        line = f'self.register_buffer("{name}", {value})' if is_buffer else f"self.{name} = {value}"
        init.append(f"    {line}")
    body = [*init, "", *_forward(gm, fields, program.imports, dynamic)]
    lines = [f"class {class_name}(torch.nn.Module):", *(f"    {line}".rstrip() for line in body)]
    program.parts.append("\n".join(lines))


def _add_builder(program: _SourceText, gm: GraphModule, name: str, *, prefix: str) -> None:
    """Add a function that builds a graph node by node, and returns it as a `GraphModule`."""
    attributes = _attribute_texts(program, gm, name, prefix)
    root = ", ".join(f'"{path}": {value}' for path, value in attributes.items())
    text = VariableNames(_variables(gm), program.imports)
    lines = [f"def {name}(constants):", "    graph = torch.fx.Graph()"]
    for node in gm.graph.nodes:
        is_function = node.op == "call_function"
        target = function_text(target_to_name(node.target), text) if is_function else node.target
        shown = target if is_function else repr(str(target))
        args, kwargs = expression(tuple(node.args), text), keywords_text(node, text)
        call = f'graph.create_node("{node.op}", {shown}, {args}, {kwargs}, "{node.name}")'
        comment = value_comment(node)
        lines.append(
            f"    {text.nodes[node.name]} = {call}" + (f"  # {comment}" if comment else "")
        )
    lines.append(f"    return torch.fx.GraphModule({{{root}}}, graph)")
    program.parts.append("\n".join(lines))


def _attribute_texts(
    program: _SourceText, gm: GraphModule, owner: str, prefix: str
) -> dict[str, str]:
    """Return each attribute as an expression; sub-graphs are added to the program first."""
    subgraphs, modules = children(gm), _only_called_attributes(gm)
    attribute_texts: dict[str, str] = {}
    for path in attribute_targets(gm.graph):
        if path not in subgraphs:
            value, names = fetch(gm, path), VariableNames({}, program.imports)
            is_tensor = isinstance(value, torch.Tensor)
            attribute_texts[path] = (
                f'constants["{prefix}{path}"]' if is_tensor else expression(value, names)
            )
            continue
        name, inner = f"{owner}_{path.replace('.', '_')}", f"{prefix}{path}."
        if path in modules and not program.as_graphs:
            _add_class(program, subgraphs[path], name, prefix=inner, dynamic={})
        else:
            _add_builder(program, subgraphs[path], name, prefix=inner)
        attribute_texts[path] = f"{name}(constants)"
    return attribute_texts


def _only_called_attributes(gm: GraphModule) -> set[str]:
    """Return the attributes that are only called, so that a module class suffices."""
    graph_callers = {f"{_HIGHER_ORDER}{name}" for name in _CALLS_ITS_GRAPHS}
    found: set[str] = set()
    for node in gm.graph.nodes:
        users = [user for user in node.users if user.op == "call_function"]
        called = all(target_to_name(user.target) in graph_callers for user in users)
        if node.op == "call_module" or (node.op == "get_attr" and called):
            found.add(str(node.target))
    return found


def _forward(
    gm: GraphModule, fields: Mapping[str, str], imports: set[str], dynamic: Dynamic
) -> Iterator[str]:
    names = _variables(gm)
    sizes = _sizes_by_node(gm, dynamic)
    text = VariableNames(names, imports)
    parameters = ["self", *_parameters(gm, text, without=sizes)]
    yield f"def forward({', '.join(parameters)}):"
    for node, (owner, dim) in sizes.items():
        yield f"    {names[node.name]} = {names[owner]}.size({dim})"
    for node in gm.graph.nodes:
        line = _statement(node, text, fields)
        if line is not None:
            comment = value_comment(node)
            yield f"    {line}  # {comment}" if comment else f"    {line}"


def _variables(gm: GraphModule) -> dict[str, str]:
    """Return variables by node name: the name, with `_` appended if it would hide a module."""
    taken = {node.name for node in gm.graph.nodes}
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    modules = {str(getattr(node.target, "__module__", "")).partition(".")[0] for node in calls}
    variables: dict[str, str] = {}
    for node in gm.graph.nodes:
        name = node.name
        while name in _RESERVED | modules or keyword.iskeyword(name):
            name += "_"
            name = name + "_" if name in taken else name
        variables[node.name] = name
    return variables


def _parameters(
    gm: GraphModule, text: VariableNames, without: Mapping[Node, object]
) -> Iterator[str]:
    for node in gm.graph.find_nodes(op="placeholder"):
        stars = "*" * str(node.target).count("*")
        default = f"={expression(node.args[0], text)}" if node.args else ""
        if node not in without:
            yield f"{stars}{text.nodes[node.name]}{default}"


def _statement(node: Node, text: VariableNames, fields: Mapping[str, str]) -> str | None:
    if node.op == "placeholder":
        return None
    if node.op == "output":
        return f"return {expression(node.args[0], text)}"
    if node.op == "get_attr":
        return f"{text.nodes[node.name]} = self.{fields[str(node.target)]}"
    callee = f"self.{fields[str(node.target)]}" if node.op == "call_module" else str(node.target)
    if node.op == "call_function":
        with prefix_errors(f"node {node.name}"):
            callee = target_to_name(node.target)
    return call_text(node, callee, text)
