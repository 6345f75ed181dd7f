"""Kernels that read memory that they write: each form of a printer is right, or refuses them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
import torch

from ctk.compiler.codegen.c.c_codegen import COptions, compile_kernels
from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton import triton_codegen
from ctk.compiler.codegen.triton.variants import TritonOptions
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.interpret_kernel import run_kernel
from ctk.compiler.lowering.interpret_memory import Memory
from ctk.compiler.lowering.ir import (
    Buffer,
    Const,
    Guarded,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Reduce,
    ReduceKind,
    Scan,
    ScanKind,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.sizes.index import Index, Indirect, Var, as_index, of_atom

CPU = torch.device("cpu")
F32, F16, I64 = torch.float32, torch.float16, torch.int64
ROWS, COLUMNS = 48, 40
SIZE = ROWS * COLUMNS

OUTER, INNER, COLUMN = (
    Var(name, as_index(size)) for name, size in (("i0", ROWS), ("i1", COLUMNS), ("r0", COLUMNS))
)
WHOLE, HALF, TINY = (
    Var(name, as_index(size)) for name, size in (("i0", SIZE), ("i0", SIZE // 2), ("i1", 2))
)
i, j, r, whole, half, tiny = map(of_atom, (OUTER, INNER, COLUMN, WHOLE, HALF, TINY))
ROW = i * COLUMNS + r
"""The index of a row's elements."""

