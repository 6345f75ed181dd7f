"""The layout of a kernel: measured rules for block sizes and warps.

Their aims, on a device that is bound by memory:
    1. enough programs: some for each multiprocessor, so that none waits for the last
    2. enough bytes in flight: a thread has 16 bytes or more of each buffer at once
    3. one read: a row stays in registers up to 32,768 positions, 64 for each thread at most
    4. whole cache lines: blocks of 32 elements or more along the contiguous loop
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ctk.compiler.codegen.triton.attention_forward import attention_layout
from ctk.compiler.codegen.triton.layout import Axis, Layout, accesses_of, inner_loops
from ctk.compiler.codegen.triton.row_splitting import can_split
from ctk.compiler.codegen.triton.stacks import choose_by_place, flatten
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.walk import indices_of
from ctk.compiler.sizes.index import (
    ONE,
    ZERO,
    Atom,
    Extreme,
    Index,
    Indirect,
    Quotient,
    Remainder,
    Symbol,
    Var,
    product,
)
from ctk.compiler.sizes.size_guards import number_of

PROGRAMS = 1056
"""Of a kernel that is spread well: 8 for each of the 132 multiprocessors of an H200."""

FLAT_BLOCK = 1024
_LOOP_BLOCK = 4096
_COLUMNS = 128
_TILE = 64
_LEAST = 16
_UNKNOWN = 2**31
_ALONG = (ONE, -ONE)
_INT32 = 2**31 - 2**17  # a block beyond the last element must not overflow


@dataclass(frozen=True, slots=True)
class Knobs:
    """Deviations from the rules: factors on block sizes and warps, the longest row in registers."""

    block: int = 0  # powers of two
    warps: int = 0
    row_limit: int = 32768


def layout_of(
    kernel: Kernel,
    sizes: Mapping[str, int],
    knobs: Knobs | None = None,
) -> Layout:
    """Return the layout of a kernel; but for `wide`, it is right for all other sizes as well."""
    chosen = knobs or Knobs()
    wide = _is_wide(kernel, sizes)
    if isinstance(kernel, Attention):
        return attention_layout(kernel, sizes, wide=wide)
    if inner_loops(kernel.sweeps):
        return _rows(kernel, sizes, wide, chosen)
    across = _across(kernel)
    if across is not None:
        return _tile(kernel, across, wide)
    return _flat(kernel, sizes, wide, chosen)


def laid_out(kernel: Kernel) -> Kernel:
    """Return a kernel with the values and loops of a `stack` in a form for blocks."""
    kernel = choose_by_place(kernel)
    flat = flatten(kernel)
    return kernel if _across(flat) is None else flat


def chunk_length(kernel: Kernel, sizes: Mapping[str, int]) -> int | None:
    """Return into chunks of which length rows are to be split; None if they are to stay whole.

    They are split where there would be too few programs, and enough for each to do.
    """
    nests = inner_loops(kernel.sweeps)
    if not nests or not can_split(kernel) or kernel.device.type == "cpu":
        return None
    rows = _count(kernel.outer, sizes)
    longest = max(_count(nest, sizes) for nest in nests)
    by_column = _is_by_column(kernel) and rows > 1
    programs = -(-rows // 32) if by_column else rows
    enough, worth = (264, 1024) if by_column else (128, 32768)
    if rows == 0 or longest < worth or programs >= enough:
        return None
    if by_column:
        programs = -(-rows // _COLUMNS)  # as wide as they are once there are enough
    wanted = _clamp(_power(longest * programs // PROGRAMS), 64 if by_column else 1024, 8192)
    length = max(wanted, _power(-(-longest // 4096)))
    return length if length * 2 <= longest else None


def _flat(kernel: Kernel, sizes: Mapping[str, int], wide: bool, knobs: Knobs) -> Layout:
    numel = _count(kernel.outer, sizes)
    block = _clamp(_power(-(-numel // PROGRAMS)), 128, FLAT_BLOCK)
    if kernel.device.type == "cpu":
        block = _clamp(_power(numel), 128, FLAT_BLOCK * 4)
    block = _shifted(block, knobs.block)
    warps = _clamp(_shifted(block // 256, knobs.warps), 1, 16)
    axis = _axis("x", kernel.outer, block, place=0)
    return Layout((axis,), (None,) * len(kernel.sweeps), rank=1, warps=warps, wide=wide)


def _tile(kernel: Kernel, across: Var, wide: bool) -> Layout:
    last = _innermost(kernel.outer)
    lead = [loop for loop in kernel.outer if loop not in (*last, across)]
    y = _axis("y", (*lead, across), _TILE, place=0)
    x = _axis("x", last, _TILE if len(last) == 1 else 2 * _TILE, place=1)
    return Layout((y, x), (None,) * len(kernel.sweeps), rank=2, warps=8, wide=wide)


def _innermost(loops: tuple[Var, ...]) -> tuple[Var, ...]:
    """Return the last loops, as many as make a tile wide enough: a `stack` ends in a short one."""
    for count in range(1, len(loops)):
        width = product([loop.size for loop in loops[-count:]]).number
        if width is None or width >= _LEAST:
            return loops[-count:]
    return loops


def _rows(kernel: Kernel, sizes: Mapping[str, int], wide: bool, knobs: Knobs) -> Layout:
    nests = inner_loops(kernel.sweeps)
    rows = _count(kernel.outer, sizes)
    longest = max(_count(nest, sizes) for nest in nests)
    length = _power(longest)
    if _is_by_column(kernel) and rows > 1:
        xblock, blocks, warps = _columns(rows, length, _TILE if _is_along(kernel) else _COLUMNS)
    elif length <= knobs.row_limit:
        xblock, blocks = _few_rows(rows, length), length
        warps = _clamp(xblock * length // 512, 1, 16 if length < 16384 else 32)
    else:
        xblock, blocks = 1, min(_shifted(_LOOP_BLOCK, knobs.block), knobs.row_limit)
        warps = 16
    warps = _clamp(_shifted(warps, knobs.warps), 1, 32)
    x = _axis("x", kernel.outer, xblock, place=0)
    inner = {nest: _inner(n, nest, blocks, sizes) for n, nest in enumerate(nests)}
    axes = tuple(inner.get(sweep.inner) for sweep in kernel.sweeps)
    return Layout((x,), axes, rank=2, warps=warps, wide=wide)


def _columns(rows: int, length: int, widest: int) -> tuple[int, int, int]:
    xblock = _clamp(_power(-(-rows // 264)), 32, widest)
    xblock = min(xblock, _power(rows))
    return xblock, min(length, max(1, 4096 // xblock)), 8


def _few_rows(rows: int, length: int) -> int:
    """Return how many short rows a program takes: until they have 2,048 positions."""
    wanted = max(1, 2048 // length)
    return min(wanted, _power(max(1, rows // PROGRAMS)))


def _inner(number: int, nest: tuple[Var, ...], block: int, sizes: Mapping[str, int]) -> Axis:
    length = _power(_count(nest, sizes))
    name = "r" if number == 0 else f"r{number}"
    return Axis(name, nest, min(block, length), 1, looped=length > block)


def _axis(name: str, loops: tuple[Var, ...], block: int, place: int) -> Axis:
    is_single = product([loop.size for loop in loops]) == ONE
    return Axis(name, loops, 1 if is_single else block, place)


def _across(kernel: Kernel) -> Var | None:
    last = _innermost(kernel.outer)
    strided = [
        index
        for index in accesses_of(kernel)
        if any(_step(index, loop) not in (ZERO, *_ALONG) for loop in last)
    ]
    counts = {
        loop: sum(_step(index, loop) in _ALONG for index in strided)
        for loop in kernel.outer
        if loop not in last and (loop.size.number or _LEAST) >= _LEAST
    }
    best = max(counts, key=lambda loop: counts[loop], default=None)
    return best if best is not None and counts[best] else None


def _step(index: Index, loop: Var) -> Index | None:
    """Return the step of an access along a loop, as if no remainder wrapped around (a roll)."""
    flat = index.replace(lambda atom: atom.value if isinstance(atom, Remainder) else None)
    return flat.factor_of(loop)


def _is_by_column(kernel: Kernel) -> bool:
    """Return whether an access walks along memory with the outer loop, and jumps with rows.

    Row by row it would read a sector of memory for each number.
    """
    if not kernel.outer:
        return False
    return any(
        _step(index, kernel.outer[-1]) in _ALONG and moves and not moves.intersection(_ALONG)
        for index, moves in _moving(kernel)
    )


def _is_along(kernel: Kernel) -> bool:
    """Return whether an access of more than a row walks along memory with rows."""
    return any(
        moves.intersection(_ALONG) and _step(index, kernel.outer[-1]) != ZERO
        for index, moves in _moving(kernel)
    )


def _moving(kernel: Kernel) -> list[tuple[Index, set[Index | None]]]:
    """Return the accesses, each with its steps along the innermost loops of rows."""
    inner = [nest[-1] for nest in inner_loops(kernel.sweeps)]
    moves = [(index, {_step(index, loop) for loop in inner}) for index in accesses_of(kernel)]
    return [(index, found - {ZERO}) for index, found in moves]


def _is_wide(kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Return whether a position, or a part of one, may leave 32 bits."""
    nests = [kernel.outer, *inner_loops(kernel.sweeps)]
    if any(_count(nest, sizes) > _INT32 for nest in nests):
        return True
    return any(_most(index, sizes) > _INT32 for index in indices_of(kernel.statements))


def _most(index: Index, sizes: Mapping[str, int]) -> int:
    """Return an upper bound on the absolute value of each part of a sum."""
    return sum(
        abs(factor) * math.prod(_most_of(atom, sizes) for atom in monomial)
        for monomial, factor in index.terms
    )


def _most_of(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes.get(atom.name, _UNKNOWN)  # the size of the gathered dimension
    if isinstance(atom, (Var, Indirect)):
        return max(0, _most(atom.size, sizes) - 1)
    if isinstance(atom, Extreme):
        return max(_most(atom.left, sizes), _most(atom.right, sizes))
    value = _most(atom.value, sizes)
    if isinstance(atom, Quotient):
        return value // (atom.divisor.number or 1)
    return min(value, max(0, _most(atom.divisor, sizes) - 1))


def _count(loops: tuple[Var, ...], sizes: Mapping[str, int]) -> int:
    return number_of(product([loop.size for loop in loops]), sizes)


def _power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _shifted(value: int, by: int) -> int:
    return value << by if by >= 0 else max(1, value >> -by)
