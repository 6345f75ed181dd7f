"""Print pointwise loops some of whose loads and stores are transposed, tile by tile.

for (int64_t i_from = 0; i_from < n; i_from += 64)
    for (int64_t j_from = 0; j_from < n; j_from += 128) {
        _Alignas(64) float tile[64][128];
        transpose_32(tile, 128, &b[i_from + j_from*n], n, j_to - j_from, i_to - i_from);
        for (int64_t i = i_from; i < i_to; ++i)
            for (int64_t j = j_from; j < j_to; ++j)
                out[i*n + j] = a[i*n + j] + tile[i - i_from][j - j_from];
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.transpose import LINE, SIDE, Crossing
from ctk.compiler.codegen.c.types import C_TYPES, grouped, memory_type
from ctk.compiler.codegen.c.values import Block
from ctk.compiler.lowering.ir import Load, Store
from ctk.compiler.sizes.index import ONE, Var

_ALIGNED = f"_Alignas({LINE})"

_GAP = 16
"""Between rows of an array, so that they do not begin in the same set of lines of a cache."""


def print_tiles(
    printer: SweepPrinter,
    found: Crossing,
    loops: Sequence[Var],
    pragma: str,
    print_body: Callable[[], None],
) -> None:
    """Print loops in tiles; the outermost one gets the pragma."""
    values = printer.values
    steps = {found.across: found.rows, found.along: found.columns}
    others = [loop for loop in loops if loop not in steps]
    bounds: dict[Var, tuple[str, str]] = {}
    with ExitStack() as stack:
        for loop in others:
            stack.enter_context(printer.loop(loop, pragma=pragma))
            pragma = ""
        for loop, step in steps.items():
            name, size = values.names.of(loop.name), values.index(loop.size)
            piece = printer.pieces(name, size, step, pragma=pragma)
            bounds[loop] = stack.enter_context(piece)
            pragma = ""
        if found.in_squares:
            _print_squares(printer, found, bounds, print_body)
        else:
            _print_tile(printer, found, bounds, print_body)


def _print_tile(
    printer: SweepPrinter,
    found: Crossing,
    bounds: Mapping[Var, tuple[str, str]],
    print_body: Callable[[], None],
    side: int = 0,
) -> None:
    """Print one tile: its arrays, its loops over rows and columns; of at most `side` of each."""
    tiles = _Tiles(printer, found, bounds, side)
    tiles.load()
    (low, high), (start, stop) = bounds[found.across], bounds[found.along]
    with (
        printer.loop(found.across, start=low, stop=high) as rows,
        printer.loop(found.along, start=start, stop=stop, pragma="#pragma omp simd") as row,
    ):
        tiles.enter(row, rows.places[found.across], f"[{row.places[found.along]} - {start}]")
        print_body()
    tiles.store()


def _print_squares(
    printer: SweepPrinter,
    found: Crossing,
    bounds: Mapping[Var, tuple[str, str]],
    print_body: Callable[[], None],
) -> None:
    """Print a block in squares, the last ones of which may be smaller.

    if (i0_end - i0_at == 16 && i1_end - i1_at == 16) {
        float tile[16][16];
        transpose_sixteen_32(tile, 16, &b[i0_at + i1_at*n], n);
        for (int64_t row = 0; row < 16; ++row) {       // unrolled
            const int64_t i0 = i0_at + row;
            for (int64_t column = 0; column < 16; ++column) {
                const int64_t i1 = i1_at + column;
                out[i0*n + i1] = tile[row][column] + 1.0f;
    """
    names, inner = printer.values.names, dict[Var, tuple[str, str]]()
    with ExitStack() as stack:
        for loop, (low, high) in bounds.items():
            piece = printer.pieces(names.of(loop.name), high, SIDE, begin=low)
            inner[loop] = stack.enter_context(piece)
        full = " && ".join(f"{stop} - {start} == {SIDE}" for start, stop in inner.values())
        with printer.block(f"if ({full}) {{"):
            _print_square(printer, found, inner, print_body)
        if any(loop.size.number is None or loop.size.number % SIDE for loop in bounds):
            with printer.block(f"if (!({full})) {{"):
                _print_tile(printer, found, inner, print_body, SIDE)


def _print_square(
    printer: SweepPrinter,
    found: Crossing,
    bounds: Mapping[Var, tuple[str, str]],
    print_body: Callable[[], None],
) -> None:
    """Print a whole square, each of its loops from 0, so that compilers know how long it is."""
    tiles = _Tiles(printer, found, bounds, SIDE)
    tiles.load(whole=True)
    names = printer.values.names
    with ExitStack() as stack:
        counts: list[str] = []
        for loop, pragma in (
            (found.across, f"#pragma GCC unroll {SIDE}"), (found.along, "#pragma omp simd"),
        ):  # fmt: skip
            count, place = names.new(f"{loop.name}_in"), names.of(loop.name)
            head = f"for (int64_t {count} = 0; {count} < {SIDE}; ++{count}) {{"
            block = stack.enter_context(printer.block(head, is_loop=True, pragma=pragma))
            block.lines.append(f"const int64_t {place} = {bounds[loop][0]} + {count};")
            block.places[loop] = place
            counts.append(count)
        tiles.enter(block, counts[0], f"[{counts[1]}]", whole=True)
        print_body()
    tiles.store(whole=True)


def print_rows(
    printer: SweepPrinter,
    found: Sequence[tuple[Load, Var]],
    loop: Var,
    pragma: str,
    print_body: Callable[[], None],
) -> None:
    """Print a loop over rows, some of whose loads are first turned for a few rows at a time.

    for (int64_t i_from = 0; i_from < n; i_from += 16) {
        float rows[16][1024 + 16];
        transpose_32(rows, 1024 + 16, &x[i_from], n, 1024, i_to - i_from);
        for (int64_t i = i_from; i < i_to; ++i)
            for (int64_t r = 0; r < 1024; ++r)
                sum += rows[i - i_from][r];
    """
    values = printer.values
    each = {(values.numbers.of(load), row): load for load, row in found}
    count = LINE // min(load.dtype.itemsize for load in each.values())
    name, size = values.names.of(loop.name), values.index(loop.size)
    with printer.pieces(name, size, count, pragma=pragma) as (low, high):
        arrays: dict[tuple[int, Var], str] = {}
        for (number, row), load in each.items():
            arrays[number, row] = array = values.names.new("rows")
            length, bits = values.index(row.size), load.dtype.itemsize * 8
            gap = f"{length} + {_GAP}"
            ctype = memory_type(load.dtype)
            values.block.lines.append(f"{_ALIGNED} {ctype} {array}[{count}][{gap}];")
            start = values.address(load.buffer, load.index, {loop: low, row: "0"})
            step = load.index.factor_of(row)
            assert step is not None
            given = f"(const word_{bits}*){start}, {grouped(values.index(step))}"
            target = f"(word_{bits}*){array}, {gap}"
            values.block.lines.append(
                f"transpose_{bits}({target}, {given}, {length}, {high} - {low});"
            )
        with printer.loop(loop, start=low, stop=high) as inner:
            place = f"[{inner.places[loop]} - {low}]"
            for (number, row), load in each.items():
                is_bool = memory_type(load.dtype) != C_TYPES[load.dtype]
                code = f"{arrays[number, row]}{place}"
                printer.rows.setdefault(row, {})[number] = code, " != 0" if is_bool else ""
            print_body()
            printer.rows.clear()


class _Tiles:
    """The arrays of one tile: of loads, by their numbers, and of stores.

    They have the shape of the tiles found, or that of a square of a `side`.
    """

    def __init__(
        self,
        printer: SweepPrinter,
        found: Crossing,
        bounds: Mapping[Var, tuple[str, str]],
        side: int,
    ) -> None:
        self.printer = printer
        self.values = printer.values
        self.found = found
        self.bounds = bounds
        self.shape = (side, side) if side else (found.rows, found.columns)
        loads = {self.values.numbers.of(load): load for load in found.loads}
        self.loads = [(load, self._array(load)) for load in loads.values()]
        self.stores = [(store, self._array(store)) for store in found.stores]

    def load(self, *, whole: bool = False) -> None:
        """Print the copies of the loaded tiles."""
        for load, array in self.loads:
            memory, step, bits = self._corner(load)
            to = f"(word_{bits}*){array}, {self.shape[1]}"
            given = f"{to}, (const word_{bits}*){memory}, {step}"
            self._print(bits, given, self.found.along, whole=whole)

    def enter(self, row: Block, across: str, column: str, *, whole: bool = False) -> None:
        """Let the body read and write the arrays; those of a flipped access from their end.

        `across` counts from 0 in a whole square.
        """
        low, high = self.bounds[self.found.across]
        place, last = (across, SIDE - 1) if whole else (f"{across} - {low}", f"{high} - 1")
        for access, array in (*self.loads, *self.stores):
            at = f"{last} - {across}" if self._is_flipped(access) else place
            if isinstance(access, Load):
                self._name(row, access, f"{array}[{at}]{column}")
            else:
                self.printer.places[id(access)] = f"{array}[{at}]{column}"

    def store(self, *, whole: bool = False) -> None:
        """Print the copies of the stored tiles."""
        for store, array in self.stores:
            memory, step, bits = self._corner(store)
            given = f"(word_{bits}*){memory}, {step}, (const word_{bits}*){array}, {self.shape[1]}"
            self._print(bits, given, self.found.across, whole=whole)

    def _name(self, row: Block, load: Load, text: str) -> None:
        text = f"({text} != 0)" if memory_type(load.dtype) != C_TYPES[load.dtype] else text
        row.names[self.values.numbers.of(load)] = text

    def _print(self, bits: int, given: str, rows: Var, *, whole: bool) -> None:
        lines = self.values.block.lines
        if whole:
            lines.append(f"transpose_sixteen_{bits}({given});")
            return
        columns = self.found.across if rows == self.found.along else self.found.along
        counts = (f"{stop} - {start}" for start, stop in (self.bounds[rows], self.bounds[columns]))
        lines.append(f"transpose_{bits}({given}, {', '.join(counts)});")

    def _array(self, access: Load | Store) -> str:
        array = self.values.names.new("tile")
        ctype = memory_type(access.dtype if isinstance(access, Load) else access.value.dtype)
        shape = "".join(f"[{count}]" for count in self.shape)
        self.values.block.lines.append(f"{_ALIGNED} {ctype} {array}{shape};")
        return array

    def _corner(self, access: Load | Store) -> tuple[str, str, int]:
        """Return where a tile begins in memory, how far apart its rows are, and its bits."""
        places = {loop: bounds[0] for loop, bounds in self.bounds.items()}
        if self._is_flipped(access):
            places[self.found.across] = grouped(f"{self.bounds[self.found.across][1]} - 1")
        start = self.values.address(access.buffer, access.index, places)
        step = access.index.factor_of(self.found.along)
        assert step is not None
        dtype = access.dtype if isinstance(access, Load) else access.value.dtype
        return start, grouped(self.values.index(step)), dtype.itemsize * 8

    def _is_flipped(self, access: Load | Store) -> bool:
        return access.index.factor_of(self.found.across) != ONE
