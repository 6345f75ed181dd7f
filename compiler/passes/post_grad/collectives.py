"""Functional collectives of a graph, and the merging of several into one.

    g = all_gather(x, 2, group); a = wait(g)        f = cat([x, y]); g = all_gather(f, 2, group)
    h = all_gather(y, 2, group); b = wait(h)   ->   w = wait(g); a, b = parts of w

A bucket holds collectives of one key (operator, group, reduction, dtype, device) that do not read
each other's results. All ranks trace the same graph, and the choice reads only the graph, so that
all ranks merge alike. The merged collective is in the place of the last one of its bucket, or in
front of the first reader of a result.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.collectives import ALL_GATHER, REDUCE_SCATTER, is_start, waits_of
from ctk.compiler.fx.effects import is_calm
from ctk.compiler.fx.order import sort_stably
from ctk.compiler.fx.properties import escapes
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.partition.costs import nbytes
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.process.process_groups import stand_in_for_group

aten = torch.ops.aten

_MEGABYTE = 1 << 20

Insert = Callable[..., Node]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective and its wait.

    Attributes:
        start: The node of the collective: its first argument is the operand.
        wait: The only user of `start`.
    """

    start: Node
    wait: Node

    @property
    def operand(self) -> Node:
        operand = self.start.args[0]
        assert isinstance(operand, Node)
        return operand

    @property
    def kind(self) -> str:
        return str(self.start.target)

    @property
    def key(self) -> object:
        """Collectives with equal keys can be merged."""
        value = tensor_of(self.operand)
        assert value is not None
        return (self.kind, self.start.args[1:], value.dtype, value.device)

    @property
    def nbytes(self) -> int:
        return max(nbytes(self.operand), nbytes(self.start))


def collectives_of(graph: Graph) -> Iterator[Collective]:
    """Yield the collectives of a graph that have one user, their wait."""
    for node in graph.nodes:
        if is_start(node) and isinstance(node.args[0], Node) and not node.kwargs:
            waits = waits_of(node)
            if len(waits) == len(node.users) == 1:
                yield Collective(node, waits[0])


def merge_collectives(rewriter: Rewriter, megabytes: Mapping[str, float]) -> None:
    """Merge the collectives of a graph, each bucket as one rewrite.

    Args:
        megabytes: The largest bucket, by kind; other kinds are not merged.
    """
    refused: set[tuple[str, ...]] = set()
    while True:
        buckets = _find_buckets(rewriter.graph, megabytes)
        names = {tuple(each.start.name for each in bucket): bucket for bucket in buckets}
        bucket = next((names[each] for each in names if each not in refused), None)
        if bucket is None:
            return
        if not _merge(rewriter, bucket):
            refused.add(tuple(each.start.name for each in bucket))


def _find_buckets(graph: Graph, megabytes: Mapping[str, float]) -> list[list[Collective]]:
    """Return the buckets of two and more collectives.

    A full one is followed by a new one, and so are those in front of a write or a mode.
    """
    found = {each.start: each for each in collectives_of(graph) if _is_mergeable(each, megabytes)}
    before: dict[Node, frozenset[Node]] = {}
    open_: dict[object, list[Collective]] = {}
    done: list[list[Collective]] = []
    for node in graph.nodes:
        before[node] = frozenset[Node]().union(*(before[each] for each in node.all_input_nodes))
        if not is_calm(node):
            open_.clear()
        if node not in found:
            continue
        each = found[node]
        bucket = open_.get(each.key)
        if bucket is None or not _fits(bucket, each, before[node], megabytes[each.kind]):
            bucket = open_[each.key] = []
            done.append(bucket)
        bucket.append(each)
        before[node] |= {node}
    return [bucket for bucket in done if len(bucket) > 1]


def _fits(
    bucket: Sequence[Collective], new: Collective, before: frozenset[Node], megabytes: float
) -> bool:
    """Return whether a bucket takes one more collective.

    Args:
        before: The collectives whose results the new one needs.
    """
    size = new.nbytes + sum(each.nbytes for each in bucket)
    is_independent = before.isdisjoint(each.start for each in bucket)
    return size <= megabytes * _MEGABYTE and is_independent


