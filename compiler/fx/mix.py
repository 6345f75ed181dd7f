"""Build the graph between two versions: the graph before with only some of the hunks applied.

Each node has its definition of the graph before or after. For an operand that the mix lacks, the
substitution of its hunk gives the operand to read instead. With the two hunks of the example in
`diff`, and only the second one taken:

    mul   = mul(x, 2.0)         as before: its hunk was left out
    div_1 = div(x, 0.25)        created by the applied hunk
    add   = add(mul, div_1)     as before, except the operand that the applied hunk substituted
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from graphlib import CycleError

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module, copy_node, graph_module
from ctk.compiler.fx.diff import Hunk, find_substitutions, shape
from ctk.compiler.fx.walk import attribute_targets, attributes, by_name, topological
from ctk.compiler.torch_compat.fx import graphs


def apply_hunks(
    before: GraphModule,
    after: GraphModule,
    taken: Iterable[Hunk],
    hunks: Sequence[Hunk],
) -> GraphModule:
    """Return a new graph: `before` with only some of the changes made, and the same node names.

    Args:
        hunks: All hunks between the two (`diff_hunks`).

    Raises:
        RuntimeError: The subset has no consistent order.
    """
    definitions = _Definitions(before, after, set(taken), hunks)
    graph = Graph()
    made: dict[str, Node] = {}
    for name in _order(definitions, _ranks(before, after)):
        node, reads = definitions[name]
        made[name] = copy_node(graph, node, lambda n, reads=reads: made[reads[n.name]])
    graphs.copy_codegen(after.graph, graph)
    graph.lint()
    found = {**attributes(before), **attributes(after)}
    root = {target: _copy(found[target]) for target in attribute_targets(graph)}
    return graph_module(root, graph, like=after)


class _Definitions(dict[str, tuple[Node, dict[str, str]]]):
    """For each node, in order, created ones last: its definition, and new names of its operands."""

    def __init__(
        self, before: GraphModule, after: GraphModule, taken: Set[Hunk], hunks: Sequence[Hunk]
    ) -> None:
        self.old, self.new = by_name(before), by_name(after)
        left = [hunk for hunk in hunks if hunk not in taken]
        self.taken = {pair for hunk in taken for pair in hunk.substitutions}
        self.forward = dict(sorted(self.taken))
        self.backward = {b: a for hunk in left for a, b in reversed(hunk.substitutions)}
        self.erased = {name for hunk in taken for name in hunk.erased}
        self.left_out = {name for hunk in left for name in hunk.created}
        self.redefined = {name for hunk in taken for name in hunk.redefined}
        chosen = {name for hunk in taken for name in hunk.created}
        super().__init__({n: self._as_before(n) for n in self.old if n not in self.erased})
        self.update({n: self._as_after(n) for n in self.new if n in chosen | self.redefined})

    def _as_after(self, name: str) -> tuple[Node, dict[str, str]]:
        node = self.new[name]
        reads = [operand.name for operand in node.all_input_nodes]
        return node, {o: self.backward.get(o, o) if o in self.left_out else o for o in reads}

    def _as_before(self, name: str) -> tuple[Node, dict[str, str]]:
        node, newer = self.old[name], self.new.get(name)
        reads = [operand.name for operand in node.all_input_nodes]
        if newer is None or shape(node) != shape(newer):
            return node, {o: self.forward.get(o, o) if o in self.erased else o for o in reads}
        pairs = dict(pair for pair in find_substitutions(node, newer) if pair in self.taken)
        return node, {o: pairs.get(o, o) for o in reads}


def _order(definitions: _Definitions, rank: Mapping[str, float]) -> list[str]:
    """Return the names in topological order; otherwise inputs first, then by the original rank."""

    def key(name: str) -> tuple[int, float]:
        op = definitions[name][0].op
        if op == "placeholder":
            return (0, 0.0)  # in the order of the graph before: the sort is stable
        return (2 if op == "output" else 1, rank[name])

    try:
        return topological(sorted(definitions, key=key), lambda n: definitions[n][1].values())
    except CycleError as error:
        raise RuntimeError(
            f"these rewrites cannot be separated: cycle through {error.args[1][0]!r}"
        ) from error


def _ranks(before: GraphModule, after: GraphModule) -> Mapping[str, float]:
    """Return positions in `after`; a node of only `before` follows its predecessor there."""
    rank = {n.name: float(i) for i, n in enumerate(after.graph.nodes)}
    previous, step = -1.0, 1.0 / (len(before.graph.nodes) + 1)
    for node in before.graph.nodes:
        rank.setdefault(node.name, previous + step)
        previous = rank[node.name]
    return rank


def _copy(value: object) -> object:
    return copy_graph_module(value, lazy=True) if isinstance(value, GraphModule) else value