LONG, SHORT = Var("i0", as_index(SIZE // 4)), Var("r0", as_index(4))
SHORT_ROW = of_atom(LONG) * 4 + of_atom(SHORT)
"""The index of rows that are written out."""


def x(at: Index, buffer: str = "x", dtype: torch.dtype = F32) -> Load:
    return Load(buffer, at, dtype)


def exp(value: Value) -> Op:
    return Op("exp", (value,), value.dtype)


def add(a: Value, b: Value) -> Op:
    return Op("add", (a, b), a.dtype)


def double(value: Value) -> Op:
    return Op("mul", (value, Const(2.0, value.dtype)), value.dtype)


def below(index: Index, number: int) -> Op:
    return Op("lt", (Position(index), Const(number, I64)), torch.bool)


def store(value: Value, at: Index, buffer: str = "x", **options: object) -> Store:
    return Store(buffer, at, value, origin="node", **options)


def kernel(outer: tuple[Var, ...], *sweeps: Sweep) -> Kernel:
    return Kernel("k", outer, sweeps, ("node",), CPU)


def pointwise(outer: tuple[Var, ...], *stores: Store) -> Kernel:
    return kernel(outer, Sweep((), stores))


def reduce(kind: ReduceKind, value: Value) -> Reduce:
    names = {"mean_m2": ("m", "m2"), "argmax": ("m", "place")}.get(kind, ("m",))
    dtypes = (F32, I64 if kind == "argmax" else F32)[: len(names)]
    return Reduce(names, kind, value, dtypes, "node")


def scan(kind: ScanKind, value: Value) -> Scan:
    return Scan("s", kind, value, F32, "node")


M, S = Local("m", F32), Local("s", F32)


def rows(*statements: Statement, after: Value | None = None) -> Kernel:
    """Return a kernel that reads rows of `x`, and writes them in the same or in another sweep."""
    last = () if after is None else (Sweep((COLUMN,), (store(after, ROW),)),)
    return kernel((OUTER,), Sweep((COLUMN,), statements), *last)


def results(*statements: Statement, name: str) -> Kernel:
    """Return a kernel of rows whose reduction is a result."""
    last = store(Local(name, I64 if name == "place" else F32), i, "n" if name == "place" else "out")
    return kernel((OUTER,), Sweep((COLUMN,), statements), Sweep((), (last,)))


def columns(kind: ReduceKind) -> Kernel:
    loop, at = Var("r0", as_index(ROWS)), of_atom(Var("r0", as_index(ROWS))) * COLUMNS + j
    first = Sweep((loop,), (reduce(kind, x(at)),))
    return kernel((INNER,), first, Sweep((loop,), (store(add(x(at), M), at),)))


def indirect() -> Index:
    return Index((((Indirect(Load("n", whole, I64), as_index(SIZE)),), 1),))


PICKED = indirect()

WRONG: Mapping[str, Kernel] = {
    "lanes, the next element": pointwise(
        (Var("i0", as_index(SIZE - 1)),), store(x(whole + 1), whole)
    ),
    "lanes, from the end": pointwise((WHOLE,), store(x(SIZE - 1 - whole), whole)),
    "lanes, another element of two": pointwise(
        (HALF,), store(x(half * 2 + 1), half * 2), store(x(half * 2), half * 2 + 1)
    ),
    "lanes, written before": pointwise(
        (WHOLE,), store(double(x(whole, "y")), whole), store(double(x(whole)), whole, "out")
    ),
    "lanes, written between": pointwise(
        (WHOLE,),
        store(exp(x(whole)), whole, "out"),
        store(x(whole, "y"), whole),
        store(exp(x(whole)), whole, "y"),
    ),
    "sums into what is read": pointwise((WHOLE,), store(x(whole), (whole + 1) % SIZE, mode="add")),
    "positions that may coincide": pointwise((WHOLE,), store(double(x(PICKED)), PICKED)),
    "a guard behind the store": pointwise(
        (WHOLE,),
        store(x(whole, "y"), whole),
        store(x(whole, "y"), whole, "out", guard=Op("gt", (x(whole), Const(0, F32)), torch.bool)),
    ),
    "lanes in rows": rows(store(double(x(ROW)), ROW)),
    "lanes in rows, the next row": kernel(
        (Var("i0", as_index(ROWS - 1)),), Sweep((COLUMN,), (store(x(ROW + COLUMNS), ROW),))
    ),
    "lanes in rows, kept": rows(reduce("sum", exp(x(ROW))), after=add(exp(x(ROW)), M)),
    "lanes in rows, kept and written before": rows(
        store(x(ROW, "y"), ROW),
        reduce("sum", exp(x(ROW))),
        after=add(exp(x(ROW)), M),
    ),
    "lanes in rows, a second pass": results(
        reduce("mean_m2", x(ROW)), store(x(ROW, "y"), ROW), name="m2"
    ),
    "lanes in rows, a search": results(
        reduce("argmax", x(ROW)), store(x(ROW, "y"), ROW), name="place"
    ),
    "short rows": kernel(
        (LONG,),
        Sweep((SHORT,), (reduce("max", x(SHORT_ROW)),)),
        Sweep((SHORT,), (store(add(x(SHORT_ROW), M), SHORT_ROW),)),
    ),
    "columns": columns("sum"),
    "chunks": kernel(
        (), Sweep((WHOLE,), (reduce("sum", x(whole)),)), Sweep((WHOLE,), (store(M, whole),))
    ),
    "a scan": rows(scan("sum", x(ROW)), store(S, ROW)),
    "a scan, prepared": rows(scan("sum", exp(x(ROW))), store(S, ROW)),
    "a scan, prepared behind a store": rows(
        store(x(ROW, "y"), ROW), scan("sum", exp(x(ROW))), store(S, ROW, "out")
    ),
    "a scan, stored late": rows(
        store(exp(x(ROW, "y")), ROW), scan("sum", x(ROW)), store(S, ROW, "out")
    ),
    "a scan of logarithms": rows(scan("logsumexp", x(ROW)), store(S, ROW)),
    "tiles, transposed": pointwise(
        (Var("i0", as_index(COLUMNS)), INNER), store(x(i + j * COLUMNS), i * COLUMNS + j)
    ),
    "tiles, written before": pointwise(
        (OUTER, INNER),
        store(x(i * COLUMNS + j, "y"), i + j * ROWS),
        store(x(i + j * ROWS), i * COLUMNS + j, "out"),
    ),
    "parts of a cat": pointwise(
        (HALF,),
        store(x(half + SIZE // 2), half, is_part=True),
        store(x(half), half + SIZE // 2, is_part=True),
    ),
    "a part of a cat": pointwise((HALF,), store(x(half), half + SIZE // 2, is_part=True)),
    "parts of a stack": pointwise(
        (HALF,),
        store(double(x(half)), half * 2, is_part=True),
        store(x(half, "y"), half * 2 + 1, is_part=True),
    ),
    "memory of another buffer, the next element": pointwise(
        (Var("i0", as_index(SIZE - 1)),), store(x(whole + 1), whole, "taken")
    ),
    "memory of another buffer, in rows": kernel(
        (OUTER,), Sweep((COLUMN,), (store(double(x(ROW)), ROW, "taken"),))
    ),
    "memory of another type": pointwise((WHOLE,), store(x(whole), whole, "narrow")),
    "a view of the library": pointwise((WHOLE,), store(x(whole), whole, "view")),
}

RIGHT: Mapping[str, Kernel] = {
    "lanes": pointwise((WHOLE,), store(exp(x(whole)), whole)),
    "lanes, read twice": pointwise(
        (WHOLE,),
        store(exp(x(whole)), whole, "out"),
        store(add(exp(x(whole)), x(whole, "y")), whole),
    ),
    "lanes, read and written in another place": pointwise(
        (WHOLE,),
        store(x(SIZE - 1 - whole, "y"), whole, "out"),
        store(add(x(whole), x(SIZE - 1 - whole, "y")), whole),
    ),
    "loops that are unrolled": pointwise(
        (HALF, TINY),
        store(double(x(half * 2 + tiny)), half * 2 + tiny, "out"),
        store(exp(x(half * 2 + tiny)), half * 2 + tiny),
    ),
    "loops that are split": pointwise(
        (WHOLE,),
        store(Guarded(below(whole, 100), double(x(whole)), x(whole, "y")), whole),
    ),
    "a guard": pointwise((WHOLE,), store(double(x(whole)), whole, guard=below(whole, 99))),
    "tiles": pointwise(
        (OUTER, INNER), store(add(x(i + j * ROWS), x(i * COLUMNS + j, "y")), i + j * ROWS)
    ),
    "tiles of the other": pointwise(
        (OUTER, INNER), store(add(x(i * COLUMNS + j), x(i + j * ROWS, "y")), i * COLUMNS + j)
    ),
    "a part of a cat": pointwise(
        (HALF,), store(double(x(half + SIZE // 2)), half + SIZE // 2, is_part=True)
    ),
    "memory of another buffer": pointwise((WHOLE,), store(exp(x(whole)), whole, "taken")),
    "memory of another buffer, in tiles": pointwise(
        (OUTER, INNER), store(add(x(i + j * ROWS), x(i * COLUMNS + j, "y")), i + j * ROWS, "taken")
    ),
    "sums into what is not read": pointwise((WHOLE,), store(x(whole, "y"), whole // 2, mode="add")),
    "a row of one sweep, written elsewhere": rows(
        reduce("sum", exp(x(ROW))), store(x(ROW), ROW, "out")
    ),
}


def buffer(name: str, dtype: torch.dtype = F32, **options: str) -> Buffer:
    return Buffer(name, dtype, (as_index(SIZE),), (as_index(1),), CPU, "kernel", **options)


BUFFERS = {
    "x": buffer("x"),
    "y": buffer("y"),
    "out": buffer("out"),
    "n": buffer("n", I64),
    "taken": buffer("taken", memory="x"),
    "narrow": buffer("narrow", torch.int32, memory="x"),
    "view": replace(buffer("view", base="x"), role="library"),
}


@dataclass(frozen=True)
class Printer:
    """A generator of kernels, and whether it takes addresses."""

    compile: Callable[..., list]
    options: object
    takes_addresses: bool


PRINTERS = {
    "c": Printer(compile_kernels, COptions(), True),
    "triton": Printer(triton_codegen.compile_kernels, TritonOptions(interpret=True), False),
}


@pytest.fixture(params=PRINTERS)
def printer(request: pytest.FixtureRequest) -> Printer:
    if request.param == "triton":
        pytest.importorskip("triton")
    return PRINTERS[request.param]


def changed(made: Kernel, dtype: torch.dtype) -> Kernel:
    """Return a kernel of another float type."""

    def of(value: Value) -> Value:
        if isinstance(value, Guarded):
            return Guarded(value.condition, of(value.value), of(value.other), value.origin)
        if isinstance(value, Op) and value.dtype == F32:
            return replace(value, args=tuple(map(of, value.args)))
        if isinstance(value, Load) and value.dtype == F32:
            return Op("cast", (replace(value, dtype=dtype),), F32)
        return value

    def store_of(statement: Statement) -> Statement:
        assert isinstance(statement, Store)
        value = of(statement.value)
        return replace(statement, value=Op("cast", (value,), dtype))

    sweeps = (replace(s, statements=tuple(map(store_of, s.statements))) for s in made.sweeps)
    return replace(made, sweeps=tuple(sweeps))


def memory_with(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {name: torch.randn(SIZE).to(dtype) for name in ("x", "y", "out")}
    return {**made, "taken": made["x"], "n": torch.randint(SIZE, (SIZE,))}


def hold(made: Kernel, printer: Printer, dtype: torch.dtype = F32) -> None:
    """Hold the memory after a kernel to the reference."""
    buffers = {n: replace(b, dtype=dtype) if n != "n" else b for n, b in BUFFERS.items()}
    expected, found = memory_with(dtype), memory_with(dtype)
    run_kernel(made, {n: Memory(t) for n, t in expected.items()}, {}, check=True)
    (compiled,) = printer.compile([made], buffers, printer.options, KernelSetting())
    given = [found[name] for name in arguments_of(compiled.kernel).buffers]
    compiled.launch(*([t.data_ptr() for t in given] if printer.takes_addresses else given))
    for name in ("x", "y", "out", "n"):
        torch.testing.assert_close(found[name], expected[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("form", WRONG)
def test_a_form_that_may_read_what_it_wrote_is_refused(form: str, printer: Printer) -> None:
    with pytest.raises(CodegenUnsupported, match=r"kernel k of \[node\] reads .* it has written"):
        printer.compile([WRONG[form]], BUFFERS, printer.options, KernelSetting())


@pytest.mark.parametrize("form", RIGHT)
def test_a_form_that_reads_first_is_right(form: str, printer: Printer) -> None:
    hold(RIGHT[form], printer)


@pytest.mark.parametrize("dtype", [F16, torch.bfloat16])
@pytest.mark.parametrize(
    "form", [each for each in RIGHT if "row" not in each and "sum" not in each]
)
def test_lanes_that_convert_ahead_are_right(form: str, dtype: torch.dtype) -> None:
    hold(changed(RIGHT[form], dtype), PRINTERS["c"], dtype)