def _is_mergeable(collective: Collective, megabytes: Mapping[str, float]) -> bool:
    """Return whether sizes are known, and a flat copy of the operand is the same memory in order.

    Complex numbers are left alone: gloo and NCCL know them only as pairs.
    """
    value, result = tensor_of(collective.operand), tensor_of(collective.start)
    if collective.kind not in megabytes or value is None or result is None:
        return False
    return (
        not any(map(fake.is_symbolic, (*value.shape, *value.stride())))
        and value.numel() > 0
        and value.is_contiguous()
        and result.is_contiguous()
        and not value.is_complex()
    )


def _merge(rewriter: Rewriter, bucket: Sequence[Collective]) -> bool:
    first, last = bucket[0], bucket[-1]
    places = {node: place for place, node in enumerate(rewriter.graph.nodes)}
    wait = min((each.wait for each in bucket), key=places.__getitem__)
    ranks = _rows(first)

    def edit(graph: Graph) -> None:
        insert = rewriter.inserter(last.start)
        flat = [insert(aten.view.default, each.operand, [ranks, -1]) for each in bucket]
        rows = insert(aten.cat.default, flat, 1)
        start = insert(first.start.target, insert(aten.view.default, rows, [-1]), *_rest(first))
        insert = rewriter.inserter(max(wait, last.start, key=places.__getitem__))
        waited = insert(first.wait.target, start)
        for each, piece in zip(bucket, _pieces(insert, bucket, waited), strict=True):
            each.wait.replace_all_uses_with(piece)
            graph.erase_node(each.wait)
            graph.erase_node(each.start)
        sort_stably(graph)

    nodes = [node for each in bucket for node in (each.start, each.wait)]
    name = first.kind.split(".")[1]
    return rewriter.rewrite(f"{name} of several tensors -> {name} of one", nodes, edit)


def _rest(collective: Collective) -> tuple[object, ...]:
    return tuple(collective.start.args[1:])


def _rows(collective: Collective) -> int:
    """Return the number of rows of a flat operand: a reduce_scatter keeps one for each rank."""
    if collective.kind != REDUCE_SCATTER:
        return 1
    value, result = tensor_of(collective.operand), tensor_of(collective.start)
    assert value is not None
    assert result is not None
    return value.numel() // result.numel()


def _pieces(insert: Insert, bucket: Sequence[Collective], waited: Node) -> Iterator[Node]:
    """Yield the result of each collective, in memory of its own where the graph returns it."""
    sizes = [math.prod(shape) for shape in map(_shape, bucket)]
    value = tensor_of(bucket[0].operand)
    assert value is not None
    rows = sizes[0] // value.numel() if bucket[0].kind == ALL_GATHER else 1
    table = insert(aten.view.default, waited, [rows, -1])
    begin = 0
    for each, size in zip(bucket, sizes, strict=True):
        piece = insert(aten.slice.Tensor, table, 1, begin, begin + size // rows)
        if rows > 1 or escapes(each.wait):
            piece = insert(aten.clone.default, piece, memory_format=torch.contiguous_format)
        yield insert(aten.view.default, piece, list(_shape(each)))
        begin += size // rows


def _shape(collective: Collective) -> tuple[int, ...]:
    value = tensor_of(collective.start)
    assert value is not None
    return tuple(value.shape)


def gather(x: Tensor) -> Tensor:
    """Return an all_gather of an example."""
    return _in_example_group("all_gather_into_tensor", x, _SIZE)


def reduce(x: Tensor) -> Tensor:
    """Return an all_reduce of an example."""
    return _in_example_group("all_reduce", x, "sum")


def reduce_scatter(x: Tensor) -> Tensor:
    """Return a reduce_scatter of an example."""
    return _in_example_group("reduce_scatter_tensor", x, "sum", _SIZE)


_SIZE = 2


def _in_example_group(name: str, x: Tensor, *args: object) -> Tensor:
    """Call and wait for a collective of two ranks, of which only this one takes part."""
    operators = torch.ops._c10d_functional
    stand_in_for_group("ctk.examples", 0, _SIZE)
    return operators.wait_tensor(getattr(operators, name)(x, *args, "ctk.examples"))
