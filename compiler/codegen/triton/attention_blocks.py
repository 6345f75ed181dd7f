"""Blocks of attention in Triton: where a program's block is, its listed blocks, loads and masks.

A program has a block of its own axis (of queries, or of keys) in `rows`, and loops over blocks of
the other axis in `columns`. Scores have a row for each position of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ctk.compiler.codegen.triton.body import Body
from ctk.compiler.codegen.triton.layout import Axis, Layout
from ctk.compiler.codegen.triton.ops import number_text
from ctk.compiler.codegen.triton.printed_values import Printed
from ctk.compiler.lowering.attention import LOG2_E, Attention, BlockList, scale_of, start_of
from ctk.compiler.lowering.ir import Load, Store, Value
from ctk.compiler.lowering.walk import Rewriting
from ctk.compiler.sizes.index import ZERO, Index, Var, of_atom
from ctk.compiler.sizes.size_guards import number_of

ONE_BLOCK = 1 << 24
"""A mask whose blocks are at least this long has one block: the whole axis."""

LOCALS = frozenset((
    "b", "h", "g", "program", "tiles", "tile", "steps", "step", "number", "rows", "columns",
    "queries", "keys", "values", "gradients", "logarithm", "delta", "dot", "product", "score",
    "high", "base", "scale", "weight", "gradient", "changed", "total", "largest", "result", "other",
    "divisor", "share",
))  # fmt: skip
"""The variables of the source, besides those of `Body`: no argument may be called so."""


@dataclass(frozen=True, slots=True)
class Listed(Axis):
    """An axis in listed blocks, which may reach over its end."""

    @property
    def whole(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Shape:
    """How many positions of its own and of the other axis a program has at once."""

    own: int
    other: int
    stages: int
    warps: int


def layout_for(kernel: Attention, shape: Shape, sizes: Mapping[str, int], *, wide: bool) -> Layout:
    """Return the blocks of a kernel, at most of a shape: they divide the blocks of the mask."""
    own, other = kernel.outer[-1], kernel.axes.n
    other = kernel.axes.m if own == other else other
    listed = kernel.blocks if own == kernel.axes.m else kernel.blocks[::-1]
    outer = Axis(own.name, (own,), _block(shape.own, own, listed[0], sizes), 0)
    length, each = other.size.number, listed[1].number or 0
    is_even = each >= ONE_BLOCK or (length is not None and length % each == 0)
    kind = Axis if is_even else Listed
    inner = kind(other.name, (other,), _block(shape.other, other, listed[1], sizes), 1, looped=True)
    grid = Axis("g", kernel.outer[:2], 1, 0), outer
    return Layout(grid, (inner,), rank=2, warps=shape.warps, wide=wide, stages=shape.stages)


def _block(most: int, loop: Var, listed: Index, sizes: Mapping[str, int]) -> int:
    """Return a power of two that divides the blocks of the mask, and is not far above the loop."""
    length = max(16, 1 << max(0, number_of(loop.size, sizes) - 1).bit_length())
    number = listed.number or 16
    return min(most, length, most if number >= ONE_BLOCK else number & -number)


class Blocks:
    """Prints the parts of a kernel that attention and its gradient have in common."""

    def __init__(self, kernel: Attention, layout: Layout, body: Body) -> None:
        self.kernel, self.axes, self.body = kernel, kernel.axes, body
        inner = layout.inner[0]
        assert inner is not None
        self.own, self.other = layout.grid[-1], inner
        self.loop_of = {axis.loops[0]: axis for axis in (self.own, self.other)}
        self.rewriting = Rewriting({loop: axis.number for loop, axis in self.loop_of.items()})
        self.wide = ".to(tl.int64)" if layout.wide else ""
        self.both = frozenset(("m", "n"))
        body.locals["dot"] = Printed("dot", self.both)
        listed = kernel.blocks if self.own.name == "m" else kernel.blocks[::-1]
        self.listed = listed[1].number or 0

    def size(self, size: Index) -> str:
        return self.body.positions.size(size)

    def line(self, text: str) -> None:
        """Add a line to the open loop."""
        assert self.body.code.loop is not None
        self.body.code.loop.lines.append(text)

    def value(self, value: Value) -> str:
        """Return a value, once the lines that compute it are printed."""
        return self.body.value(self.rewriting.value(value)).text

    def head(self) -> list[str]:
        """Return the lines that find the block of a program; the last blocks come first."""
        own, outer = self.own, self.kernel.outer[1]
        length, heads, name = self.size(own.numel), self.size(outer.size), own.name
        return [
            "program = tl.program_id(0)",
            f"tiles = ({length} + {own.block_name} - 1) // {own.block_name}",
            "tile = tiles - 1 - program % tiles",
            f"{outer.name} = (program // tiles % {heads}).to(tl.int64)",
            f"b = (program // (tiles * {heads})).to(tl.int64)",
            f"{name}start = tile * {own.block_name}",
            f"rows = {name}start + tl.arange(0, {own.block_name}){self.wide}",
            f"{own.index} = rows[:, None]",
            f"{own.mask} = {own.index} < {length}",
        ]

    def loop(self, blocks: BlockList, print_step: Callable[[], None]) -> list[str]:
        """Return the loop over listed blocks; `print_step` prints one iteration."""
        code, other = self.body.code, self.other
        code.open_loop(other)
        print_step()
        assert code.loop is not None
        lines = code.loop.lines
        code.loop = code.looped = None
        first, start, following = self._starts(blocks)
        return [
            f"steps = {self._steps(blocks)}",
            *first,
            "for step in tl.range(0, steps):",
            *indented(
                f"{other.start} = {start}",
                *following,
                f"columns = {other.start} + tl.arange(0, {other.block_name}){self.wide}",
                f"{other.index} = columns[None, :]",
                f"{other.mask} = {other.index} < {self.size(other.numel)}",
                *lines,
            ),
        ]

    def _steps(self, blocks: BlockList) -> str:
        count = f"tl.load({self._entry(blocks.count)})"
        if self.listed >= ONE_BLOCK:
            length, block = self.size(self.other.numel), self.other.block_name
            return f"tl.minimum({count}, 1) * (({length} + {block} - 1) // {block})"
        return f"{count} * {self.listed // self.other.block}"

    def _starts(self, blocks: BlockList) -> tuple[list[str], str, list[str]]:
        """Return the first position of a step, with lines before the loop and after it.

        A step loads the number of the next block: its own must not wait for memory.
        """
        block = self.other.block_name
        if self.listed >= ONE_BLOCK:
            return [], f"step * {block}", []
        pieces, at = self.listed // self.other.block, self._entry(blocks.block)
        start = f"number * {self.listed}"
        start += f" + step % {pieces} * {block}" if pieces > 1 else ""
        place = f"(step + 1) // {pieces}" if pieces > 1 else "step + 1"
        last = f"{self.size(self.axes.j.size)} - 1"
        return (
            [f"number = tl.load({at}, mask=steps > 0, other=0)"],
            start,
            [f"number = tl.load({at} + tl.minimum({place}, {last}))"],
        )

    def _entry(self, load: Load) -> str:
        """Return the address of an entry of a list, the first one for the block of a program."""
        start = of_atom(Var(self.own.start, self.own.numel))
        index = start_of(load, self.axes.j).substitute({self.own.loops[0]: start})
        return f"{self.address(load.buffer)} + ({self.size(index)})"

    def address(self, buffer: str) -> str:
        return self.body.positions.address(buffer)

    def score(self) -> str:
        """Return the score to base 2."""
        scale = scale_of(self.kernel.score)
        if scale is not None:
            return f"dot * {number_text(scale * LOG2_E, torch.float32)}"
        return f"{self.value(self.kernel.score)} * {LOG2_E}"

    def masks(self, *, is_masked: bool, own: bool = False) -> str:
        """Return the condition that a score counts; empty if all do."""
        masks = [self.value(self.kernel.mask)] if is_masked else []
        axes = (self.own, self.other) if own else (self.other,)
        masks += [axis.mask for axis in axes if not axis.whole]
        return " & ".join(masks)

    def matrix(self, load: Load, along: Var, parts: Var, *, across: bool = False) -> str:
        """Return the load of a block of positions and their parts; `across`: of its transpose."""
        slots = ("[:, None]", "[None, :]")
        row, part = slots[::-1] if across else slots
        lane = f"tl.arange(0, {padded(parts)}){part}"
        at, masks = self._place(load, along, row)
        step = self.size(load.index.factor_of(parts) or ZERO)
        return self._masked_load(f"{at} + {lane} * ({step})", [*masks, *self._parts(lane, parts)])

    def vector(self, load: Load, along: Var) -> str:
        """Return the load of a number for each position of an axis, as scores have them."""
        at, masks = self._place(
            load, along, "[:, None]" if along in self.own.loops else "[None, :]"
        )
        return self._masked_load(at, masks)

    def store(self, store: Store, text: str, along: Var, parts: Var | None = None) -> str:
        """Return the store of a result: of rows of numbers, or of a number for each row."""
        row = "" if parts is None else "[:, None]"
        at, masks = self._place(store, along, row)
        if parts is not None:
            lane = f"tl.arange(0, {padded(parts)})[None, :]"
            at += f" + {lane} * ({self.size(store.index.factor_of(parts) or ZERO)})"
            masks += self._parts(lane, parts)
        mask = f", mask={' & '.join(masks)}" if masks else ""
        kind = f"{self.address(store.buffer)}.dtype.element_ty"
        return f"tl.store({at}, ({text}).to({kind}){mask})  # {store.origin}"

    def _place(self, access: Load | Store, along: Var, slot: str) -> tuple[str, list[str]]:
        """Return the address of the first part at each position, and the mask of the axis."""
        axis, axes = self.loop_of[along], self.axes
        lanes = f"{'rows' if axis is self.own else 'columns'}{slot}"
        zeros = dict.fromkeys((along, axes.d, axes.e), ZERO)
        start = self.size(access.index.substitute(zeros))
        step = self.size(access.index.factor_of(along) or ZERO)
        masks = [] if axis.whole else [f"({lanes} < {self.size(axis.numel)})"]
        return f"{self.address(access.buffer)} + ({start}) + {lanes} * ({step})", masks

    def _parts(self, lane: str, parts: Var) -> list[str]:
        is_even = padded(parts) == parts.size.number
        return [] if is_even else [f"({lane} < {parts.size.number})"]

    @staticmethod
    def _masked_load(at: str, masks: list[str]) -> str:
        return f"tl.load({at}, mask={' & '.join(masks)}, other=0.0)" if masks else f"tl.load({at})"

    @property
    def precision(self) -> str:
        """The argument of a product: of float32 as torch's own setting has it."""
        is_exact = torch.get_float32_matmul_precision() == "highest"
        kind = "ieee" if self.kernel.query.dtype.itemsize < 4 or is_exact else "tf32"
        return f'input_precision="{kind}"'


def padded(parts: Var) -> int:
    """Return the size of a block of parts: a power of two, 16 at least."""
    number = parts.size.number
    assert number is not None
    return max(16, 1 << (number - 1).bit_length())


def indented(*lines: str) -> list[str]:
    """Return lines one level further in."""
    return [f"    {line}" for line in lines]
