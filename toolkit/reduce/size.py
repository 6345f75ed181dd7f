"""The total order on cases: it makes the result independent of the path.

Two cases are compared key by key (`KEYS`). A change that no key measures is never asked: a step
that simplifies something new needs a key that measures it.

    float64 x, 3 calls  >  float32 x, 3 calls  >  float64 x, 2 calls
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.walk import CALLS, fetch, flat, graphs_by_path, output_leaves, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import ContentCache
from ctk.toolkit.case.graphs.triton_kernels import portable_arguments
from ctk.toolkit.reduce.form_edits import CASTS
from ctk.toolkit.reduce.settings_edits import unusual_modes
from ctk.toolkit.reduce.value_edits import is_strided, tensors_of
from ctk.toolkit.targets import target_of

Size = tuple[int, ...]

DTYPES = (
    torch.float32, torch.int64, torch.bool, torch.int32, torch.float64, torch.bfloat16,
    torch.float16, torch.int8, torch.uint8, torch.int16, torch.complex64, torch.complex128,
)  # fmt: skip
"""Simplest first: the dtypes of `torch.randn` and `torch.arange`, then rarer ones."""


def size_of(case: Case) -> Size:
    """Return the size of a case without its values; sizes compare as tuples do."""
    graphs = graphs_by_path(case.graph).values()
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    return (
        sum(node.op in CALLS for node in nodes),
        len(graphs),
        len(output_leaves(case.graph)),
        len(placeholders(case.graph)),
        sum(size is not None for sizes in case.dynamic.values() for size in sizes),
        sum(tensor.numel() for tensor in _tensors(case)),
        len(nodes),
    )


def backward_of(case: Case) -> Size:
    """Return whether a backward pass runs."""
    return (int(case.modes.backward),)


def settings_of(case: Case) -> Size:
    """Return the number of passes that run, of options, and of unusual ambient modes."""
    passes = len(target_of(case.target).passes(case.config))
    options = [name for name in case.config if name != "disable"]
    return (passes, len(options), len(unusual_modes(case.modes)))


def dtypes_of(case: Case) -> Size:
    """Return how unusual the dtypes of inputs and constants are: the sum, then one by one."""
    ranks = [
        DTYPES.index(tensor.dtype) if tensor.dtype in DTYPES else len(DTYPES)
        for tensor in _tensors(case)
    ]
    return (sum(ranks), *ranks)


def devices_of(case: Case) -> Size:
    """Return how many inputs and constants are not on the CPU."""
    return (sum(tensor.device.type != "cpu" for tensor in _tensors(case)),)


def gradients_of(case: Case) -> Size:
    """Return how many inputs require gradients, and how many are parameters."""
    tensors = [value for value in case.inputs if isinstance(value, torch.Tensor)]
    parameters = sum(isinstance(tensor, torch.nn.Parameter) for tensor in tensors)
    return (sum(tensor.requires_grad for tensor in tensors), parameters)


def layouts_of(case: Case) -> Size:
    """Return how inputs and constants lie in memory: the sum, then one by one.

    0: contiguous, and nothing else in its storage; 1: another order of dimensions, without gaps;
    2: gaps, overlaps or a storage that holds more; 3: no strides at all.
    """
    ranks = [layout_rank(tensor) for tensor in _tensors(case)]
    return (sum(ranks), *ranks)


def arguments_of(case: Case) -> Size:
    """Return how complicated the literal arguments of all calls are, then how large their numbers.

    `ones(2, 2)` comes before `ones(3, 2)`, although there is as much to read; `x.float()` names a
    dtype as `x.to(torch.float32)` does.
    """
    nodes = (node for graph in graphs_by_path(case.graph).values() for node in graph.graph.nodes)
    calls = [(*portable_arguments(node), _cast_to(node)) for node in nodes if node.op in CALLS]
    each = [_complexity(arguments) for arguments in calls]
    return (sum(each), *each, *(sum(map(abs, _whole_numbers(arguments))) for arguments in calls))


def _cast_to(node: Node) -> torch.dtype | None:
    return CASTS.get(str(node.target)) if node.op == "call_method" else None


def values_of(case: Case, contents: ContentCache) -> Size:
    """Return the complexity of values (unbuildable, non-zeros, roughness), then by tensor."""
    ranks = [contents.of(tensor).rank for tensor in tensors_of(case).values()]
    sums = [sum(each) for each in zip(*ranks, strict=True)]
    return (*sums, *(number for rank in ranks for number in rank))


KEYS: tuple[Callable[[Case], Size], ...] = (
    backward_of,
    size_of,
    settings_of,
    dtypes_of,
    devices_of,
    gradients_of,
    layouts_of,
    arguments_of,
)
"""The keys, most important first; values come last (`values_of`)."""


@dataclass(slots=True)
class Measured:
    """A case with its sizes, each computed when a comparison first needs it.

    Attributes:
        contents: Caches contents of tensors; a caller with many cases keeps one.
    """

    case: Case
    contents: ContentCache = field(default_factory=ContentCache)
    sizes: list[Size] = field(default_factory=list[Size])

    def size(self, rank: int) -> Size:
        """Return the size by `KEYS[rank]`, or behind them by the values."""
        while (place := len(self.sizes)) <= rank:
            is_key = place < len(KEYS)
            size = KEYS[place](self.case) if is_key else values_of(self.case, self.contents)
            self.sizes.append(size)
        return self.sizes[rank]

    def __lt__(self, other: "Measured") -> bool:
        for rank in range(len(KEYS) + 1):
            mine, theirs = self.size(rank), other.size(rank)
            if mine != theirs:
                return mine < theirs
        return False


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of a case for people: the important part of `size_of`."""

    call_nodes: int
    inputs: int
    elements: int


