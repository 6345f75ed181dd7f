"""Rewrite an aten-level graph into one that `torch.jit.script` takes, in the order of `REWRITES`.

The graph that comes in is copied first and stays as it is. Nothing here compiles.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.torchscript.addmm import keep_addmm_whole
from ctk.compiler.codegen.torchscript.arguments import adapt_arguments
from ctk.compiler.codegen.torchscript.constants import bind_constants
from ctk.compiler.codegen.torchscript.fusing import why_unfused
from ctk.compiler.codegen.torchscript.hidden import NUMBERS
from ctk.compiler.codegen.torchscript.overloads import (
    count_overloads,
    overload_nodes,
    strip_overloads,
    take_scalar_overloads,
)
from ctk.compiler.codegen.torchscript.refuse import refuse_unsupported, why_not_shared
from ctk.compiler.codegen.torchscript.signature import ScriptSignature, type_signature
from ctk.compiler.codegen.torchscript.signs import keep_signs, signed_zeros
from ctk.compiler.codegen.torchscript.symbols import adapt_symbols
from ctk.compiler.codegen.torchscript.to_copy import to_copy_to_to
from ctk.compiler.codegen.torchscript.views import declare_views
from ctk.compiler.torch_compat.fx import operators

Written = Literal["input", "value"]


def drop_dead_code(graph: Graph) -> None:
    """Erase pure nodes that nothing reads. TorchScript would, and the overloads are counted before.

    Random ops and writes stay: they have effects besides their results.
    """
    graph.eliminate_dead_code()


REWRITES: tuple[Callable[[Graph], None], ...] = (
    refuse_unsupported,
    drop_dead_code,
    to_copy_to_to,
    declare_views,
    take_scalar_overloads,
    adapt_arguments,
    adapt_symbols,
)
"""What happens to the graph before its overloads are stripped."""


@dataclass(frozen=True, slots=True)
class ScriptGraph:
    """A graph in the form that `torch.jit.script` takes.

    Attributes:
        module: The rewritten graph with its constants.
        signature: How to call it.
        overloads: The overloads that TorchScript must choose, with how often each is called.
        unknown: Names of constants that TorchScript must not look into.
        writes: To what ops write: to inputs, to computed values (a graph that is not functional).
        unfused: Why TorchScript's fuser must leave it alone; None if it may fuse.
    """

    module: GraphModule
    signature: ScriptSignature
    overloads: Counter[str]
    unknown: frozenset[str]
    writes: frozenset[Written]
    unfused: str | None = None


def rewrite_for_torchscript(gm: GraphModule, example_inputs: Sequence[object]) -> ScriptGraph:
    """Return `gm` as a `ScriptGraph`; `gm` is left unchanged.

    Raises:
        CodegenUnsupported: TorchScript cannot take the graph; names the node.
    """
    graph = _copy(gm.graph)
    unfused, shared = why_unfused(graph, example_inputs), why_not_shared(graph)
    for rewrite in REWRITES:
        rewrite(graph)
    signature = type_signature(gm, graph, example_inputs)
    constants = dict(bind_constants(gm, graph))
    if shared is not None:
        raise shared
    numbers = {name: NUMBERS[name] for name in keep_addmm_whole(graph) | keep_signs(graph)}
    unknown = {*signed_zeros(constants), *numbers}
    overloads = count_overloads(graph)
    writes = frozenset[Written](
        kind for node in overload_nodes(graph) for kind in _written_by(node)
    )
    strip_overloads(graph)
    graph.lint()
    module = GraphModule(constants | numbers, graph)
    return ScriptGraph(module, signature, overloads, frozenset(unknown), writes, unfused)


def _written_by(node: Node) -> Iterator[Written]:
    for at, name in operators.written_arguments_of(node.target):
        written = node.args[at] if at < len(node.args) else node.kwargs[name]
        is_input = isinstance(written, Node) and written.op == "placeholder"
        yield "input" if is_input else "value"


def _copy(graph: Graph) -> Graph:
    copy = Graph()
    values: dict[Node, Node] = {}
    for node in graph.nodes:
        values[node] = new = copy.node_copy(node, lambda old: values[old])
        new.type = None  # Dynamo's annotations are not TorchScript's
    return copy
