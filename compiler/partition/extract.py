"""Build the forward and the backward graph from a joint graph and the values to save.

AOTAutograd reads inputs and outputs by position:
    forward:  primals, forward seeds -> its outputs, saved tensors, saved symbolic numbers
    backward: saved symbolic numbers, saved tensors, tangents, backward seeds -> gradients
Generator states count as tensors; tensors whose version autograd must not check are the last of the
tensors. Names, metadata and sub-graphs are those of the joint graph.

Source: torch/_functorch/partitioners.py, `_extract_fwd_bwd_modules`. Differs: each side is built
from its outputs and effects, so that it has no dead code, and no random operator without a reader.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.properties import is_effect, is_random, is_symbolic
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import topological
from ctk.compiler.partition import recipes
from ctk.compiler.partition.classify import NodeInfo, all_operands, ancestors
from ctk.compiler.partition.network import CannotPartition
from ctk.compiler.partition.overwritten import copy_before, overwritten_inputs
from ctk.compiler.partition.roles import is_getitem
from ctk.compiler.torch_compat.aot import partition as compat

Operands = Callable[[Node], Iterable[Node]]
_UNCHECKED = "saved_tensor_with_no_vc_check"


@dataclass(frozen=True, slots=True)
class Saved:
    """The values that forward passes to backward, in this order.

    Attributes:
        checked: Tensors whose version autograd checks.
        drawn: Random nodes; the generator state of each is passed.
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
        """The descriptions of the values for AOTAutograd."""
        checked = len(self.checked) + len(self.drawn)
        return compat.saved_descriptions(checked, len(self.unchecked), len(self.symbols))


def extract(info: NodeInfo, values: Iterable[Node]) -> tuple[GraphModule, GraphModule]:
    """Return the forward and the backward graph.

    Args:
        values: The values to save; those without a reader in backward are left out.

    Raises:
        CannotPartition: Backward needs a value that is neither saved nor can be recomputed.
    """
    saved = _sort(info, values)
    return _forward(info, saved), _backward(info, saved)


def find_needed(info: NodeInfo, saved: Iterable[Node]) -> frozenset[Node]:
    """Return the nodes that backward reads or computes if these values are saved."""
    ends = [*info.backward_outputs, *(node for node in info.backward if is_effect(node))]
    return ancestors(ends, info.operands, {*saved, *info.backward_inputs})


def find_backward_nodes(info: NodeInfo, values: Iterable[Node]) -> list[Node]:
    """Return the nodes that backward computes if these values are saved, in the joint order."""
    inputs = {*values, *info.backward_inputs}
    inside = find_needed(info, inputs)
    return [node for node in info.nodes if node in inside and node not in inputs]


def _sort(info: NodeInfo, values: Iterable[Node]) -> Saved:
    """Return the values that backward reads, in the order that AOTAutograd wants."""
    given = dict.fromkeys(values)
    read = find_needed(info, given)
    used = [node for node in info.nodes if node in given and node in read]
    tensors = [node for node in used if not is_symbolic(node)]
    numbers = [node for node in used if is_symbolic(node)]
    again = [node for node in find_backward_nodes(info, given) if node in info.forward]
    return Saved(
        tuple(node for node in tensors if not node.meta.get(_UNCHECKED, False)),
        tuple(node for node in again if is_random(node)),
        tuple(node for node in tensors if node.meta.get(_UNCHECKED, False)),
        tuple(_with_bindings(info, numbers, tensors)),
    )


