"""Compute a large product, the loss behind it and their gradients in chunks of rows.

Rule, for a product `mm(x, w)` or `addmm(b, x, w)` with many more elements than its operands:
    loss(mm(x, w)) and its gradients -> for each chunk of the rows of `x`: the product, its part of
        the loss, and its part of the gradients of `x`, `w` and `b`
The logits of 8192 rows and 128,000 classes are 4 GB in float32, and so are the weights of the
softmax and the gradients of the logits. Here a chunk of each is alive at a time. Nothing is
computed twice: forward makes the gradients for a gradient of the loss of 1, and backward multiplies
them by the true one, a number that only backward knows.

    m = mm(x, w); p = log_softmax(m); l = nll_loss(p); dm = backward(dl, p); dw = mm(x.t(), dm)
    -> for each chunk:  m = mm(x[a:b], w); p = log_softmax(m); l += nll_loss(p)
                        dm = backward(1, p); dw += mm(x[a:b].t(), dm)
       in backward:     dw * dl

Each operator between the product and small results is one of `row_operators.py`: of any loss, with
a cap of the logits, weights, label smoothing, several losses. A pass over the graph finds them
(`split_region.py`), or the reason why some value needs all rows, which is noted.

Preconditions: on by `enabled` only; nothing else reads tensors of the size of the logits; gradients
of them are linear in one number, of which all gradients of results come; no size is a symbol; no
gradient is in float16, where that of a loss of 1 may be too small. Sums over chunks
are made in float32 or wider. Reassociates: the loss and the gradients are sums of the chunks' sums.

Source: Inductor's `auto_chunker`, with the same thresholds and its gradient of 1. It takes
decomposed operators, and gradients in float16 as well.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils.checkpoint import CheckpointPolicy

from ctk.compiler.fx.types import tensor_of
from ctk.compiler.partition.costs import nbytes, total_nbytes
from ctk.compiler.partition.roles import inherit_tags
from ctk.compiler.passes.joint.fold_uniform_values import FILLS, fill_value, number_of
from ctk.compiler.passes.joint.row_operators import (
    PRODUCTS,
    chunk_arguments,
    chunk_sizes,
    leading,
    loss_operands,
    reduction_of,
)
from ctk.compiler.passes.joint.split_region import Region, find_region
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.arguments import argument_of

aten = torch.ops.aten
_CHUNK = "chunk_of_rows"
"""The key in `meta` of the number of a product's chunk: a product of a chunk is not split again."""
_MEAN, _SUM = 1, 2


@dataclass(frozen=True, slots=True)
class ChunkLosses(Pass):
    """Compute a large product, the loss behind it and their gradients in chunks of rows.

    Attributes:
        enabled: Whether to do it.
        chunks: Number of chunks.
        min_nbytes: Skip a product of no more bytes.
        min_ratio: Skip a product of no more than this times the bytes of its operands.
    """

    name = "chunk_losses"
    numerics = "reassociates"
    enabled: bool = False
    chunks: int = 8
    min_nbytes: int = 2**20
    min_ratio: float = 8.0

    def __post_init__(self) -> None:
        if self.chunks < 2:
            raise ValueError("chunks is a number of chunks from 2")

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled:
            for node in rewriter.nodes():
                if node.target in PRODUCTS and node.users and self._is_large(node):
                    self._split(rewriter, node)

    def _is_large(self, node: Node) -> bool:
        tensor = tensor_of(node)
        if tensor is None or _CHUNK in node.meta or node.kwargs:
            return False
        if any(map(fake.is_symbolic, tensor.shape)):
            return False
        size = nbytes(node)
        operands = total_nbytes(node.all_input_nodes)
        return size > self.min_nbytes and size > self.min_ratio * operands

    def _split(self, rewriter: Rewriter, product: Node) -> None:
        region = find_region(rewriter.graph, product)
        if isinstance(region, str):
            rewriter.note(f"{product} is not computed in chunks: {region}")
            return
        rewriter.rewrite(
            "loss(mm(x, w)) -> chunks of rows",
            [product, *region.sinks],
            lambda graph: _Chunks(rewriter, region, self.chunks).replace(),
        )


