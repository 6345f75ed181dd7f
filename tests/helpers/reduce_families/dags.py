"""Random graphs of mixed shapes and dtypes with culprits in them.

A graph grows node by node, each run as it is added, so that shapes fit and no value is NaN. Ops:
unary and binary elementwise, `where`, products, reshapes, transposes, sums, expansions, joins and
casts between float32 and float64. Most nodes read one of the last values, or one that nobody has
read, so that the graph is deep and has few ends.
"""

import random
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

LARGEST = 256
"""Elements of a value."""


class Dag:
    """A graph that grows; every node's value is known.

    Attributes:
        values: The value of each node that may be read.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph, self.inputs = Graph(), list[Tensor]()
        self.values: dict[Node, Tensor] = {}
        generator = torch.Generator().manual_seed(seed)
        for number, shape in enumerate(((4, 6), (6, 4), (2, 3, 4), (8,))):
            node = self.graph.placeholder(f"x{number}")
            self.inputs.append(torch.randn(shape, generator=generator))
            self.values[node] = self.inputs[-1]

    def call(self, target: Callable[..., Tensor] | str, *args: object) -> Node:
        """Add a call of a function or of a method, and run it."""
        kind = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(kind, target, args)
        run = torch.fx.node.map_arg(args, self.values.__getitem__)
        function = getattr(torch.Tensor, target) if isinstance(target, str) else target
        self.values[node] = function(*run)
        return node

    def any_value(self) -> Node:
        """Return a recent value, or one that nobody has read."""
        nodes = [node for node, value in self.values.items() if value.is_floating_point()]
        unread = [node for node in nodes if not node.users]
        recent = nodes[-6:]
        return self.random.choice(unread if unread and self.random.random() < 0.7 else recent)

    def grow(self) -> Node:
        """Add one random node."""
        source = self.any_value()
        value = self.values[source]
        if value.abs().max() > 8:
            return self.call(torch.tanh, source)
        options = [option for option in OPTIONS if option.fits(self, source)]
        return self.random.choice(options).add(self, source)

    def like(self, node: Node) -> list[Node]:
        """Return recent values of the same shape and dtype, if only the value itself."""
        wanted = self.values[node]
        recent = list(self.values.items())[-40:]
        found = [
            other
            for other, value in recent
            if value.shape == wanted.shape and value.dtype == wanted.dtype
        ]
        return found or [node]

    def finished(self) -> tuple[GraphModule, tuple[object, ...]]:
        """Return the graph, whose results are all values that nobody reads, and its inputs."""
        ends = [node for node in self.values if not node.users and node.op != "placeholder"]
        self.graph.output(tuple(ends))
        self.graph.lint()
        return GraphModule(torch.nn.Module(), self.graph), tuple(self.inputs)


class Option:
    """One way to grow a graph."""

    def __init__(self, add: Callable[[Dag, Node], Node], fits: Callable[[Dag, Node], bool]) -> None:
        self.add, self.fits = add, fits


def _unary(dag: Dag, source: Node) -> Node:
    return dag.call(dag.random.choice((torch.sin, torch.cos, torch.tanh, torch.sigmoid)), source)


def _binary(dag: Dag, source: Node) -> Node:
    op = dag.random.choice((torch.add, torch.mul, torch.maximum))
    return dag.call(op, source, dag.random.choice(dag.like(source)))


def _where(dag: Dag, source: Node) -> Node:
    other = dag.random.choice(dag.like(source))
    return dag.call(torch.where, dag.call(torch.gt, source, 0), source, other)


def _product(dag: Dag, source: Node) -> Node:
    return dag.call(torch.matmul, source, dag.call(torch.transpose, source, -1, -2))


def _reshape(dag: Dag, source: Node) -> Node:
    count = dag.values[source].numel()
    rows = dag.random.choice([n for n in range(1, count + 1) if count % n == 0])
    return dag.call(torch.reshape, source, (rows, count // rows))


def _transpose(dag: Dag, source: Node) -> Node:
    return dag.call("transpose", source, 0, 1)


def _sum(dag: Dag, source: Node) -> Node:
    dim = dag.random.randrange(dag.values[source].dim())
    return dag.call(torch.sum, source, dim, dag.random.random() < 0.5)


def _expand(dag: Dag, source: Node) -> Node:
    return dag.call("expand", dag.call(torch.unsqueeze, source, 0), 3, *dag.values[source].shape)


def _cat(dag: Dag, source: Node) -> Node:
    return dag.call(torch.cat, [source, dag.random.choice(dag.like(source))], 0)


def _cast(dag: Dag, source: Node) -> Node:
    is_double = dag.values[source].dtype == torch.float64
    return dag.call("to", source, torch.float32 if is_double else torch.float64)


def _has(*, dims: int = 0, most: int = LARGEST, least: int = 1) -> Callable[[Dag, Node], bool]:
    def fits(dag: Dag, node: Node) -> bool:
        value = dag.values[node]
        return value.dim() >= dims and least <= value.numel() <= most

    return fits


OPTIONS = (
    Option(_unary, _has()), Option(_unary, _has()), Option(_binary, _has()),
    Option(_binary, _has()), Option(_where, _has()),
    Option(_product, lambda dag, node: _has(dims=2)(dag, node) and _is_small_product(dag, node)),
    Option(_reshape, _has()), Option(_transpose, _has(dims=2)),
    Option(_sum, _has(dims=1, least=12)), Option(_expand, _has(most=LARGEST // 4)),
    Option(_cat, _has(dims=1, most=LARGEST // 2)), Option(_cast, _has()),
)  # fmt: skip


def _is_small_product(dag: Dag, node: Node) -> bool:
    shape = dag.values[node].shape
    return shape[-2] ** 2 * (dag.values[node].numel() // max(1, shape[-2] * shape[-1])) <= LARGEST


def scattered(
    size: int, seed: int, culprits: Sequence[Callable[[Tensor], Tensor]]
) -> tuple[GraphModule, tuple[object, ...]]:
    """Return a graph that calls each of the culprits once, anywhere."""
    dag = Dag(seed)
    places = sorted(dag.random.sample(range(size), len(culprits)))
    due = list(zip(places, culprits, strict=True))
    for at in range(size):
        if due and due[0][0] == at:
            dag.call(due.pop(0)[1], dag.any_value())
        elif at > len(dag.graph.nodes) - len(dag.inputs) - 1:  # some options add two nodes
            dag.grow()
    return dag.finished()


def feeding(size: int, seed: int) -> tuple[GraphModule, tuple[object, ...]]:
    """Return a graph in which `relu` at a quarter reaches `gelu` at three quarters.

    Shapes differ between the two, and a change of the one's values changes what the other reads.
    """
    dag = Dag(seed)
    while len(dag.values) < size // 4:
        dag.grow()
    source = dag.call(torch.relu, dag.any_value())
    reached = _Reached(dag, source)
    while len(dag.values) < 3 * size // 4:
        dag.grow()
    sinks = reached.other_shapes()
    if not sinks:  # its values have died out: plant another
        return feeding(size, seed + 10_007)
    dag.call(F.gelu, sinks[-1])
    while len(dag.values) < size:
        dag.grow()
    return dag.finished()


class _Reached:
    """Which values depend on one, seen by running the graph with others."""

    def __init__(self, dag: Dag, source: Node) -> None:
        self.dag, self.source = dag, source

    def other_shapes(self) -> list[Node]:
        changed = self._values_with(1)
        shape = self.dag.values[self.source].shape
        return [
            node
            for node, value in changed.items()
            if value.shape != shape
            and value.dtype.is_floating_point
            and not torch.allclose(value, self.dag.values[node], rtol=1e-3, atol=1e-3)
        ]

    def _values_with(self, by: int) -> Mapping[Node, Tensor]:
        """Return the values that depend on the source if `by` is added to it."""
        values: dict[Node, Tensor] = {self.source: self.dag.values[self.source] + by}
        for node in self.dag.graph.nodes:
            if node is self.source or not any(n in values for n in node.all_input_nodes):
                continue
            args = torch.fx.node.map_arg(node.args, lambda n: values.get(n, self.dag.values[n]))
            is_method = node.op == "call_method"
            function = getattr(torch.Tensor, node.target) if is_method else node.target
            values[node] = function(*args)
        return values
