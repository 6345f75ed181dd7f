"""Choose what goes into the forward and the backward graph, given what is to be saved.

What AOTAutograd reads by position:
    forward:  primals, forward seeds -> its outputs, saved tensors, saved symbolic numbers
    backward: saved symbolic numbers, saved tensors, tangents, backward seeds -> gradients
States of generators are tensors, too; tensors whose version autograd must not check are the last of
them. Names and metas are kept, and sub-graphs are those of the joint graph.

Source: torch/_functorch/partitioners.py, `_extract_fwd_bwd_modules`. Differs: what each side
needs is found from its outputs and effects, so that there is no dead code to eliminate and no
random operator stays where nobody reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from ctk.compiler.fx.properties import is_effect, is_random, is_symbolic
from ctk.compiler.fx.types import value_of
from ctk.compiler.partition.building import Building
from ctk.compiler.partition.classify import NodeInfo, all_operands, needed
from ctk.compiler.partition.overwritten import overwritten
from ctk.compiler.partition.schedule import getitems_first, late
from ctk.compiler.torch_compat.aot import partition as compat

_UNCHECKED = "saved_tensor_with_no_vc_check"


@dataclass(frozen=True, slots=True)
class Saved:
    """What forward hands to backward, in this order.

    Attributes:
        checked: Tensors whose version autograd checks.
        drawn: Random nodes, of which the state of the generator is handed over.
        unchecked: Tensors without that check.
        symbols: Symbolic numbers.
    """

    checked: tuple[Node, ...]
    drawn: tuple[Node, ...]
    unchecked: tuple[Node, ...]
    symbols: tuple[Node, ...]

    @property
    def values(self) -> tuple[Node, ...]:
        return (*self.checked, *self.unchecked, *self.symbols)

    @property
    def descriptions(self) -> list[object]:
        """What each is, for AOTAutograd."""
        checked = len(self.checked) + len(self.drawn)
        return compat.saved_descriptions(checked, len(self.unchecked), len(self.symbols))


def extract(info: NodeInfo, values: Iterable[Node]) -> tuple[GraphModule, GraphModule]:
    """Return the forward and the backward graph.

    Args:
        info: The joint graph, sorted.
        values: What to save; what backward does not read is not saved.

    Raises:
        CannotPartition: Backward needs what is not saved and cannot be computed again.
    """
    saved = _sorted(info, values)
    return _forward(info, saved), _backward(info, saved)


def computed_in_backward(info: NodeInfo, values: Iterable[Node]) -> list[Node]:
    """Return what backward computes if these values are saved, in the order of the joint graph."""
    inputs = {*values, *info.backward_inputs}
    inside = _needed_in_backward(info, inputs)
    return [node for node in info.nodes if node in inside and node not in inputs]


def computed_again(info: NodeInfo, values: Iterable[Node]) -> list[Node]:
    """Return what of forward backward computes once more if these values are saved."""
    found = computed_in_backward(info, values)
    return [n for n in found if n in info.forward and n.op == "call_function"]


def _sorted(info: NodeInfo, values: Iterable[Node]) -> Saved:
    """Return what backward reads of these, in the order that AOTAutograd wants."""
    given = dict.fromkeys(values)
    read = _needed_in_backward(info, given)
    used = [node for node in info.nodes if node in given and node in read]
    tensors = [node for node in used if not is_symbolic(node)]
    numbers = [node for node in used if is_symbolic(node)]
    return Saved(
        tuple(node for node in tensors if not node.meta.get(_UNCHECKED, False)),
        tuple(node for node in computed_again(info, given) if is_random(node)),
        tuple(node for node in tensors if node.meta.get(_UNCHECKED, False)),
        tuple(_with_bindings(info, numbers, tensors)),
    )


def _needed_in_backward(info: NodeInfo, saved: Iterable[Node]) -> frozenset[Node]:
    ends = [*info.backward_outputs, *(node for node in info.backward if is_effect(node))]
    return needed(ends, info.operands, {*saved, *info.backward_inputs})


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
    effects = [n for n in info.nodes if is_effect(n) and n not in info.backward]
    inside = needed([*info.forward_outputs, *saved.values, *saved.drawn, *effects])
    nodes = [node for node in info.nodes if node in inside]
    graph = Building(info)
    graph.append_inputs(info.forward_inputs)
    graph.copy_before(overwritten(info).intersection(saved.values))
    for node in getitems_first(nodes, all_operands):
        if node in saved.drawn:
            graph.append_drawn(node)
        else:
            graph.append(node)
    outputs = [
        *graph.results(info.forward_outputs),
        *graph.saved(saved.checked),
        *graph.saved(saved.drawn),
        *graph.saved(saved.unchecked),
        *graph.results(saved.symbols),
    ]
    return graph.finish(
        outputs, [*_descriptions(info)[: len(info.forward_outputs)], *saved.descriptions]
    )


def _backward(info: NodeInfo, saved: Saved) -> GraphModule:
    graph = Building(info)
    graph.append_inputs((*saved.symbols, *saved.checked))
    graph.append_states(saved.drawn)
    graph.append_inputs((*saved.unchecked, *info.backward_inputs))
    nodes = computed_in_backward(info, saved.values)
    for node in getitems_first(late(nodes, info.backward, info.operands), info.operands):
        if node in info.backward:
            graph.append(node)
        else:
            graph.append_again(node)
    descriptions = _descriptions(info)[len(info.forward_outputs) :]
    module = graph.finish(graph.results(info.backward_outputs), descriptions)
    for node in module.graph.nodes:
        if node.op in ("call_function", "get_attr"):
            node.meta["autograd_backward"] = True
    return module


def _descriptions(info: NodeInfo) -> list[object]:
    """Return what AOTAutograd says of each output of the joint graph."""
    count = len(info.forward_outputs) + len(info.backward_outputs)
    said = info.joint.graph.output_node().meta.get("desc")
    return [None] * count if said is None else list(said)
