"""Find loads and stores that walk across the rows of memory where others walk along them.

    out[i*n + j] = a[i*n + j] + b[i + j*n]      the loop over `j` walks along `out` and `a`

The loop over `j` jumps through `b`. So the two loops run in tiles: a tile of `b` is first copied,
along its own rows, into a small array. Where fewer accesses are stores than loads, the loops walk
along the loads, and the array of a store is copied behind them. A tile of loads has some lines of
the cache in each of its rows of `b`, because lines that are fetched one after the other come
sooner; one of stores has a single line, and long rows, whose pages are read one after the other.
Where the statements are simple, a tile is a square of 16 rows, which stays in registers, and the
squares run in blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from ctk.compiler.codegen.c.loops import variables_of
from ctk.compiler.codegen.c.plan import cost_of
from ctk.compiler.lowering.ir import Guarded, Load, Statement, Store, Sweep
from ctk.compiler.lowering.walk import indirect, walk
from ctk.compiler.sizes.index import ONE, ZERO, Var

LINE = 64
"""Bytes of a line of the cache."""

_ROW = 128
"""Numbers in a row of a tile; fewer if there are many arrays."""

_ROWS = 64
"""Rows of a tile of loads."""

_BYTES = 32768
"""The arrays of a tile take no more of the nearest cache."""

_ROWS_BYTES = 1 << 18
"""The arrays of whole rows take no more of the second cache, and of the stack."""


SIDE = 16
"""Rows and columns of a square."""

_BLOCK = 128
"""Rows and columns of a block of squares: the lines of the cache that it touches stay near."""

_SIMPLE = 16
"""The price (`plan.cost_of`) of the statements that are written out for each row of a square."""

_NEAR = 4
"""Accesses that go on by no more numbers than this walk along memory: parts of a `stack` do."""

_JUMP = 8
"""The price of an access that jumps in each iteration; 1 is that of one made in tiles."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Accesses that are made a tile at a time.

    Attributes:
        across: The loop along which these accesses walk through memory.
        along: The loop along which the others do; the innermost.
        in_squares: Whether the statements are so simple that a tile stays in registers.
        rows: How many iterations of `across` a tile, or a block of squares, has.
        columns: How many of `along`.
    """

    across: Var
    along: Var
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    in_squares: bool

    @property
    def rows(self) -> int:
        if self.in_squares:
            return _BLOCK
        return _ROWS if self.loads else LINE // min(self._sizes)

    @property
    def columns(self) -> int:
        columns = _ROW
        if self.in_squares:
            return _BLOCK
        while columns > LINE // 4 and columns * self.rows * sum(self._sizes) > _BYTES:
            columns //= 2
        return columns

    @property
    def _sizes(self) -> list[int]:
        return list(map(_itemsize, (*self.loads, *self.stores)))


def crossing(loops: Sequence[Var], sweeps: Sequence[Sweep]) -> Crossing | None:
    """Return the accesses of pointwise loops that are best made in tiles, if there are any."""
    statements = [statement for sweep in sweeps for statement in sweep.statements]
    if len(loops) < 2 or not statements or not all(map(_is_plain, statements)):
        return None
    if any(sweep.inner for sweep in sweeps):
        return None
    if any(isinstance(value, Guarded) for value in walk(*statements)):
        return None
    accesses, long = list(_accesses(statements)), list(filter(_is_long, loops))
    is_simple = sum(map(cost_of, walk(*statements))) <= _SIMPLE
    best = min((_price_loop(accesses, loop) for loop in long), default=0.0)
    found: Crossing | None = None
    for across, along in permutations(long, 2):
        price, tiles = _price_tiles(accesses, across, along, is_simple=is_simple)
        if tiles is not None and price < best:
            best, found = price, tiles
    return found


def _price_loop(accesses: Sequence[Load | Store], loop: Var) -> float:
    """Return the price of accesses that are made without tiles, in a loop."""
    return _JUMP * sum(_jumps(access, loop) and not _is_near(access, loop) for access in accesses)


def _price_tiles(
    accesses: Sequence[Load | Store], across: Var, along: Var, *, is_simple: bool
) -> tuple[float, Crossing | None]:
    """Return the accesses that are made in tiles for two loops, and the price of all of them."""
    if any(access.index.factor_of(each) is None for access in accesses for each in (across, along)):
        return 0, None  # the loops are split first where a roll begins again
    inside = [access for access in accesses if _is_near(access, along)]
    jumps = [access for access in accesses if _jumps(access, along) and access not in inside]
    outside = [access for access in jumps if abs(_step(access, across)) == 1]
    if not outside or not any(across in variables_of(access.index) for access in inside):
        return 0, None
    stored = tuple(access for access in outside if isinstance(access, Store))
    loaded = tuple(access for access in outside if isinstance(access, Load))
    price = len(outside) + len(stored) / 2 + (len(jumps) - len(outside)) * _JUMP
    in_squares = (
        is_simple
        and all(abs(_step(access, along)) == 1 for access in inside)
        and all(SIDE * _itemsize(access) >= LINE for access in outside)
    )
    return price - len(inside) / 100, Crossing(across, along, loaded, stored, in_squares)


def turned_rows(loop: Var, sweeps: Sequence[Sweep]) -> list[tuple[Load, Var]]:
    """Return loads that walk across memory along the rows of sweeps, and along it over the rows.

    Sixteen rows or so of each are copied into an array before the sweeps over these rows.
    """
    statements = [statement for sweep in sweeps for statement in sweep.statements]
    if not _is_long(loop) or any(isinstance(value, Guarded) for value in walk(*statements)):
        return []
    found: list[tuple[Load, Var]] = []
    accesses = list(_accesses(statements))
    for sweep in sweeps:
        row = sweep.inner[0] if len(sweep.inner) == 1 else None
        mentioned = {id(value) for value in walk(*sweep.statements)}
        for access in accesses if row and _is_long(row) else ():
            if not row or not isinstance(access, Load) or id(access) not in mentioned:
                continue
            if _walks(access, loop) and _jumps(access, row):
                found.append((access, row))
    nbytes = sum(LINE * (row.size.number or _ROWS_BYTES) for _, row in found)
    return found if nbytes <= _ROWS_BYTES else []


def _accesses(statements: Sequence[Statement]) -> Iterator[Load | Store]:
    """Yield the loads and stores that may be made for a tile at once."""
    stores = [statement for statement in statements if isinstance(statement, Store)]
    written = {store.buffer for store in stores}
    yield from (store for store in stores if not indirect(store.index))
    for value in walk(*statements):
        if isinstance(value, Load) and value.buffer not in written and not indirect(value.index):
            yield value


def _is_plain(statement: Statement) -> bool:
    return isinstance(statement, Store) and statement.mode == "set" and statement.guard is None


def _step(access: Load | Store, loop: Var) -> int:
    """Return how far an access goes on in memory with a loop; 0 also if it is not known."""
    factor = access.index.factor_of(loop)
    return (factor.number or 0) if factor is not None else 0


def _itemsize(access: Load | Store) -> int:
    return (access.dtype if isinstance(access, Load) else access.value.dtype).itemsize


def _is_near(access: Load | Store, loop: Var) -> bool:
    return 0 < abs(_step(access, loop)) <= _NEAR


def _walks(access: Load | Store, loop: Var) -> bool:
    return access.index.factor_of(loop) == ONE


def _jumps(access: Load | Store, loop: Var) -> bool:
    """Return whether an access goes through memory in steps of one length other than 1."""
    return access.index.factor_of(loop) not in (None, ZERO, ONE)


def _is_long(loop: Var) -> bool:
    return loop.size.number is None or loop.size.number >= LINE // 4
