"""Print a kernel of attention as one C function: threads over blocks of queries.

    for each block of queries:                       LANES queries, their parts transposed
        for each listed block of keys, in pieces:
            score = keys @ queries                   block_product
            score = change(score), or -inf           values of the loop IR, lane by lane
            block_softmax                            maximum, weights, their sum; rescales
            result += values^T @ score               block_product
        result / total                               as the kernel stores it

Floats of 16 bits are computed in float32. A piece of keys or of values is copied first if its type
or its strides ask for that.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from ctk.compiler.codegen.c.attention_functions import LANES
from ctk.compiler.codegen.c.kernel_function import KernelCode, function_code, values_for
from ctk.compiler.codegen.c.operations import cast_code
from ctk.compiler.codegen.c.plan import GRAIN
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES, literal
from ctk.compiler.codegen.c.values import Values
from ctk.compiler.lowering.attention import Attention, BlockList, scale_of, start_of
from ctk.compiler.lowering.ir import Buffer, Const, Load, Op, Store, Value
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.sizes.index import ZERO, Var, product

KEYS = 128
"""How many keys a piece has."""


def attention_code(
    kernel: Attention, buffers: Mapping[str, Buffer], *, name: str, check_bounds: bool
) -> KernelCode:
    """Print a kernel."""
    arguments = arguments_of(kernel)
    values = values_for(arguments, buffers, name, check_bounds=check_bounds)
    _AttentionPrinter(kernel, values).print()
    return function_code(name, values, arguments, buffers)


class _AttentionPrinter:
    """One kernel on its way to C; the open block is that of `values`."""

    def __init__(self, kernel: Attention, values: Values) -> None:
        self.kernel = kernel
        self.axes = kernel.axes
        self.values = values
        self.printer = SweepPrinter(values, lambda _: True)
        self.ctype, self.suffix = C_TYPES[kernel.dtype], SUFFIXES[kernel.dtype]
        names = values.names
        self.first, self.last = names.new("first_query"), names.new("last_query")
        self.start, self.stop = names.new("first_key"), names.new("last_key")
        self.queries, self.keys = names.new("queries"), names.new("keys")
        self.parts, self.score = names.new("parts"), names.new("score")
        self.result = names.new("result")
        self.total, self.largest = names.new("total"), names.new("largest")

    def line(self, text: str) -> None:
        self.values.block.lines.append(text)

    def print(self) -> None:
        """Print the loop over blocks of queries."""
        values, kernel, axes = self.values, self.kernel, self.axes
        names, index = values.names, values.index
        values.faults.node = kernel.nodes[0]
        task, tiles, rows = names.new("task"), names.new("tiles"), names.new("rows")
        b, h, block = names.new("b"), names.new("h"), names.new("block")
        each, queries = index(kernel.blocks[0]), index(axes.m.size)
        self.line(f"const int64_t {rows} = ({queries} + {each} - 1) / ({each});")
        self.line(
            f"const int64_t {tiles} = (({rows} > 1 ? {each} : {queries}) + {LANES - 1}) / {LANES};"
        )
        count = f"{index(axes.b.size * axes.h.size)} * {rows} * {tiles}"
        work = product([axes.b.size, axes.h.size, axes.m.size, axes.n.size])
        pragma = f"#pragma omp parallel for schedule(dynamic) if ({index(work)} >= {GRAIN})"
        head = f"for (int64_t {task} = {count} - 1; {task} >= 0; --{task}) {{"
        with self.printer.block(head, is_loop=True, pragma=pragma) as inner:
            heads = index(axes.h.size)
            self.line(f"const int64_t {block} = {task} / {tiles} % {rows};")
            self.line(f"const int64_t {h} = {task} / ({tiles} * {rows}) % {heads};")
            self.line(f"const int64_t {b} = {task} / ({tiles} * {rows} * {heads});")
            self.line(
                f"const int64_t {self.first} = {block} * {each} + {task} % {tiles} * {LANES};"
            )
            bound = self._smaller(f"({block} + 1) * {each}", queries)
            end = self._smaller(f"{self.first} + {LANES}", bound)
            self.line(f"const int64_t {self.last} = {end};")
            self.line(f"if ({self.first} >= {self.last}) continue;")
            inner.places.update({axes.b: b, axes.h: h})
            self._block()

    def _block(self) -> None:
        """Print the body of the loop: one block of queries."""
        kernel, axes, zero = self.kernel, self.axes, "= {0}"
        parts, sums = axes.d.size.number, axes.e.size.number
        for name, size, begin in (
            (self.queries, f"{parts} * {LANES}", zero),
            (self.result, f"{sums} * {LANES}", zero),
            (self.total, LANES, zero),
            (self.largest, LANES, ""),
            (self.score, f"{KEYS} * {LANES}", ""),
        ):
            self.line(f"{self.ctype} {name}[{size}] __attribute__((aligned(64))) {begin};")
        copies = [(self.keys, kernel.key, parts), (self.parts, kernel.value, sums)]
        for name, load, size in copies if kernel.reads_values else copies[:1]:
            if self._is_copied(load):
                self.line(f"{self.ctype} {name}[{KEYS} * {size}] __attribute__((aligned(64)));")
        self.line(f"for (int i = 0; i < {LANES}; ++i) {self.largest}[i] = -INFINITY;")
        with self._queries() as lane, self.printer.loop(axes.d) as inner:
            code = self._wide(kernel.query)
            self.line(f"{self.queries}[{inner.places[axes.d]} * {LANES} + {lane}] = {code};")
        self._listed(kernel.partial, self._masked())
        if kernel.full is not None:
            self._listed(kernel.full, kernel.score)
        for store in kernel.stores:
            self._store(store)

    def _listed(self, blocks: BlockList, score: Value) -> None:
        """Print the loop over the listed blocks of keys, in pieces."""
        values, axes = self.values, self.axes
        names, each = values.names, values.index(self.kernel.blocks[1])
        place, block, limit = names.new("place"), names.new("block"), names.new("limit")
        self.values.block.places[axes.m] = self.first
        count = values.text(blocks.count)
        head = f"for (int64_t {place} = 0; {place} < {count}; ++{place}) {{"
        with self.printer.block(head, is_loop=True) as inner:
            inner.places[axes.j] = place
            self.line(f"const int64_t {block} = {values.text(blocks.block)};")
            end = self._smaller(f"({block} + 1) * {each}", values.index(axes.n.size))
            self.line(f"const int64_t {limit} = {end};")
            step = f"{self.start} += {KEYS}"
            begin = f"int64_t {self.start} = {block} * {each}"
            head = f"for ({begin}; {self.start} < {limit}; {step}) {{"
            with self.printer.block(head, is_loop=True):
                end = self._smaller(f"{self.start} + {KEYS}", limit)
                self.line(f"const int64_t {self.stop} = {end};")
                self._piece(score)
        del self.values.block.places[axes.m]

    def _piece(self, score: Value) -> None:
        """Print the steps of one piece of keys."""
        kernel, axes, count = self.kernel, self.axes, f"{self.stop} - {self.start}"
        parts, sums = axes.d.size.number, axes.e.size.number
        keys, row, step = self._matrix(kernel.key, axes.d, self.keys)
        self.line(
            f"block_product_{self.suffix}({self.score}, {keys}, {row}, {step}, {self.queries}, "
            f"{count}, {parts}, false);"
        )
        self._change(score)
        self.line(
            f"block_softmax_{self.suffix}({self.score}, {self.largest}, {self.total}, "
            f"{self.result}, {count}, {sums});"
        )
        if not kernel.reads_values:
            return
        values, row, step = self._matrix(kernel.value, axes.e, self.parts)
        self.line(
            f"block_product_{self.suffix}({self.result}, {values}, {step}, {row}, {self.score}, "
            f"{sums}, {count}, true);"
        )

    def _matrix(self, load: Load, along: Var, copy: str) -> tuple[str, str, str]:
        """Return where a piece of keys or values is, and its strides along keys and parts."""
        values, axes = self.values, self.axes
        if not self._is_copied(load):
            block = values.block
            block.places[axes.n] = self.start
            start = values.index(start_of(load, along))
            del block.places[axes.n]
            strides = [load.index.factor_of(loop) or ZERO for loop in (axes.n, along)]
            row, step = (values.index(stride) for stride in strides)
            return f"&{values.pointers[load.buffer]}[{start}]", row, step
        size = along.size.number
        with (
            self.printer.loop(axes.n, start=self.start, stop=self.stop) as outer,
            self.printer.loop(along, pragma="#pragma omp simd") as inner,
        ):
            at = f"({outer.places[axes.n]} - {self.start}) * {size} + {inner.places[along]}"
            self.line(f"{copy}[{at}] = {self._wide(load)};")
        return copy, str(size), "1"

    def _change(self, score: Value) -> None:
        """Print the loop that replaces products of queries and keys by scores."""
        values, axes = self.values, self.axes
        self.line(f"// {', '.join(self.kernel.nodes)}")
        with self.printer.loop(axes.n, start=self.start, stop=self.stop) as outer:
            scale = scale_of(score)
            at = f"({outer.places[axes.n]} - {self.start}) * {LANES}"
            if scale is not None:
                factor = literal(Const(scale, self.kernel.dtype))
                self.line("#pragma omp simd")
                each = f"{self.score}[{at} + i] *= {factor};"
                self.line(f"for (int i = 0; i < {LANES}; ++i) {each}")
                return
            values.count((Store("", ZERO, score),))
            with self._queries("#pragma omp simd") as lane:
                values.block.locals["dot"] = f"{self.score}[{at} + {lane}]"
                self.line(f"{self.score}[{at} + {lane}] = {values.text(score)};")

    def _store(self, store: Store) -> None:
        """Print the loop that stores a result."""
        values, axes = self.values, self.axes
        values.count((store,))
        with self._queries() as lane:
            block = values.block
            block.locals["total"] = f"{self.total}[{lane}]"
            block.locals["largest"] = f"{self.largest}[{lane}]"
            if axes.e not in store.index.atoms and store.buffer != self.kernel.results[0]:
                self.printer.store(store)
                return
            with self.printer.loop(axes.e) as inner:
                at = f"{inner.places[axes.e]} * {LANES} + {lane}"
                inner.locals["result"] = f"{self.result}[{at}]"
                self.printer.store(store)

    @contextmanager
    def _queries(self, pragma: str = "") -> Generator[str]:
        """Print a loop over the queries of a block; gives the lane."""
        with self.printer.loop(self.axes.m, start=self.first, stop=self.last, pragma=pragma) as it:
            yield f"({it.places[self.axes.m]} - {self.first})"

    def _masked(self) -> Value:
        kernel = self.kernel
        if not kernel.is_masked:
            return kernel.score
        lowest = Const(-float("inf"), kernel.dtype)
        return Op("where", (kernel.mask, kernel.score, lowest), kernel.dtype)

    def _is_copied(self, load: Load) -> bool:
        """Return whether a piece of keys or values cannot be read where it is."""
        along = self.axes.d if load is self.kernel.key else self.axes.e
        factors = [load.index.factor_of(loop) for loop in (self.axes.n, along)]
        return load.dtype != self.kernel.dtype or None in factors

    def _wide(self, load: Load) -> str:
        return cast_code(self.values.text(load), load.dtype, self.kernel.dtype)

    @staticmethod
    def _smaller(one: str, two: str) -> str:
        return f"minimum_i64({one}, {two})"
