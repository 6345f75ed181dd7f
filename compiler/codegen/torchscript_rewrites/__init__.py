"""Rewrite an aten-level graph into one that `torch.jit.script` takes, in the order of `REWRITES`.

The graph that comes in is copied first and stays as it is. Nothing here compiles.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.fx import Graph, GraphModule

from compiler import torch_compat
from compiler.codegen.torchscript_rewrites.arguments import adapt_arguments
from compiler.codegen.torchscript_rewrites.constants import bind_constants
from compiler.codegen.torchscript_rewrites.overloads import (
    count_overloads,
    overload_nodes,
    strip_overloads,
    take_scalar_overloads,
)
from compiler.codegen.torchscript_rewrites.refuse import refuse_unsupported
from compiler.codegen.torchscript_rewrites.signature import Signature, type_signature
from compiler.codegen.torchscript_rewrites.symbols import adapt_symbols
from compiler.codegen.torchscript_rewrites.to_copy import to_copy_to_to



def drop_dead_code(graph: Graph) -> None:
    """Erase pure nodes that nothing reads. TorchScript would, and the overloads are counted before.

    Random ops and writes stay: they have effects besides their results.
    """
    graph.eliminate_dead_code()


REWRITES: tuple[Callable[[Graph], None], ...] = (
    drop_dead_code,
    refuse_unsupported,
    to_copy_to_to,
    take_scalar_overloads,
    adapt_arguments,
    adapt_symbols,
)
"""What happens to the graph before its overloads are stripped."""


@dataclass(frozen=True, slots=True)
class Program:
    """A graph in the form that `torch.jit.script` takes.

    Attributes:
        module: The rewritten graph with its constants.
        signature: How to call it.
        overloads: The overloads that TorchScript must choose, with how often each is called.
        mutates: Whether an op writes to an argument.
    """

    module: GraphModule
    signature: Signature
    overloads: Counter[str]
    mutates: bool


def rewrite_for_torchscript(gm: GraphModule, example_inputs: Sequence[object]) -> Program:
    """Return `gm` as a `Program`; `gm` is left unchanged.

    Raises:
        CodegenUnsupported: TorchScript cannot take the graph; names the node.
    """
    graph = _copy(gm.graph)
    for rewrite in REWRITES:
        rewrite(graph)
    signature = type_signature(gm, graph, example_inputs)
    constants = bind_constants(gm, graph)
    overloads = count_overloads(graph)
    mutates = any(torch_compat.is_mutable_op(node.target) for node in overload_nodes(graph))
    strip_overloads(graph)
    graph.lint()
    return Program(GraphModule(dict(constants), graph), signature, overloads, mutates)


def _copy(graph: Graph) -> Graph:
    copy = Graph()
    values: dict[object, object] = {}
    for node in graph.nodes:
        values[node] = new = copy.node_copy(node, lambda old: values[old])
        new.type = None  # Dynamo's annotations are not TorchScript's
    return copy
