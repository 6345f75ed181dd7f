"""The source of attention in Triton: a program for each block of queries, a loop over keys.

    for each listed block of keys, in pieces:
        dot = queries @ keys                          tl.dot
        score = change(dot), or -inf                  values of the loop IR, as in other kernels
        weight = exp2(score - largest)                an online softmax, to base 2
        result = result * scale + weight @ values     tl.dot
    result / total

The first loop is over blocks that need the mask, the second over full ones. Values that do not
depend on the keys are computed once, before the loops.
"""

from collections.abc import Mapping

from ctk.compiler.codegen.triton.attention_blocks import Blocks, Shape, layout_for, padded
from ctk.compiler.codegen.triton.attention_gradient import GradientBlocks, gradient_shape
from ctk.compiler.codegen.triton.body import Body
from ctk.compiler.codegen.triton.layout import Layout
from ctk.compiler.lowering.attention import Attention, AttentionGradient, BlockList


def attention_layout(kernel: Attention, sizes: Mapping[str, int], *, wide: bool) -> Layout:
    """Return the blocks of queries and keys, as they run fast on a Hopper GPU."""
    is_gradient = isinstance(kernel, AttentionGradient)
    shape = gradient_shape(kernel) if is_gradient else _shape(kernel)
    return layout_for(kernel, shape, sizes, wide=wide)


def _shape(kernel: Attention) -> Shape:
    parts = max(kernel.axes.d.size.number or 0, kernel.axes.e.size.number or 0)
    if kernel.query.dtype.itemsize > 2:
        return Shape(64, 32, 2, 4) if parts <= 128 else Shape(32, 16, 2, 4)
    if parts <= 64:
        return Shape(128, 128, 3, 4)
    return Shape(128, 64, 3, 8) if parts <= 128 else Shape(64, 32, 3, 4)


def attention_lines(kernel: Attention, layout: Layout, body: Body) -> list[str]:
    """Return the lines of a kernel; `body` prints its values."""
    if isinstance(kernel, AttentionGradient):
        return GradientBlocks(kernel, layout, body).lines()
    return _Forward(kernel, layout, body).lines()


class _Forward(Blocks):
    """Attention itself on its way to source."""

    def lines(self) -> list[str]:
        axes, kernel = self.axes, self.kernel
        loops = self._loop(kernel.partial, is_masked=kernel.is_masked)
        if kernel.full is not None:
            loops += self._loop(kernel.full, is_masked=False)
        return [
            *self.head(),
            f"queries = {self.matrix(kernel.query, axes.m, axes.d)}",
            'largest = tl.full([MBLOCK], float("-inf"), tl.float32)',
            "total = tl.zeros([MBLOCK], tl.float32)",
            f"result = tl.zeros([MBLOCK, {padded(axes.e)}], tl.float32)",
            *self.body.code.top.lines,
            *loops,
            "divisor = tl.where(total == 0.0, 1.0, total)",
            *self._stores(),
        ]

    def _loop(self, blocks: BlockList, *, is_masked: bool) -> list[str]:
        return self.loop(blocks, lambda: self._step(is_masked=is_masked))

    def _step(self, *, is_masked: bool) -> None:
        """Print the lines of one block of keys."""
        axes, kernel = self.axes, self.kernel
        self.line(f"keys = {self.matrix(kernel.key, axes.n, axes.d, across=True)}")
        self.line(f"dot = tl.dot(queries, keys, {self.precision})")
        score, masks = self.score(), self.masks(is_masked=is_masked)
        score = f'tl.where({masks}, {score}, float("-inf"))' if masks else score
        for text in (
            f"score = {score}",
            "high = tl.maximum(largest, tl.max(score, 1))",
            'base = tl.where(high == float("-inf"), 0.0, high)',
            "scale = device.exp2(largest - base)",
            "weight = device.exp2(score - base[:, None])",
            "total = total * scale + tl.sum(weight, 1)",
            "largest = high",
            *(self._products() if kernel.reads_values else ()),
        ):
            self.line(text)

    def _products(self) -> list[str]:
        """Return the lines that add the products of weights and values."""
        axes, kernel = self.axes, self.kernel
        return [
            "result = result * scale[:, None]",
            f"values = {self.matrix(kernel.value, axes.n, axes.e)}",
            f"result = tl.dot(weight.to(values.dtype), values, result, {self.precision})",
        ]

    def _stores(self) -> list[str]:
        axes = self.axes
        texts = ("result / divisor[:, None]", "largest + tl.log2(divisor)", "largest")
        found = [(self.kernel.store_of(place), text) for place, text in enumerate(texts)]
        return [
            self.store(store, text, axes.m, axes.e if text == texts[0] else None)
            for store, text in found
            if store is not None
        ]