def _with_bindings(info: NodeInfo, numbers: Sequence[Node], tensors: Sequence[Node]) -> list[Node]:
    """Return symbolic numbers, the symbol bindings first, with all symbols of the given sizes.

    Backward must know the sizes of its inputs, even if no node reads them.
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


@dataclass(slots=True)
class _Building:
    """A forward or a backward graph, built node by node from a joint graph.

    Attributes:
        substitutes: The values that forward saves in place of nodes: the copy of an overwritten
            input, or the generator state of a random node. In backward: that state.
    """

    info: NodeInfo
    graph: Graph = field(default_factory=Graph)
    copies: dict[Node, Node] = field(default_factory=dict[Node, Node])
    substitutes: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def append_inputs(self, nodes: Iterable[Node]) -> None:
        """Append placeholders for values of the joint graph."""
        for node in nodes:
            self.copies[node] = self.graph.placeholder(node.name)
            self.copies[node].meta = dict(node.meta)

    def append_states(self, drawn: Iterable[Node]) -> None:
        """Append placeholders for the states of generators."""
        for node in drawn:
            state = self.graph.placeholder(f"rng_state_{node.name}")
            state.meta = recipes.state_meta(node)
            self.substitutes[node] = state

    def copy_before(self, written: Iterable[Node]) -> None:
        """Copy inputs that are saved and overwritten; call it before other nodes are appended."""
        for node in sorted(written, key=self.info.order.__getitem__):
            copy = copy_before(node)
            if copy is None:
                raise CannotPartition(f"{node.name} is overwritten and cannot be copied before")
            self.substitutes[node] = copy(self.graph, self.copies[node])
            self.substitutes[node].meta = dict(node.meta)

    def append(self, node: Node) -> None:
        """Append a copy of a node."""
        if self._is_missing(node):
            copy = recipes.compute_in_backward(self.graph, node, self.copies.__getitem__)
            self.copies[node] = copy

    def append_drawn(self, node: Node) -> None:
        """Append a random node, and keep its generator state."""
        drawn = recipes.draw(self.graph, node, self.copies.__getitem__)
        self.copies[node], self.substitutes[node] = drawn

    def append_again(self, node: Node) -> None:
        """Append the recomputation of a node of forward."""
        if is_random(node):
            state = self.substitutes[node]
            again = recipes.draw_again(self.graph, node, state, self.copies.__getitem__)
            self.copies[node] = again
        elif self._is_missing(node):
            self.copies[node] = recipes.compute_again(self.graph, node, self.copies.__getitem__)

    def _is_missing(self, node: Node) -> bool:
        if node not in self.copies and node.op == "placeholder":
            raise CannotPartition(f"a graph needs {node.name}, which is not among its inputs")
        return node not in self.copies

    def results(self, nodes: Iterable[object]) -> list[object]:
        """Return the values of nodes here; other values unchanged."""
        return [self.copies[node] if isinstance(node, Node) else node for node in nodes]

    def saved(self, nodes: Iterable[Node]) -> list[object]:
        """Return the values that forward saves for nodes."""
        return [self.substitutes.get(node, self.copies[node]) for node in nodes]

    def finish(self, outputs: Sequence[object], descriptions: Sequence[object]) -> GraphModule:
        """Return the module, with the descriptions that AOTAutograd reads of its outputs."""
        output = self.graph.output(cast("Any", tuple(outputs)))
        output.meta["desc"] = list(descriptions)
        output.meta["output_stack_traces"] = [
            out.meta.get("stack_trace") if isinstance(out, Node) else None for out in outputs
        ]
        self.graph.lint()
        return GraphModule(self.info.joint, self.graph)


def _forward(info: NodeInfo, saved: Saved) -> GraphModule:
    effects = [n for n in info.nodes if is_effect(n) and n not in info.backward]
    inside = ancestors([*info.forward_outputs, *saved.values, *saved.drawn, *effects])
    nodes = [node for node in info.nodes if node in inside]
    graph = _Building(info)
    graph.append_inputs(info.forward_inputs)
    graph.copy_before(overwritten_inputs(info).intersection(saved.values))
    for node in move_getitems_up(nodes, all_operands):
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
    graph = _Building(info)
    graph.append_inputs((*saved.symbols, *saved.checked))
    graph.append_states(saved.drawn)
    graph.append_inputs((*saved.unchecked, *info.backward_inputs))
    nodes = find_backward_nodes(info, saved.values)
    for node in move_getitems_up(
        order_backward(nodes, info.backward, info.operands), info.operands
    ):
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
    """Return AOTAutograd's description of each output of the joint graph."""
    count = len(info.forward_outputs) + len(info.backward_outputs)
    described = info.joint.graph.output_node().meta.get("desc")
    return [None] * count if described is None else list(described)


def order_backward(
    nodes: Sequence[Node], backward: Collection[Node], operands: Operands
) -> list[Node]:
    """Return the nodes of a backward graph, each recomputed node right before its first user.

        joint: sin = sin(x); cos = cos(sin); mul = mul(tangents_2, y); neg = mul(mul, cos)
        backward, if x is saved: mul, sin, cos, neg: values live shortly

    Source: torch/_functorch, `reordering_to_mimic_autograd_engine` and `raise_getitems`. Differs:
    a list of nodes is ordered before the graph is built, instead of a graph rebuilt twice.

    Args:
        backward: Nodes that only backward can compute; they keep their order.
    """
    place = {node: index for index, node in enumerate(nodes)}
    done: dict[Node, None] = {}

    def missing(node: Node) -> Iterable[Node]:
        return (operand for operand in operands(node) if operand in place and operand not in done)

    for node in nodes:
        if node in backward:
            found = sorted(ancestors([node], missing), key=place.__getitem__)
            done |= dict.fromkeys(topological(found, operands))
    return [*done, *(node for node in nodes if node not in done)]


def move_getitems_up(nodes: Sequence[Node], operands: Operands) -> list[Node]:
    """Return nodes with each `getitem` right behind its operand, which is freed sooner."""
    takers: dict[Node, list[Node]] = {}
    inside = set(nodes)
    for node in nodes:
        if is_getitem(node) and [*operands(node)] == [node.args[0]] and node.args[0] in inside:
            takers.setdefault(node.all_input_nodes[0], []).append(node)
    moved = {taker for each in takers.values() for taker in each}
    ordered: list[Node] = []
    waiting = [node for node in reversed(nodes) if node not in moved]
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        waiting.extend(reversed(takers.get(node, [])))
    return ordered
