"""Build the forward and the backward graph from a joint graph and what is to be saved.

What AOTAutograd reads by position:
    forward:  primals, forward seeds -> its outputs, saved tensors, saved symbolic numbers
    backward: saved symbolic numbers, saved tensors, tangents, backward seeds -> gradients
Tensors whose version autograd must not check are behind the others. Names and metas are kept, and
sub-graphs are those of the joint graph.

Source: torch/_functorch/partitioners.py, `_extract_fwd_bwd_modules`. Differs: what each side
needs is found from its outputs and effects, so that there is no dead code to eliminate and no
random operator stays where nobody reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.types import value_of
from ctk.compiler.partition.classify import NodeInfo, needed
from ctk.compiler.partition.network import CannotPartition
from ctk.compiler.partition.roles import is_effect
from ctk.compiler.partition.schedule import getitems_first, late
from ctk.compiler.torch_compat import partition as compat

_UNCHECKED = "saved_tensor_with_no_vc_check"


@dataclass(frozen=True, slots=True)
class Saved:
    """What forward hands to backward: tensors, tensors without version check, symbolic numbers."""

    checked: tuple[Node, ...]
    unchecked: tuple[Node, ...]
    symbols: tuple[Node, ...]

    @property
    def tensors(self) -> tuple[Node, ...]:
        return (*self.checked, *self.unchecked)

    @property
    def descriptions(self) -> list[object]:
        """What each is, for AOTAutograd."""
        counts = len(self.checked), len(self.unchecked), len(self.symbols)
        return compat.saved_descriptions(*counts)


def extract(info: NodeInfo, values: Iterable[Node]) -> tuple[GraphModule, GraphModule]:
    """Return the forward and the backward graph.

    Args:
        info: The joint graph, sorted.
        values: What to save; what backward does not read is not saved.
    """
    saved = _sorted(info, values)
    return _forward(info, saved), _backward(info, saved)


def _sorted(info: NodeInfo, values: Iterable[Node]) -> Saved:
    """Return what backward reads of these, in the order that AOTAutograd wants."""
    given = dict.fromkeys(values)
    read = _needed_in_backward(info, given)
    used = sorted((node for node in given if node in read), key=info.order.__getitem__)
    tensors = [node for node in used if not compat.is_symbolic(node)]
    numbers = [node for node in used if compat.is_symbolic(node)]
    return Saved(
        tuple(node for node in tensors if not node.meta.get(_UNCHECKED, False)),
        tuple(node for node in tensors if node.meta.get(_UNCHECKED, False)),
        tuple(_with_bindings(info, numbers, tensors)),
    )


def _needed_in_backward(info: NodeInfo, saved: Iterable[Node]) -> frozenset[Node]:
    ends = [*info.backward_outputs, *(node for node in info.backward if is_effect(node))]
    return needed(ends, frozenset((*saved, *info.backward_inputs)).__contains__)


def _with_bindings(info: NodeInfo, numbers: Sequence[Node], tensors: Sequence[Node]) -> list[Node]:
    """Return symbolic numbers, those first that bind a symbol; with all symbols in any size.

    The sizes of what backward is given must be known there, also if no node reads them.
    """
    binding = {n: None for n in numbers if compat.symbol_of(n) is not None}
    derived = [node for node in numbers if node not in binding]
    bound = {compat.symbol_of(node) for node in binding}
    known = compat.symbol_bindings(info.joint.graph)
    for node in (*derived, *tensors, *info.backward_inputs):
        for symbol in compat.free_symbols(value_of(node)) if "val" in node.meta else ():
            if symbol not in bound and symbol in known:
                binding[known[symbol]] = None
                bound.add(symbol)
    return [*binding, *derived]


def _forward(info: NodeInfo, saved: Saved) -> GraphModule:
    outputs = (*info.forward_outputs, *saved.tensors, *saved.symbols)
    effects = [n for n in info.nodes if is_effect(n) and n not in info.backward]
    inside = needed([*outputs, *effects])
    nodes = [node for node in info.nodes if node in inside]
    descriptions = [*_descriptions(info)[: len(info.forward_outputs)], *saved.descriptions]
    return _build(info, info.forward_inputs, getitems_first(nodes), outputs, descriptions)


def _backward(info: NodeInfo, saved: Saved) -> GraphModule:
    inputs = (*saved.symbols, *saved.tensors, *info.backward_inputs)
    inside = _needed_in_backward(info, inputs).difference(inputs)
    nodes = [node for node in info.nodes if node in inside]
    descriptions = _descriptions(info)[len(info.forward_outputs) :]
    ordered = getitems_first(late(nodes, info.backward))
    module = _build(info, inputs, ordered, info.backward_outputs, descriptions)
    for node in module.graph.nodes:
        if node.op in ("call_function", "get_attr"):
            node.meta["autograd_backward"] = True
    return module


def _descriptions(info: NodeInfo) -> list[object]:
    """Return what AOTAutograd says of each output of the joint graph."""
    count = len(info.forward_outputs) + len(info.backward_outputs)
    said = info.joint.graph.output_node().meta.get("desc")
    return [None] * count if said is None else list(said)


def _build(
    info: NodeInfo,
    inputs: Sequence[Node],
    nodes: Iterable[Node],
    outputs: Sequence[object],
    descriptions: Sequence[object],
) -> GraphModule:
    """Return a module that computes these nodes from these inputs."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        if node in copies:
            continue
        if node.op == "placeholder":
            raise CannotPartition(f"a graph needs {node.name}, which is not among its inputs")
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = tuple(copies[out] if isinstance(out, Node) else out for out in outputs)
    output = graph.output(cast("tuple[Any, ...]", results))
    output.meta["desc"] = list(descriptions)
    output.meta["output_stack_traces"] = [
        out.meta.get("stack_trace") if isinstance(out, Node) else None for out in results
    ]
    graph.lint()
    return GraphModule(info.joint, graph)
