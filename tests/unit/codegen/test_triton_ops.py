"""Every operation of the vocabulary, every reduction and scan, in Triton's interpreter."""

import itertools

import pytest
import torch

from ctk.compiler.codegen.triton.ops import PRINTERS
from ctk.compiler.codegen.triton.variants import TritonOptions
from ctk.compiler.lowering.builder import row_major
from ctk.compiler.lowering.interpret_memory import memory_of
from ctk.compiler.lowering.ir import (
    Buffer,
    Kernel,
    Load,
    Local,
    Op,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
)
from ctk.compiler.lowering.vocabulary import (
    ARITHMETIC,
    ARITY,
    BOOL_RESULTS,
    COMPARISON,
    DIVISION,
    FUNCTIONS,
    LOGIC,
    ROUNDING,
    SHIFTS,
    SIGNS,
)
from ctk.compiler.sizes.index import Var, as_index, of_atom
from tests.helpers.triton_kernels import INTERPRETED, check_kernels

pytestmark = INTERPRETED

CPU = torch.device("cpu")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-30, 40.0, -90.0, float("inf"), float("-inf"),
           float("nan")]  # fmt: skip
NUMBERS = [0, 1, -1, 2, -7, 7, 13, 100, -128, 127, 31]
ROWS, LENGTH = 3, 13


def buffer(name: str, dtype: torch.dtype, *shape: int) -> Buffer:
    sizes = tuple(map(as_index, shape))
    return Buffer(name, dtype, sizes, row_major(sizes), CPU, "input")


def operands(dtype: torch.dtype, count: int) -> list[torch.Tensor]:
    if dtype.is_floating_point:
        values: list = SPECIAL
    else:
        values = [False, True] if dtype == torch.bool else NUMBERS
    if dtype == torch.uint8:
        values = [each & 255 for each in values]
    rows = list(itertools.product(values, repeat=count))
    return [torch.tensor(column, dtype=dtype) for column in zip(*rows, strict=True)]


def hold(name: str, dtype: torch.dtype) -> None:
    """Hold one operation on every combination of special operands to the reference."""
    inputs = operands(dtype, ARITY[name])
    loop = Var("i", as_index(len(inputs[0])))
    at = of_atom(loop)
    result = torch.bool if name in BOOL_RESULTS else dtype
    args = tuple(Load(f"x{n}", at, dtype) for n in range(len(inputs)))
    value = Op(name, args, result, "node")
    statements = (Store("out", at, value, origin="node"),)
    kernel = Kernel("k", (loop,), (Sweep((), statements),), ("node",), CPU)
    buffers = {f"x{n}": buffer(f"x{n}", dtype, len(x)) for n, x in enumerate(inputs)}
    buffers["out"] = buffer("out", result, len(inputs[0]))
    memory = {f"x{n}": x for n, x in enumerate(inputs)}
    tiny = 2.0**-126  # of what is subnormal in float32, functions may give 0
    check_kernels([kernel], buffers, memory, {}, rtol=2e-6, atol=tiny)


def test_every_operation_has_a_printer() -> None:
    assert {*PRINTERS, "philox"} == set(ARITY)


FLOATS = [*ARITHMETIC, *DIVISION, *COMPARISON, *ROUNDING, *SIGNS, *FUNCTIONS]
INTEGERS = [*ARITHMETIC, *(set(DIVISION) - {"div", "reciprocal"}), *COMPARISON, *LOGIC, *SHIFTS]


@pytest.mark.parametrize("name", FLOATS)
def test_operation_on_floats(name: str) -> None:
    hold(name, torch.float32)


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_operation_on_integers(name: str) -> None:
    hold(name, torch.int32)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_operation_on_doubles(name: str) -> None:
    hold(name, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_operation_on_other_integers(name: str, dtype: torch.dtype) -> None:
    hold(name, dtype)


@pytest.mark.parametrize("name", sorted({*LOGIC, *COMPARISON}))
def test_operation_on_bools(name: str) -> None:
    hold(name, torch.bool)


def rows_of(dtype: torch.dtype) -> torch.Tensor:
    x = torch.randint(-3, 4, (ROWS, LENGTH))
    if dtype == torch.bool:
        return x > 0
    x = x.to(dtype)
    if dtype.is_floating_point:
        x[1, 4] = x[1, 7] = float("nan")
        x[2, :] = float("-inf")
    return x


def over_rows(statements: tuple[Statement, ...], results: dict[str, torch.dtype], x: torch.Tensor,
              options: TritonOptions, per_row: bool) -> None:  # fmt: skip
    row, r = Var("i0", as_index(ROWS)), Var("r0", as_index(LENGTH))
    at = of_atom(row) if per_row else of_atom(row) * LENGTH + of_atom(r)
    stores = tuple(Store(n, at, Local(n, d), origin="node") for n, d in results.items())
    sweeps = (Sweep((r,), (*statements, *(() if per_row else stores))),)
    if per_row:
        sweeps = (*sweeps, Sweep((), stores))
    kernel = Kernel("k", (row,), sweeps, ("node",), CPU)
    shape = (ROWS,) if per_row else (ROWS, LENGTH)
    buffers = {"x": buffer("x", x.dtype, ROWS, LENGTH)}
    buffers.update({n: buffer(n, d, *shape) for n, d in results.items()})
    check_kernels([kernel], buffers, {"x": memory_of(x).tensor}, {}, options)


def element(dtype: torch.dtype) -> Load:
    row, r = Var("i0", as_index(ROWS)), Var("r0", as_index(LENGTH))
    return Load("x", of_atom(row) * LENGTH + of_atom(r), dtype)


WAYS = {
    "block": TritonOptions(interpret=True),
    "loop": TritonOptions(interpret=True, row_limit=4),
    "split": TritonOptions(interpret=True, chunk=4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kind", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean_m2"]
)
def test_reduction(kind, way: str) -> None:
    dtypes = [torch.float32] if kind == "mean_m2" else [torch.float32, torch.int64]
    for dtype in [torch.bool] if kind in ("any", "all") else dtypes:
        types = (dtype,)
        if kind in ("argmax", "argmin"):
            types = (dtype, torch.int64)
        if kind == "mean_m2":
            types = (dtype, dtype)
        names = tuple(f"out{n}" for n in range(len(types)))
        statement = Reduce(names, kind, element(dtype), types, "node")
        results = dict(zip(names, types, strict=True))
        x = rows_of(dtype)
        if kind == "mean_m2":
            x[2] = torch.linspace(-1, 2, LENGTH)  # the mean of infinities depends on the order
        over_rows((statement,), results, x, WAYS[way], True)


@pytest.mark.parametrize("way", ["block", "loop"])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "logsumexp"])
def test_scan(kind, way: str) -> None:
    for dtype in [torch.float32] if kind == "logsumexp" else [torch.float32, torch.int64]:
        statement = Scan("out", kind, element(dtype), dtype, "node")
        over_rows((statement,), {"out": dtype}, rows_of(dtype), WAYS[way], False)
