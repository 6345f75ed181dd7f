"""Print the sweeps of a kernel: loops around statements.

A kernel is printed row by row, or, where neighbours in memory belong to different results, a tile
of columns at a time: then `lanes` is a loop over the tile, and results are arrays of its width.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from ctk.compiler.codegen.c.half_rows import PIECE, ROW, Halves, halves_of, wide_row
from ctk.compiler.codegen.c.operations import cast_code
from ctk.compiler.codegen.c.row_cache import LONGEST
from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES, grouped, is_narrow
from ctk.compiler.codegen.c.values import Block, Values
from ctk.compiler.lowering.ir import Load, Op, Statement, Store, Sweep, Value
from ctk.compiler.lowering.walk import walk
from ctk.compiler.sizes.index import Var


@dataclass(frozen=True, slots=True)
class Tile:
    """Columns that are computed side by side."""

    var: Var
    start: str
    stop: str
    width: int


class SweepPrinter:
    """Prints statements, and the loops around them, into the block that is open.

    `places` are the C code of places, by the ids of stores, that stand for places in memory; `rows`
    that of arrays, by loops and by the numbers of the loads that they stand for, and a test.
    """

    def __init__(self, values: Values, is_apart: Callable[[Var], bool]) -> None:
        self.values = values
        self.is_apart = is_apart
        self.tile: Tile | None = None
        self.places: dict[int, str] = {}
        self.rows: dict[Var, dict[int, tuple[str, str]]] = {}
        self._of_tile: dict[str, str] = {}
        self._kept: dict[int, Value] = {}
        self._arrays: dict[int, tuple[str, Var]] = {}
        self._targets: dict[int, str] = {}
        self._wide: dict[int, tuple[str, Var]] = {}
        self._row = values.block

    @contextmanager
    def block(self, head: str, *, is_loop: bool = False, pragma: str = "") -> Generator[Block]:
        """Print a block around all lines that are printed within the `with` statement."""
        outer = self.values.block
        inner = Block(outer, is_loop=is_loop)
        self.values.block = inner
        yield inner
        self.values.block = outer
        outer.lines += [pragma] if pragma else []
        outer.lines += [head, *(f"    {line}" for line in inner.lines), "}"]

    @contextmanager
    def loop(
        self, var: Var, *, start: str = "0", stop: str = "", pragma: str = ""
    ) -> Generator[Block]:
        """Print a loop over a variable, by default from 0 to its size."""
        name = self.values.names.of(var.name)
        end = stop or self.values.index(var.size)
        head = f"for (int64_t {name} = {start}; {name} < {end}; ++{name}) {{"
        with self.block(head, is_loop=True, pragma=pragma) as inner:
            inner.places[var] = name
            for number, (row, test) in self.rows.get(var, {}).items():
                inner.names[number] = f"({row}[{name}]{test})"
            yield inner

    @contextmanager
    def pieces(
        self, name: str, size: str, step: int, *, begin: str = "0", pragma: str = ""
    ) -> Generator[tuple[str, str]]:
        """Print a loop over pieces of at most `step`; gives the bounds of a piece."""
        names = self.values.names
        start, stop = names.new(f"{name}_from"), names.new(f"{name}_to")
        head = f"for (int64_t {start} = {begin}; {start} < {size}; {start} += {step}) {{"
        with self.block(head, is_loop=True, pragma=pragma) as inner:
            end = f"{start} + {step}"
            if not size.isdigit() or int(size) % step:
                end = f"{end} < {size} ? {end} : {size}"
            inner.lines.append(f"const int64_t {stop} = {end};")
            yield start, stop

    @contextmanager
    def simd(
        self,
        var: Var,
        statements: Sequence[Statement],
        *,
        start: str = "0",
        stop: str = "",
        pragma: str = "",
        longest: int = ROW,
    ) -> Generator[Block]:
        """Print a loop whose iterations are lanes; float16 is converted apart from it, in pieces.

        Args:
            var: The variable of the loop.
            statements: The statements that will be printed in it.
            start: Its first value.
            stop: The value behind its last; by default its size.
            pragma: Of the loop; one on several threads shares the pieces among them.
            longest: A row of more numbers is converted in pieces.
        """
        values, end = self.values, stop or self.values.index(var.size)
        found = halves_of(var, statements, values.written)
        if values.faults.limits or "simd" not in pragma or not found:
            with self.loop(var, start=start, stop=end, pragma=pragma) as inner:
                yield inner
            return
        with ExitStack() as stack:
            most = self.tile.width if self.tile else int(end) if end.isdigit() else longest + 1
            fresh = self._unknown(found, var)
            if most > longest and (fresh or found.stores):
                most, shared = PIECE, "parallel for" in pragma
                outer = pragma.replace(" simd", "") if shared else ""
                pragma = "#pragma omp simd" if shared else pragma
                piece = self.pieces(
                    values.names.of(var.name), end, PIECE, begin=start, pragma=outer
                )
                start, end = stack.enter_context(piece)
            outside, count = values.block, end if start == "0" else f"{end} - {start}"
            kept = {number: array for number, (array, of) in self._wide.items() if of == var}
            arrays = self._widen(fresh, var, (start, count), most)
            targets = [(s, values.names.new(f"{s.buffer}_wide")) for s in found.stores]
            outside.lines += [wide_row(array, most) for _, array in targets]
            with self.loop(var, start=start, stop=end, pragma=pragma) as inner:
                at = inner.places[var]
                place = at if start == "0" else f"{at} - {start}"
                rows = {number: f"{array}[{at}]" for number, array in kept.items()}
                rows |= {number: f"{array}[{place}]" for number, array in arrays.items()}
                used = [n for n in map(values.numbers.of, dict(found.loads)) if n in rows]
                for number in dict.fromkeys(used):
                    inner.names[number] = name = values.names.new("v")
                    inner.lines.append(f"const float {name} = {rows[number]};")
                self._targets = {id(store): f"{array}[{place}]" for store, array in targets}
                yield inner
                self._targets = {}
            for store, array in targets:
                corner = values.address(store.buffer, store.index, {var: start})
                outside.lines.append(f"narrow_f16({corner}, {array}, {count});")

    def _unknown(self, found: Halves, var: Var) -> dict[int, Load]:
        """Return the loads to convert, by the number of the cast, each once."""
        known, numbers = self.values.known(), self.values.numbers
        known |= {number for number, (_, of) in self._wide.items() if of == var}
        casts = ((numbers.of(op), load) for op, load in found.loads)
        return {number: load for number, load in casts if number not in known}

    def _widen(
        self, loads: Mapping[int, Load], var: Var, bounds: tuple[str, str], most: int
    ) -> dict[int, str]:
        """Print the conversion of loads before their loop, and return the array of each number.

        A whole row is kept for later sweeps over it; a row of weights is converted before all rows.
        """
        values, arrays = self.values, dict[int, str]()
        start, count = bounds
        is_whole = start == "0" and count.isdigit() and not self.tile
        for number, load in loads.items():
            arrays[number] = array = values.names.new(f"{load.buffer}_wide")
            corner = values.address(load.buffer, load.index, {var: start})
            block = values.block_of(load.index, var) if is_whole else values.block
            block.lines += [wide_row(array, most), f"widen_f16({array}, {corner}, {count});"]
            if is_whole and values.block is self._row:
                self._wide[number] = array, var
        return arrays

    @contextmanager
    def lanes(self, statements: Sequence[Statement] = ()) -> Generator[None]:
        """Print a loop over the columns of the tile, if there is one."""
        if self.tile is None:
            yield
            return
        tile = self.tile
        pragma = "#pragma omp simd" if self.is_apart(tile.var) else ""
        lanes = self.simd(tile.var, statements, start=tile.start, stop=tile.stop, pragma=pragma)
        with lanes as inner:
            inner.locals.update(self._of_tile)
            yield

    def keep(self, values: dict[int, Value]) -> None:
        """Set the values that rows keep, by number, in place of earlier ones."""
        self._kept = values
        self._arrays, self._wide, self._row = {}, {}, self.values.block

    def keep_more(self, values: Sequence[Value]) -> None:
        """Let the next row keep further values."""
        self._kept = {**self._kept, **{self.values.numbers.of(value): value for value in values}}

    @contextmanager
    def row(
        self, loop: Var, statements: Sequence[Statement], start: str, stop: str, pragma: str
    ) -> Generator[Block]:
        """Print an innermost loop, which reads or writes the kept values of a row."""
        numbers = self.values.numbers
        used = {numbers.of(v): v for statement in statements for v in walk(statement)}
        first = [n for n in self._kept if n in used and n not in self._arrays]
        for number in first:
            array = self.values.names.new("kept")
            self._arrays[number] = array, loop
            ctype = C_TYPES[used[number].dtype]
            self._row.lines.append(f"{ctype} {array}[{loop.size}];")
        lanes = self.simd(loop, statements, start=start, stop=stop, pragma=pragma, longest=LONGEST)
        with lanes as inner:
            at = inner.places[loop]
            for number, (array, of) in self._arrays.items():
                if number in first:
                    value = self.values.named(used[number])
                    inner.lines.append(f"{array}[{at}] = {value};")
                elif number in used and of == loop:
                    inner.names[number] = f"{array}[{at}]"
            yield inner

    def variable(self, name: str) -> str:
        """Return the C code of a variable that each column has."""
        if self.tile is None:
            return name
        return f"{name}[{self.values.names.of(self.tile.var.name)} - {self.tile.start}]"

    def declare(self, ctype: str, name: str, begin: str) -> None:
        """Print the declaration of a variable that each column has."""
        if self.tile is None:
            self.values.block.lines.append(f"{ctype} {name} = {begin};")
            return
        self.values.block.lines.append(f"{ctype} {name}[{self.tile.width}];")
        with self.lanes():
            self.values.block.lines.append(f"{self.variable(name)} = {begin};")

    def bind(self, local: str, code: str) -> None:
        """Bind the result of a reduction to the code that later statements read."""
        if self.tile is None:
            self.values.block.locals[local] = code
        else:
            self._of_tile[local] = code

    def print_statements(self, sweep: Sweep) -> None:
        """Print a sweep without loops of its own."""
        self.values.count(sweep.statements)
        with self.lanes(sweep.statements):
            for statement in sweep.statements:
                assert isinstance(statement, Store), "a reduction has loops"
                self.store(statement)

    def store(self, store: Store) -> None:
        """Print a store."""
        values = self.values
        values.faults.node = store.origin
        block = values.block
        comment = len(block.lines)
        index = values.index(store.index)
        target = self.places.get(id(store), f"{values.pointers[store.buffer]}[{index}]")
        code = values.code(store.value)
        if id(store) in self._targets:
            assert isinstance(store.value, Op), "a cast"
            target, code = self._targets[id(store)], values.code(store.value.args[0])
        value = code.text if store.mode == "set" else values.named(store.value)
        line = f"{target} = {_combined(store, target, value)};"
        conditions = [] if store.guard is None else [values.text(store.guard)]
        conditions += [values.faults.guard("store", store.buffer, index)]
        conditions = [condition for condition in conditions if condition]
        if conditions:
            line = f"if ({' && '.join(map(grouped, conditions))}) {line}"
        block.lines.append(line)
        names = [name for name in dict.fromkeys((*code.origins, store.origin)) if name]
        if names:
            block.lines.insert(comment, f"// {', '.join(names)}")
        values.stored(store.buffer)


def _combined(store: Store, target: str, value: str) -> str:
    if store.mode == "set":
        return value
    dtype = store.value.dtype
    wide = torch.float32 if is_narrow(dtype) else dtype
    old, new = cast_code(target, dtype, wide), cast_code(value, dtype, wide)
    if store.mode in ("add", "prod"):
        sign = "|" if dtype == torch.bool else "+" if store.mode == "add" else "*"
        return cast_code(f"{old} {sign} {new}", wide, dtype)
    return cast_code(f"{store.mode}imum_{SUFFIXES[wide]}({old}, {new})", wide, dtype)
