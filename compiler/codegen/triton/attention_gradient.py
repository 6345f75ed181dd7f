"""The source of the gradient of attention in Triton: a program for each block of queries or keys.

    of queries:  a loop over keys       scores and products with a row for each query
    of keys:     a loop over queries    the same with a row for each key, for each head of a group

    weight = exp2(score - logarithm), or 0
    gradient = weight * (product - delta)               of the score
    changed = the gradient of dot                       values of the loop IR, as in other kernels
    result += changed @ keys or queries, other += weight @ gradients

Gradients of captured tensors are summed over a block as far as their place allows, and added
atomically.
"""

from ctk.compiler.codegen.triton.attention_blocks import Blocks, Shape, indented, padded
from ctk.compiler.codegen.triton.body import Body
from ctk.compiler.codegen.triton.layout import Layout
from ctk.compiler.codegen.triton.printed_values import Printed
from ctk.compiler.lowering.attention import Attention, AttentionGradient
from ctk.compiler.lowering.ir import Store


def gradient_shape(kernel: Attention) -> Shape:
    """Return how large the blocks of a gradient are."""
    parts = max(kernel.axes.d.size.number or 0, kernel.axes.e.size.number or 0)
    if kernel.query.dtype.itemsize > 2:
        return Shape(32, 32, 1, 4) if parts <= 64 else Shape(16, 16, 1, 4)
    if parts <= 64:
        return Shape(128, 64, 3, 8)
    return Shape(128, 64, 3, 8) if parts <= 128 else Shape(64, 32, 1, 4)


class GradientBlocks(Blocks):
    """One kernel on its way to source."""

    def __init__(self, kernel: AttentionGradient, layout: Layout, body: Body) -> None:
        super().__init__(kernel, layout, body)
        self.gradient = kernel
        body.locals["gradient"] = Printed("gradient", self.both)

    def lines(self) -> list[str]:
        kernel = self.gradient
        loops = self.loop(kernel.partial, lambda: self._step(is_masked=kernel.is_masked))
        if kernel.full is not None:
            loops += self.loop(kernel.full, lambda: self._step(is_masked=False))
        loops = [*self.body.code.top.lines, *loops]
        return [
            *self.head(),
            *(self._of_keys(loops) if kernel.is_of_keys else self._of_rows(loops)),
        ]

    def _of_rows(self, loops: list[str]) -> list[str]:
        """Return the lines around the loops of the gradient of queries."""
        axes, kernel = self.axes, self.gradient
        (store,) = (each for each in kernel.stores if each.mode == "set")
        return [
            f"queries = {self.matrix(kernel.query, axes.m, axes.d)}",
            f"gradients = {self.matrix(kernel.gradient, axes.m, axes.e)}",
            *self._statistics(),
            f"result = tl.zeros([MBLOCK, {padded(axes.d)}], tl.float32)",
            *loops,
            self.store(store, "result", axes.m, axes.d),
        ]

    def _of_keys(self, loops: list[str]) -> list[str]:
        """Return the lines around the loops of the gradients of keys and values."""
        axes, kernel = self.axes, self.gradient
        heads, share = kernel.heads
        first = f"h = {heads.name} * {share}"
        inside = [f"{first} + share", *loops]
        stores = [
            self.store(store, text, axes.n, parts)
            for store, text, parts in zip(
                kernel.stores, ("result", "other"), (axes.d, axes.e), strict=True
            )
        ]
        return [
            first,
            f"keys = {self.matrix(kernel.key, axes.n, axes.d)}",
            f"values = {self.matrix(kernel.value, axes.n, axes.e)}",
            f"result = tl.zeros([NBLOCK, {padded(axes.d)}], tl.float32)",
            f"other = tl.zeros([NBLOCK, {padded(axes.e)}], tl.float32)",
            *([f"for share in range(0, {share}):", *indented(*inside)] if share > 1 else loops),
            *stores,
        ]

    def _statistics(self) -> list[str]:
        """Return the lines that load the logarithm of a query's sum, and its delta."""
        kernel, m = self.gradient, self.axes.m
        return [
            f"logarithm = {self.vector(kernel.logarithm, m)}",
            'logarithm = tl.where(logarithm == float("-inf"), 0.0, logarithm)',
            f"delta = {self.vector(kernel.delta, m)}",
        ]

    def _step(self, *, is_masked: bool) -> None:
        """Print the lines of one block of the other axis."""
        kernel, axes, precision = self.gradient, self.axes, self.precision
        if kernel.is_of_keys:
            self.line(f"queries = {self.matrix(kernel.query, axes.m, axes.d)}")
            self.line(f"gradients = {self.matrix(kernel.gradient, axes.m, axes.e)}")
            for text in self._statistics():
                self.line(text)
            self.line(f"dot = tl.dot(keys, tl.trans(queries), {precision})")
            self.line(f"product = tl.dot(values, tl.trans(gradients), {precision})")
        else:
            self.line(f"keys = {self.matrix(kernel.key, axes.n, axes.d)}")
            self.line(f"values = {self.matrix(kernel.value, axes.n, axes.e)}")
            self.line(f"dot = tl.dot(queries, tl.trans(keys), {precision})")
            self.line(f"product = tl.dot(gradients, tl.trans(values), {precision})")
        score, masks = self.score(), self.masks(is_masked=is_masked, own=True)
        self.line(f"score = {score}")
        self.line(f"weight = {_where(masks, 'device.exp2(score - logarithm)')}")
        self.line("gradient = weight * (product - delta)")
        changed = self.value(kernel.change)
        self.line(f"changed = {_where(masks, changed)}")
        side = "queries" if kernel.is_of_keys else "keys"
        self.line(f"result = tl.dot(changed.to({side}.dtype), {side}, result, {precision})")
        if kernel.is_of_keys:
            weight = "weight.to(gradients.dtype)"
            self.line(f"other = tl.dot({weight}, gradients, other, {precision})")
        for store in kernel.scatters:
            self._scatter(store, masks)

    def _scatter(self, store: Store, masks: str) -> None:
        """Print an atomic sum, over the axes of the block on which its place does not depend."""
        positions = self.body.positions
        value = self.body.value(self.rewriting.value(store.value))
        index = self.rewriting.index(store.index)
        text = f"tl.broadcast_to({_where(masks, value.text)}, [{self._shape()}])"
        places = positions.index(index).axes
        for place, axis in enumerate((self.own, self.other)):
            if axis.name not in places:
                text = f"tl.sum({text}, {place}, keep_dims=True)"
        pointer, _ = positions.pointer(store.buffer, index, frozenset(places))
        sizes = [axis.block_name if axis.name in places else "1" for axis in (self.own, self.other)]
        at = f"tl.broadcast_to({pointer}, [{', '.join(sizes)}])"
        self.line(f"tl.atomic_add({at}, {text}{self._within(places)}, sem='relaxed')")

    def _within(self, places: frozenset[str]) -> str:
        """Return the mask of the places of a sum: within the axes on which they depend."""
        axes = [each for each in (self.own, self.other) if each.name in places and not each.whole]
        return f", mask={' & '.join(axis.mask for axis in axes)}" if axes else ""

    def _shape(self) -> str:
        return f"{self.own.block_name}, {self.other.block_name}"


def _where(masks: str, text: str) -> str:
    return f"tl.where({masks}, {text}, 0.0)" if masks else text
