"""Pure predicates over a graph and its inputs: which structure, shape or value a failure needs.

Each is data (a name and plain arguments), so that a problem can be written to a folder and asked by
a stranger. This file needs torch only and is copied there as it is: `oracle.py`. Nothing is
compiled; those that look at values run the graph in eager.

    Reaches("relu", "gelu")(graph, inputs)   # does the value of relu reach gelu?
    predicate_of({"kind": "Reaches", "source": "relu", "sink": "gelu"})
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Interpreter, Node

Inputs = Sequence[object]
Predicate = Callable[[GraphModule, Inputs], bool]


def op_name(node: Node) -> str:
    """Return the name of what a call node calls (`relu` for `aten.relu.default` too), else ""."""
    if not node.op.startswith("call"):
        return ""
    target = getattr(node.target, "overloadpacket", node.target)
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def all_nodes(gm: GraphModule) -> Iterator[Node]:
    """Yield the nodes of a graph and of those inside it."""
    for module in gm.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def calls(gm: GraphModule, op: str) -> list[Node]:
    """Return the calls of an op in the outermost graph."""
    return [node for node in gm.graph.nodes if op_name(node) == op]


@dataclass(frozen=True, slots=True)
class HasOps:
    """Each of these ops is called, in any graph."""

    ops: tuple[str, ...]

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return set(self.ops) <= {op_name(node) for node in all_nodes(gm)}


@dataclass(frozen=True, slots=True)
class AtLeast:
    """An op is called so many times."""

    op: str
    count: int

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return sum(op_name(node) == self.op for node in all_nodes(gm)) >= self.count


@dataclass(frozen=True, slots=True)
class Reaches:
    """The result of one op is an operand of another, directly or through other nodes."""

    source: str
    sink: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        reached = reached_from(gm, calls(gm, self.source))
        return any(
            operand in reached for sink in calls(gm, self.sink) for operand in sink.all_input_nodes
        )


@dataclass(frozen=True, slots=True)
class Feeds:
    """The result of one op is itself an operand of another."""

    source: str
    sink: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return any(
            op_name(operand) == self.source
            for sink in calls(gm, self.sink)
            for operand in sink.all_input_nodes
        )


@dataclass(frozen=True, slots=True)
class Flows:
    """A change of the values of one op changes what another op reads.

    One unit is added to each element of the source's result; a path that a multiplication by zero
    interrupts is none.
    """

    source: str
    sink: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        sinks = calls(gm, self.sink)
        if not sinks or not calls(gm, self.source):
            return False
        before, after = (read_by(gm, inputs, sinks, self.source, by) for by in (0, 1))
        return any(not same(one, other) for one, other in zip(before, after, strict=True))


@dataclass(frozen=True, slots=True)
class Diamond:
    """A value goes two ways, through an op each, that another op joins."""

    source: str
    join: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        for join in calls(gm, self.join):
            arms = [node for node in join.all_input_nodes if op_name(node)]
            for source in calls(gm, self.source):
                reached = reached_from(gm, [source]) - {source}
                if sum(arm in reached for arm in arms) >= 2:
                    return True
        return False


@dataclass(frozen=True, slots=True)
class MutatedThenRead:
    """An op changes a value in place, and a later one reads the value itself, not its result."""

    mutator: str
    reader: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        changed: set[Node] = set()
        for node in gm.graph.nodes:
            if op_name(node) == self.reader and changed & set(node.all_input_nodes):
                return True
            if op_name(node) == self.mutator and node.args and isinstance(node.args[0], Node):
                changed.add(node.args[0])
        return False


@dataclass(frozen=True, slots=True)
class ReadsResult:
    """An op reads the n-th result of another that gives several."""

    source: str
    index: int
    reader: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return any(
            op_name(item) == "getitem"
            and item.args[1] == self.index
            and isinstance(item.args[0], Node)
            and op_name(item.args[0]) == self.source
            for reader in calls(gm, self.reader)
            for item in reader.all_input_nodes
        )


@dataclass(frozen=True, slots=True)
class InsideCall:
    """An op is called in a sub-graph that a call of `torch.cond` or the like runs."""

    caller: str
    op: str

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        for node in calls(gm, self.caller):
            for operand in node.all_input_nodes:
                inner = getattr(gm, str(operand.target), None) if operand.op == "get_attr" else None
                if isinstance(inner, GraphModule) and HasOps((self.op,))(inner, ()):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class DimAtLeast:
    """The first operand of an op has a dimension of at least this size."""

    op: str
    dim: int
    size: int

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return any(
            value.dim() > self.dim and value.shape[self.dim] >= self.size
            for value in first_operands(gm, inputs, self.op)
        )


@dataclass(frozen=True, slots=True)
class HasElement:
    """The first operand of an op has an element above a limit (or a NaN, if that is the limit).

    Attributes:
        least: How many elements the operand must have.
    """

    op: str
    above: float
    least: int = 1

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        return any(
            value.numel() >= self.least
            and bool((value.isnan() if math.isnan(self.above) else value > self.above).any())
            for value in first_operands(gm, inputs, self.op)
        )


@dataclass(frozen=True, slots=True)
class BigImage:
    """A convolution reads an image of at least so many elements (channels, height, width)."""

    elements: int

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        images = first_operands(gm, inputs, "conv2d")
        return any(math.prod(image.shape[-3:]) >= self.elements for image in images)


@dataclass(frozen=True, slots=True)
class StridedKernel:
    """A convolution has a kernel of at least this size and moves by at least this stride."""

    kernel: int
    stride: int

    def __call__(self, gm: GraphModule, inputs: Inputs) -> bool:
        found = False

        class Watch(Interpreter):
            def call_function(self, target, args, kwargs):
                nonlocal found
                if getattr(target, "__name__", "") == "conv2d":
                    stride = args[3] if len(args) > 3 else kwargs.get("stride", 1)
                    strides = (stride,) if isinstance(stride, int) else tuple(stride)
                    weight = args[1] if len(args) > 1 else kwargs["weight"]
                    is_large = min(weight.shape[2:]) >= limits.kernel
                    found = found or (is_large and min(strides) >= limits.stride)
                return super().call_function(target, args, kwargs)

        limits = self
        Watch(gm).run(*copies(inputs))
        return found


KINDS = (
    HasOps, AtLeast, Reaches, Feeds, Flows, Diamond, MutatedThenRead, ReadsResult, InsideCall,
    DimAtLeast, HasElement, BigImage, StridedKernel,
)  # fmt: skip


def description_of(predicate: Predicate) -> dict[str, object]:
    """Return a predicate as JSON values; NaN is the string `nan`."""
    fields = dataclasses.asdict(predicate)
    plain = {name: "nan" if value != value else value for name, value in fields.items()}
    return {"kind": type(predicate).__name__, **plain}


def predicate_of(description: Mapping[str, object]) -> Predicate:
    """Return the predicate that `description_of` has described."""
    kinds = {kind.__name__: kind for kind in KINDS}
    arguments = {name: value for name, value in description.items() if name != "kind"}
    plain = {
        name: math.nan if value == "nan" else tuple(value) if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    return kinds[description["kind"]](**plain)


def reached_from(gm: GraphModule, sources: Sequence[Node]) -> set[Node]:
    """Return these nodes and all that their values reach."""
    reached = set(sources)
    for node in gm.graph.nodes:
        if any(operand in reached for operand in node.all_input_nodes):
            reached.add(node)
    return reached


def copies(inputs: Inputs) -> list[object]:
    """Return inputs that a run may change."""
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in inputs]


def run(gm: GraphModule, inputs: Inputs) -> object:
    """Run a graph node by node, without gradients; unlike a call, an error prints nothing."""
    with torch.no_grad():
        return Interpreter(gm).run(*copies(inputs))


def first_operands(gm: GraphModule, inputs: Inputs, op: str) -> list[torch.Tensor]:
    """Return the tensors that the calls of an op get as their first operand."""
    if not calls(gm, op):
        return []
    return read_by(gm, inputs, calls(gm, op), first_only=True)


def read_by(
    gm: GraphModule,
    inputs: Inputs,
    readers: Sequence[Node],
    source: str = "",
    by: int = 0,
    *,
    first_only: bool = False,
) -> list[torch.Tensor]:
    """Return copies of the tensors that some nodes read in an eager run.

    Args:
        gm: Run once, with copies of the inputs.
        inputs: Only read.
        readers: The nodes.
        source: The op to whose results `by` is added.
        by: A number.
        first_only: Only the first operand of each.
    """
    seen: list[torch.Tensor] = []

    class Watch(Interpreter):
        def run_node(self, n):
            if n in readers:
                operands = n.all_input_nodes[:1] if first_only else n.all_input_nodes
                values = [self.env[operand] for operand in operands]
                seen.extend(v.detach().clone() for v in values if isinstance(v, torch.Tensor))
            value = super().run_node(n)
            return value + by if by and op_name(n) == source else value

    with torch.no_grad():
        Watch(gm).run(*copies(inputs))
    return seen


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape and values; a NaN equals a NaN."""
    return one.shape == other.shape and torch.allclose(
        one.double(), other.double(), rtol=0, atol=1e-9, equal_nan=True
    )