class _Chunks:
    """The calls of all chunks of a region."""

    def __init__(self, rewriter: Rewriter, region: Region, chunks: int) -> None:
        self._rewriter = rewriter
        self._region = region
        self._place = region.sinks[0]
        self._size = -(-region.rows // chunks)
        self._bounds = (0, 0)
        self._values: dict[Node, Node] = {}  # of the current chunk
        self._whole: dict[object, Node] = {}  # of all rows, for a gradient of 1

    def replace(self) -> None:
        """Insert the calls, and put their results in the place of those of the region."""
        found: dict[Node, list[Node]] = {sink: [] for sink in self._region.sinks}
        for start in range(0, self._region.rows, self._size):
            self._bounds = start, min(start + self._size, self._region.rows)
            self._values.clear()
            for sink, parts in found.items():
                part = self._value(sink)
                is_sum = self._region.kinds[sink] == "sum"
                parts[:] = [self._add(part, *parts)] if is_sum else [*parts, part]
        for sink, parts in found.items():
            sink.replace_all_uses_with(self._result(sink, parts))
        graph = self._rewriter.graph
        for node in reversed(graph.nodes):
            if node in self._region.inner and not node.users:
                graph.erase_node(node)

    def _call(self, target: object, *args: object, **kwargs: object) -> Node:
        made = self._rewriter.insert(target, args, kwargs, before=self._place)
        inherit_tags(made, self._region.product)
        made.meta.pop("recompute", None)  # nothing is left to recompute
        return made

    def _add(self, part: Node, *total: Node) -> Node:
        """Return the sum of the parts so far and one more, of 16-bit floats in float32."""
        tensor = tensor_of(part)
        if tensor is not None and tensor.dtype == torch.bfloat16:
            part = self._call(aten._to_copy.default, part, dtype=torch.float32)
        return self._call(aten.add.Tensor, part, *total) if total else part  # part: an `addmm`

    def _value(self, node: Node) -> Node:
        """Return an operand or a result of the current chunk."""
        kind = self._region.kinds.get(node, "whole")
        if kind == "whole":
            return self._given(node)
        if node not in self._values:
            is_inner = node in self._region.inner
            self._values[node] = self._compute(node) if is_inner else self._slice(node, kind)
        return self._values[node]

    def _slice(self, node: Node, kind: str) -> Node:
        """Return the rows of the current chunk of a value that has all rows."""
        if kind == "turned":
            return self._call(aten.slice.Tensor, node, 1, *self._bounds)
        tensor, rows = tensor_of(node), self._region.rows
        assert tensor is not None  # it has rows
        if node not in self._whole:
            is_flat = leading(tensor.shape, rows) == 1
            sizes = chunk_sizes(tensor.shape, rows, rows)
            self._whole[node] = node if is_flat else self._call(aten.reshape.default, node, sizes)
        return self._call(aten.slice.Tensor, self._whole[node], 0, *self._bounds)

    def _compute(self, node: Node) -> Node:
        """Return the result of an inner node for the current chunk."""
        start, end = self._bounds
        tensor, rows = tensor_of(node), self._region.rows
        if node.target in FILLS:
            fill = fill_value(node)
            assert tensor is not None  # `split_of` has looked
            assert fill is not None
            options = {"dtype": tensor.dtype, "device": tensor.device}
            sizes = chunk_sizes(tensor.shape, rows, end - start)
            return self._call(aten.full.default, sizes, number_of(fill), **options)
        args, kwargs = chunk_arguments(node, rows, end - start, self._value)
        if node.target is aten.nll_loss_forward.default and reduction_of(node) == _MEAN:
            args = (*args[:3], _SUM, args[4])
        elif node.target is aten.nll_loss_backward.default:
            args = (*args[:6], self._total(node))
        elif node.target is aten.mean.default:
            count = tensor_of(node.all_input_nodes[0])
            assert count is not None  # it has rows
            total = self._call(aten.sum.default, *args, **kwargs)
            return self._call(aten.div.Tensor, total, count.numel())
        made = self._call(node.target, *args, **kwargs)
        if node.target in PRODUCTS:
            made.meta[_CHUNK] = start // self._size
        return made

    def _given(self, node: Node) -> Node:
        """Return a value that chunks read whole, computed for a gradient of 1."""
        if node not in self._region.scaled:
            return node
        if node not in self._whole:
            tensor = tensor_of(node)
            if node is self._region.scale and tensor is not None:
                options = {"dtype": tensor.dtype, "device": tensor.device}
                self._whole[node] = self._call(aten.full.default, [], 1, **options)
            else:
                args = map_arg(node.args, self._given)
                self._whole[node] = self._call(node.target, *args, **node.kwargs)
        return self._whole[node]

    def _total(self, loss: Node) -> Node:
        """Return the sum of the weights of all targets that count.

        `nll_loss_forward` returns it as well, but of one chunk, and after the product.
        """
        scores, target, weight = loss_operands(loss)
        ignored = argument_of(loss.target, loss.args, loss.kwargs, "ignore_index")
        key = target, weight, ignored
        if key not in self._whole:
            skipped = self._call(aten.eq.Scalar, target, ignored)
            if weight is None:
                counted = self._call(aten.logical_not.default, skipped)
            else:
                places = self._call(aten.masked_fill.Scalar, target, skipped, 0)
                weights = self._call(aten.gather.default, weight, 0, places)
                counted = self._call(aten.masked_fill.Scalar, weights, skipped, 0)
            dtype = getattr(tensor_of(scores), "dtype", None)
            self._whole[key] = self._call(aten.sum.default, counted, dtype=dtype)
        return self._whole[key]

    def _result(self, sink: Node, parts: Sequence[Node]) -> Node:
        """Return the result of all chunks, in backward times the gradient."""
        region, tensor = self._region, tensor_of(sink)
        assert tensor is not None  # a sink
        found = parts[0] if region.kinds[sink] == "sum" else self._call(aten.cat.default, parts)
        if leading(tensor.shape, region.rows) > 1 and region.kinds[sink] == "rows":
            found = self._call(aten.view.default, found, list(tensor.shape))
        if sink.target is operator.getitem and reduction_of(sink.all_input_nodes[0]) == _MEAN:
            total = self._total(sink.all_input_nodes[0])
            found = total if sink.args[1] else self._call(aten.div.Tensor, found, total)
        if sink in region.scaled:
            found.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            found = self._call_late(sink, aten.mul.Tensor, found, region.scale)
        made = tensor_of(found)
        if made is not None and made.dtype != tensor.dtype:
            found = self._call_late(sink, aten._to_copy.default, found, dtype=tensor.dtype)
        return found

    def _call_late(self, sink: Node, target: object, *args: object, **kwargs: object) -> Node:
        """Insert a call on the sink's side of the partition."""
        made = self._rewriter.insert(target, args, kwargs, before=sink)
        inherit_tags(made, sink)
        return made


def examples() -> list[Example]:
    """Return programs that the pass changes when it is on."""
    x, w, b = torch.ones(256, 2), torch.ones(1100, 2), torch.ones(1100)
    return [(_loss, (x, w)), (_gradients, (x, w)), (_biased, (x, w, b))]


def _loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (aten.mm.default(x, aten.t.default(w)) / 30).tanh().logsumexp(-1).square().mean()


def _gradients(x: torch.Tensor, w: torch.Tensor) -> object:
    scores = aten._softmax.default(aten.mm.default(x, aten.t.default(w)), 1, False)
    of_logits = aten._softmax_backward_data.default(scores.log(), scores, 1, torch.float32)
    turned = aten.t.default(of_logits)
    return scores.log().mean(), aten.mm.default(of_logits, w), aten.mm.default(turned, x)


def _biased(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> object:
    scores = aten._log_softmax.default(aten.addmm.default(b, x, aten.t.default(w)), 1, False)
    target = aten.argmax.default(x, 1)
    loss, total = aten.nll_loss_forward.default(scores, target, None, _MEAN, -100)
    return loss, total, scores.sum(0)


PASS = ChunkLosses()
