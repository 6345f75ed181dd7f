"""Nested inputs: autograd dispatch needs one value per placeholder; callers pass lists and dicts.

    graph(inputs, scale)        inputs: [x, {"y": y}]
    flat(inputs_0, inputs_1, scale)       inputs_0: x, inputs_1: y

The mirror of `outputs.py`. A read of one element (`inputs[0]`) becomes the placeholder of that
element; any other user of the list gets a list of placeholders. A graph of `torch.export` or
`make_fx` has flat placeholders already, and a calling convention that makes their values.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.errors import ProgramError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fx import graphs

Call = Callable[..., object]

_TYPES = "example_value", "val"
"""The entries of `meta` that hold the example of a placeholder, nested like its value."""

_WRITES = (
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault",
    "sort", "update",
)  # fmt: skip
"""Methods of lists and dicts that change them."""

_OPERATORS = operator.setitem, operator.delitem, operator.iadd, operator.imul, operator.ior


@dataclass(frozen=True, slots=True)
class Flat:
    """A graph with flat inputs in place of one with nested inputs.

    Attributes:
        inputs: Its example inputs, one value per placeholder.
        flatten: Makes the flat inputs of one call. Raises `TypeError` if they are nested otherwise.
        restore: Makes the result of the original graph from that of the flat one.
    """

    graph: GraphModule
    inputs: Sequence[object]
    flatten: Callable[[Sequence[object]], list[object]]
    restore: Callable[[object], object]

    def call(self, run: Call) -> Call:
        """Return a callable with the arguments of the original graph, of one of the flat graph."""

        def nested(*args: object) -> object:
            return self.restore(run(*self.flatten(args)))

        return nested


def flatten_inputs(gm: GraphModule, inputs: Sequence[object]) -> Flat | None:
    """Return a copy of a graph that takes the leaves of its nested inputs; None if all are flat.

    A wrong number of inputs is left to the caller, which knows their names.

    Raises:
        ProgramError: The graph writes to a list or dict of the caller.
    """
    leaves = graphs.tree_leaves(list(inputs))
    convention = graphs.convention_functions(gm.graph)
    if convention is not None:
        copy = copy_graph_module(gm)
        graphs.plain_codegen(copy.graph)
        copy.recompile()
        process_inputs, restore = convention
        return Flat(copy, process_inputs(inputs), process_inputs, restore)
    is_flat = len(leaves) == len(inputs) and all(map(operator.is_, leaves, inputs))
    if is_flat or len(inputs) != len(placeholders(gm)):
        return None
    copy = copy_graph_module(gm)
    for node, value in zip(placeholders(copy), inputs, strict=True):
        _replace_placeholder(node, value)
    graphs.plain_codegen(copy.graph)
    copy.recompile()
    _, nesting = graphs.tree_flatten(list(inputs))
    stolen = [place for place, node in enumerate(placeholders(gm)) if node.meta.get("steal_arg")]

    def flatten(args: Sequence[Any]) -> list[object]:
        try:
            flat = graphs.leaves_as(list(args), nesting)
        except ValueError as error:
            raise TypeError(
                "the compiled graph takes inputs with the nesting of its compile, and got others: "
                f"{first_line(error).rstrip('.')}; compile the graph for these as well"
            ) from error
        for place in stolen:  # compiled autograd: the graph owns the list, and may free its values
            args[place].clear()
        return flat

    return Flat(copy, leaves, flatten, lambda result: result)


def _replace_placeholder(node: Node, value: object) -> None:
    """Replace a placeholder by those of the leaves of its value, unless it is one."""
    leaves, nesting = graphs.tree_flatten(value)
    if len(leaves) == 1 and leaves[0] is value:
        return
    types = {key: graphs.tree_leaves(node.meta[key]) for key in _TYPES if key in node.meta}
    with node.graph.inserting_before(node):
        made = [node.graph.placeholder(f"{node.target}_{place}") for place in range(len(leaves))]
    for place, leaf in enumerate(made):
        leaf.target = leaf.name  # another placeholder may have the target
        leaf.meta = {key: each[place] for key, each in types.items() if len(each) == len(made)}
    _replace_uses(node, graphs.tree_unflatten(made, nesting))
    node.graph.erase_node(node)


def _replace_uses(node: Node, value: Any) -> None:
    """Let the users of a node read nested nodes in its place."""
    for user in list(node.users):
        _require_read(user, node)
        if user.target is operator.getitem and user.args[0] is node:
            picked = value[user.args[1]]
            if isinstance(picked, Node):
                user.replace_all_uses_with(picked)
            else:
                _replace_uses(user, picked)
            user.graph.erase_node(user)
        else:
            user.args = map_arg(user.args, lambda each: value if each is node else each)
            user.kwargs = map_arg(user.kwargs, lambda each: value if each is node else each)


def _require_read(user: Node, node: Node) -> None:
    """Raise if a node writes to a list or dict."""
    is_write = user.op == "call_method" and user.target in _WRITES
    is_write = is_write or user.target in _OPERATORS
    if is_write and user.args[0] is node:
        raise ProgramError(
            f"the graph changes its input {node.name}, a list or dict, at the node {user.name} "
            f"({user.target}); let it return the new values instead"
        )
