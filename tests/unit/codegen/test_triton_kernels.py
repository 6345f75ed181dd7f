"""Kernels in Triton's interpreter compute what the reference interpreter computes."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

from ctk.compiler.codegen.triton.options import TritonOptions
from ctk.compiler.lowering.atoms import Var
from ctk.compiler.lowering.index import ONE, as_index, of_atom
from ctk.compiler.lowering.ir import (
    Buffer,
    Const,
    Kernel,
    Load,
    Op,
    Position,
    Reduce,
    Store,
    Sweep,
)
from ctk.compiler.passes.joint.philox import DRAW
from tests.helpers.triton_kernels import check, check_kernels


def test_pointwise_of_broadcast_and_strided_operands() -> None:
    x, y = torch.randn(7, 1, 33), torch.randn(5, 7).t()[:, :, None]
    check(lambda a, b: torch.where(a > b, a * 2, (b - a).exp()), x, y)


def test_pointwise_in_bfloat16() -> None:
    check(lambda x, b: F.gelu(x + b), torch.randn(9, 70).bfloat16(), torch.randn(70).bfloat16())


def test_softmax_of_short_rows() -> None:
    check(lambda x: torch.softmax(x, -1), torch.randn(5, 70))


def test_layer_norm() -> None:
    check(lambda x: F.layer_norm(x, (70,)), torch.randn(5, 70).bfloat16())


def test_symbolic_sizes() -> None:
    check(lambda x: torch.softmax(x * 2, -1), torch.randn(5, 70), symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("chunk", [8, 32])
def test_split_reductions(chunk: int, symbolic: bool) -> None:
    options = TritonOptions(interpret=True, chunk=chunk)
    x = torch.randint(-8, 8, (3, 70)).float()  # sums are exact in any order
    for function in (
        lambda x: x.sum(),
        lambda x: x.amax(0),
        lambda x: torch.softmax(x, -1),
        lambda x: F.layer_norm(x, (70,)),
    ):
        check(function, x, options=options, symbolic=symbolic)


@pytest.mark.parametrize("length", [64, 70])
def test_random_numbers_have_the_bits_of_the_operator(length: int) -> None:
    """Four neighbours share a counter, whether the axis is the whole tensor or a row."""
    loops = [Var("i0", as_index(3)), Var("r0", as_index(length))]
    place = of_atom(loops[0]) * length + of_atom(loops[1])
    seed = Load("seeds", as_index(1), torch.int64)
    word = Op("philox", (seed, Position(place // 4), Position(place % 4)), torch.int64)
    shifted = Op("shr", (word, Const(8, torch.int64)), torch.int64)
    drawn = Op("mul", (Op("cast", (shifted,), torch.float32), Const(2.0**-24, torch.float32)),
               torch.float32)  # fmt: skip
    seeds = torch.tensor([5, -(2**62) + 12345])
    want = DRAW(seeds, 1, [3, length], "uniform", torch.float32).reshape(-1)
    total = Reduce(("total",), "max", drawn, (torch.float32,))
    for outer, sweeps in (
        (loops, (Sweep((), (Store("out", place, drawn),)),)),
        (loops[:1], (Sweep((loops[1],), (total, Store("out", place, drawn))),)),
    ):
        kernel = Kernel("k", tuple(outer), sweeps, ("node",), torch.device("cpu"))
        sizes = {"seeds": 2, "out": 3 * length}
        buffers = {
            name: Buffer(name, dtype, (as_index(sizes[name]),), (ONE,), kernel.device, "input")
            for name, dtype in (("seeds", torch.int64), ("out", torch.float32))
        }
        memory = {"seeds": seeds}
        (source,) = check_kernels([kernel], buffers, memory, {})
        torch.testing.assert_close(memory["out"], want, rtol=0, atol=0)
        assert "philox_of_fours" in source or len(outer) == 1