def counts_of(case: Case) -> Counts:
    """Return call nodes (sub-graphs included), inputs, and the elements of all inputs."""
    elements = (value.numel() for value in case.inputs if isinstance(value, torch.Tensor))
    return Counts(call_nodes(case), len(placeholders(case.graph)), sum(elements))


def is_smaller(case: Case, other: Case) -> bool:
    """Return whether a case comes before another in the order of `KEYS`."""
    return Measured(case) < Measured(other)


def call_nodes(case: Case) -> int:
    """Return the number of call nodes, those in sub-graphs included."""
    graphs = graphs_by_path(case.graph).values()
    return sum(node.op in CALLS for graph in graphs for node in graph.graph.nodes)


def _tensors(case: Case) -> Iterator[torch.Tensor]:
    """Yield the tensors among the inputs, then the constants of graphs, by node."""
    yield from (value for value in case.inputs if isinstance(value, torch.Tensor))
    for graph in graphs_by_path(case.graph).values():
        for node in graph.graph.find_nodes(op="get_attr"):
            found = fetch(graph, str(node.target))
            if isinstance(found, torch.Tensor):
                yield found


def layout_rank(tensor: torch.Tensor) -> int:
    """Return how a tensor lies in memory, the simplest first: see `layouts_of`."""
    if not is_strided(tensor) or tensor.is_meta:
        return 3
    is_whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    if tensor.stride() == torch.empty(tensor.shape, device="meta").stride():
        return 0 if is_whole else 2
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    return 1 if is_whole and tensor.permute(order).is_contiguous() else 2


def _whole_numbers(argument: object) -> Iterator[int]:
    for leaf in flat(argument):
        if isinstance(leaf, slice):
            yield from _whole_numbers((leaf.start, leaf.stop, leaf.step))
        elif type(leaf) is int:
            yield leaf


def _complexity(argument: object) -> int:
    """Return the complexity of an argument for a reader; a node counts as a 0 does."""
    if isinstance(argument, (tuple, list)):
        items = cast("Sequence[object]", argument)
        return len(items) + sum(_complexity(item) for item in items)
    if isinstance(argument, Mapping):
        items = cast("Mapping[str, object]", argument).values()
        return sum(1 + _complexity(item) for item in items)
    if isinstance(argument, slice):
        return _complexity((argument.start, argument.stop, argument.step))
    if argument is None:
        return 0
    if isinstance(argument, Node):
        return 1
    if isinstance(argument, bool):
        return 1 + argument
    if isinstance(argument, int):
        return 1 + 2 * argument.bit_length() + (argument < 0)
    if isinstance(argument, float):
        is_whole = argument.is_integer()
        return 1 + _complexity(int(argument)) if is_whole else 64 + len(repr(argument))
    if isinstance(argument, torch.dtype):
        return 1 + (DTYPES.index(argument) if argument in DTYPES else len(DTYPES))
    return 1 + len(str(argument))
