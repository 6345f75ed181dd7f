"""Kernels in Triton's interpreter compute what the reference interpreter computes."""

import pytest
import torch
from torch.nn import functional as F

from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.heuristics import layout_of
from ctk.compiler.codegen.triton.source import kernel_source
from ctk.compiler.codegen.triton.triton_codegen import compile_kernels
from ctk.compiler.codegen.triton.variants import KernelError, TritonOptions
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.ir import (
    Buffer,
    Const,
    Kernel,
    Load,
    Op,
    Position,
    Reduce,
    Store,
    StoreMode,
    Sweep,
    Value,
)
from ctk.compiler.passes.joint.philox import DRAW
from ctk.compiler.sizes import size_guards as sizes
from ctk.compiler.sizes.index import ONE, Index, Indirect, Var, as_index, of_atom, symbol
from tests.helpers.triton_kernels import INTERPRETED, check, check_kernels

pytestmark = INTERPRETED


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


def test_sizes_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph may call the length of its rows `s0`, and an input `blocks`."""
    called: dict[str, str] = {}

    def renamed(name: str, low: int) -> Index:
        return symbol(called.setdefault(name, f"s{1 - len(called)}"), low)

    monkeypatch.setattr(sizes, "symbol", renamed)
    options = TritonOptions(interpret=True, row_limit=16)
    x = torch.randn(20, 70)
    (source,) = check(lambda blocks: torch.softmax(blocks, -1), x, symbolic=True, options=options)
    assert "_softmax, blocks_1, s0, s1)" in source
    check(lambda x, blocks: x + blocks, x, torch.randn(70, 20).t(), symbolic=True)


def test_a_remainder_of_zero_has_the_sign_of_what_was_divided() -> None:
    check(lambda x: torch.remainder(x, 2.0).signbit(), torch.tensor([-4.0, 4.0, -0.0, -3.0]))


def test_a_size_that_is_taken_off_is_divided_as_python_divides() -> None:
    """`-(s // 2) % s` is not negative in Python, and is in C."""
    options = {"codegen": "triton", "fallback": (), "triton.interpret": True}
    shifted = torch.compile(torch.fft.fftshift, backend="ctk", dynamic=True, options=options)
    for shape in ((9, 10), (3, 4)):
        x = torch.arange(shape[0] * shape[1]).reshape(shape).float()
        assert torch.equal(shifted(x), torch.fft.fftshift(x))


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


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
def test_the_last_part_of_a_split_reduction_runs_in_the_order_of_memory(format_) -> None:
    x = torch.randn(2, 20, 9, 8).contiguous(memory_format=format_)

    def normed(x):
        return x - x.mean((0, 2, 3), keepdim=True)

    (source,) = check(normed, x, options=TritonOptions(interpret=True, chunk=32))
    assert "tl.store(sub + xindex, " in source


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


def one_store(
    place: Index, value: Value, mode: StoreMode = "set", size: int = 6
) -> tuple[Kernel, dict[str, Buffer]]:
    loop = Var("i0", as_index(size))
    store = Store("out", place, value, mode, origin="node")
    kernel = Kernel("k", (loop,), (Sweep((), (store,)),), ("node",), torch.device("cpu"))
    buffers = {
        name: Buffer(name, dtype, (as_index(6),), (ONE,), kernel.device, "input")
        for name, dtype in (("at", torch.int64), ("x", torch.float32), ("out", torch.float32))
    }
    return kernel, buffers


PLACE = of_atom(Var("i0", as_index(6)))


@pytest.mark.parametrize("mode", ["add", "max", "min"])
def test_scatter_with_positions_that_meet(mode) -> None:
    where = of_atom(Indirect(Load("at", PLACE, torch.int64), as_index(6)))
    kernel, buffers = one_store(where, Load("x", PLACE, torch.float32), mode)
    x = torch.tensor([1.0, -2.0, float("nan"), 0.5, -3.0, 4.0])
    memory = {"at": torch.tensor([1, 1, 4, 1, 0, 4]), "x": x, "out": torch.zeros(6)}
    (source,) = check_kernels([kernel], buffers, memory, {})
    assert f"tl.atomic_{mode}" in source


def test_a_scatter_that_no_device_has_is_refused() -> None:
    kernel, buffers = one_store(PLACE, Load("x", PLACE, torch.float32), "prod")
    with pytest.raises(CodegenUnsupported, match=r"kernel k: node combines torch\.float32"):
        compile_kernels([kernel], buffers, TritonOptions(interpret=True), KernelSetting())


@pytest.mark.parametrize("size", [6, 9])
def test_a_debug_build_names_kernel_and_buffer_of_a_wild_access(size: int) -> None:
    loop = of_atom(Var("i0", as_index(size)))
    made, buffers = one_store(loop, Load("x", loop, torch.float32), size=size)
    options = TritonOptions(interpret=True, debug=True)
    (compiled,) = compile_kernels([made], buffers, options, KernelSetting())
    if size == 6:
        compiled.launch(torch.zeros(6), torch.ones(6))
        return
    with pytest.raises(
        KernelError, match=r"kernel k of \[node\].*a load of node reaches outside of x"
    ):
        compiled.launch(torch.zeros(16), torch.ones(16))


def test_a_debug_build_names_a_gather_out_of_range() -> None:
    where = of_atom(Indirect(Load("at", PLACE, torch.int64), as_index(6)))
    made, buffers = one_store(PLACE, Load("x", where, torch.float32))
    options = TritonOptions(interpret=True, debug=True)
    (compiled,) = compile_kernels([made], buffers, options, KernelSetting())
    with pytest.raises(KernelError, match="outside of its dimension"):
        compiled.launch(torch.zeros(6), torch.tensor([0, 1, 2, 3, 4, 6]), torch.ones(6))


def test_masks_are_left_out_where_a_size_divides_the_block() -> None:
    (source,) = check(lambda x: x + 1, torch.randn(4096))
    assert "mask" not in source
    (source,) = check(lambda x: x + 1, torch.randn(4097))
    assert "mask=xmask" in source


def test_positions_beyond_32_bits_have_64() -> None:
    loop = Var("i0", as_index(4))
    far = Load("x", of_atom(loop) * 2**30, torch.float32)
    kernel, _ = one_store(of_atom(loop), far, size=4)
    layout = layout_of(kernel, {})
    assert layout.wide
    assert "tl.program_id(0).to(tl.int64)" in kernel_source(kernel, layout, {})


def test_the_negative_of_zero_is_negative() -> None:
    negated = Op("neg", (Load("x", PLACE, torch.float32),), torch.float32)
    kernel, buffers = one_store(PLACE, negated)
    (compiled,) = compile_kernels([kernel], buffers, TritonOptions(interpret=True), KernelSetting())
    result = torch.zeros(6)
    compiled.launch(result, torch.zeros(6))
    assert result.signbit().all()


def test_what_is_one_number_for_a_block_is_read_once() -> None:
    """The mean and scale of a channel, where blocks lie within channels; elsewhere as blocks."""

    def normalized(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x - mean[:, None]) * scale[:, None]

    (whole,) = check(normalized, torch.randn(2, 3, 8192), torch.randn(3), torch.randn(3))
    assert "xstart // 8192" in whole
    (ragged,) = check(normalized, torch.randn(2, 3, 100), torch.randn(3), torch.randn(3))
    assert "xstart" not in ragged


def test_division_by_one_plus_exp() -> None:
    x = torch.randn(3, 50) * 30
    (source,) = check(lambda x: F.silu(x), x)
    assert "div_rn" not in source
    (source,) = check(lambda x, y: x / (1 + y), x, torch.rand(3, 50))
    assert "div_rn" in source


@pytest.mark.parametrize(("size", "in_runs"), [((4, 8), True), ((3, 5), False), ((2, 2), False)])
def test_what_is_one_number_for_a_run_is_read_once(size: tuple[int, int], in_runs: bool) -> None:
    """The weight of a channel, where a row of a group is a few channels one after the other."""
    given = torch.randn(3, 8, *size), torch.randn(8), torch.randn(8)
    (source,) = check(lambda x, w, b: F.silu(F.group_norm(x, 2, w, b)), *given)
    assert ("tl.reshape" in source) == in_runs
