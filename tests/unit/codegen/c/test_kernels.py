"""Kernels as C compute what eager computes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.c.c_codegen import COptions
from ctk.compiler.codegen.c.toolchain import find_compiler, openmp_library
from ctk.compiler.codegen.select import generate
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.ir import Buffer, Kernel, Load, Store, Sweep
from ctk.compiler.lowering.lower import lower
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.sizes.index import Indirect, Var, as_index, of_atom
from tests.helpers.c_kernels import launch_all, memory_of, run_as_c

GENERATOR = torch.Generator().manual_seed(9)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def several(x, y):
    gelu = torch.nn.functional.gelu(x + y)
    total = (x * 2).sum(), x.double().sum(0), x.amax(1), x.amin(), x.mean(-1)
    norm = torch.nn.functional.layer_norm(x, x.shape[1:], y, y)
    return gelu, *total, norm, torch.softmax(x, -1), x + x.exp().t()[: x.shape[0]].t()[:, :1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_kernels_compute_what_eager_computes(dtype: torch.dtype) -> None:
    inputs = drawn(7, 33, dtype=dtype), drawn(33, dtype=dtype)
    found, wanted = run_as_c(several, *inputs), several(*inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_extremes_keep_nan() -> None:
    x = drawn(4, 50)
    x[1, 17] = float("nan")
    x[2] = float("-inf")
    found = run_as_c(lambda x: (x.amax(1), x.amin(1)), x)
    torch.testing.assert_close(found, [x.amax(1), x.amin(1)], equal_nan=True)


def test_long_sums_keep_their_digits() -> None:
    x = torch.rand(1_000_000, generator=GENERATOR)
    (found,) = run_as_c(lambda x: x.sum(), x)
    assert abs(found.double() - x.double().sum()) <= 0.1


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CodegenUnsupported, match=r"no C compiler found \(looked for cc, gcc"):
        find_compiler()


def test_a_compiler_that_was_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "mycc -m64")
    with pytest.raises(CodegenUnsupported, match="there is no C compiler mycc, which CC names"):
        find_compiler()


def test_a_compiler_that_is_no_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc '-O")
    with pytest.raises(CodegenUnsupported, match="is not a command: No closing quotation"):
        find_compiler()


def test_a_wild_index_becomes_an_exception_with_kernel_and_node() -> None:
    x = drawn(4, 8)
    program = lower(make_fx(lambda x: x + 1, tracing_mode="fake")(x))
    (kernel,) = program.steps
    assert isinstance(kernel, Kernel)
    ((store,),) = (sweep.statements for sweep in kernel.sweeps)
    wrong = replace(store, index=store.index + 3)
    kernel = replace(kernel, sweeps=(Sweep((), (wrong,)),))
    memory = memory_of(program.buffers, {"x_1": x})
    with pytest.raises(RuntimeError, match=r"kernel add writes element 3[2-4] of the buffer add"):
        launch_all([kernel], program.buffers, memory, COptions(sanitize=("address",)))


def test_a_position_out_of_range_is_an_index_error() -> None:
    memory = {"x": drawn(4), "where": torch.tensor([1, 9]), "out": torch.zeros(2)}
    buffers = {name: buffer_of(name, each) for name, each in memory.items()}
    loop = Var("i0", as_index(2))
    place = Indirect(Load("where", of_atom(loop), torch.int64), as_index(4))
    store = Store("out", of_atom(loop), Load("x", of_atom(place), torch.float32), origin="taken")
    kernel = Kernel("out", (loop,), (Sweep((), (store,)),), ("taken",), torch.device("cpu"))
    with pytest.raises(IndexError, match=r"index 9 is out of bounds .* size 4 .node taken"):
        launch_all([kernel], buffers, memory)
    assert memory["out"].tolist() == [memory["x"][1].item(), 0.0]


def test_transposed_loads_and_pieces_of_loops() -> None:
    def transposed(x, y):
        both = torch.cat((x, y.t()), 1)
        return x + y.t(), torch.nn.functional.pad(both, (2, 1)) * 2

    inputs = drawn(45, 37), drawn(37, 45)
    for found, wanted in zip(run_as_c(transposed, *inputs), transposed(*inputs), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.uint8])
@pytest.mark.parametrize("sanitize", [(), ("address",)])
def test_tiles_are_transposed(dtype: torch.dtype, sanitize: tuple[Literal["address"], ...]) -> None:
    def transposed(x, y):
        return x + y.transpose(0, 2), x.transpose(1, 2).contiguous()

    x, y = (drawn(*shape).mul(9).abs().to(dtype) for shape in ((67, 3, 43), (43, 3, 67)))
    found = run_as_c(transposed, x, y, options=COptions(sanitize=sanitize))
    for one, wanted in zip(found, transposed(x, y), strict=True):
        assert torch.equal(one, wanted)


def test_rows_that_begin_again_are_not_transposed_whole() -> None:
    x = drawn(37, 150)
    (found,) = run_as_c(lambda x: [x.t().repeat(1, 2) * 2], x)
    assert torch.equal(found, x.t().repeat(1, 2) * 2)


LAYOUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a store across": lambda x, y: (x + y * 2 - x * y).t().contiguous(),
    "parts that are transposed": lambda x, y: torch.stack((x.t(), y.t() * 2)),
    "columns that are transposed": lambda x, y: torch.cat((x.t(), y.t() * 2), 1),
    "two that are transposed": lambda x, y: x.t() * 2 + y.t() - x.t().contiguous(),
    "types of several sizes": lambda x, y: (x.t() + y.double().t() > 0).contiguous(),
    "rows of what is transposed": lambda x, _: (x.t() - x.t().amax(1, True)).contiguous(),
    "rows of both kinds": lambda x, y: (x.t() * y.reshape(150, 37)).amax(1),
    "rows of bools": lambda x, y: ((x > 0).t() & (y > 0).reshape(150, 37)).any(1),
    "pairs side by side": lambda x, y: torch.stack((x + y, x - y), -1),
    "threes side by side": lambda x, y: torch.stack((x, x - y, y), -1).flatten(1),
    "pairs of a transposed one": lambda x, y: torch.stack((x.t() + y.view(150, 37), x.t() * 2), -1),
    "flipped across": lambda x, y: x.flip(1).t() + y.view(150, 37),
    "stored flipped across": lambda x, y: (x + y).flip(1).t().contiguous(),
    "flipped both ways": lambda x, y: x.flip(0, 1).t() + y.view(150, 37),
    "every second of a transposed one": lambda x, y: x[:, ::2].t() + y.view(150, 37)[:75],
    "parts beside each other": lambda x, y: torch.cat(
        [(part * 2).t().reshape(-1) for part in x.chunk(3, 1)]
    ),
    "windows that overlap": lambda x, y: x.view(-1)[:186].unfold(0, 150, 1) + y,
    "windows of a transposed one": lambda x, y: (
        x.view(-1)[:186].unfold(0, 150, 1).t() + y.t()
    ).contiguous(),
    "too much for registers": lambda x, y: (
        x.t()
        .abs()
        .clamp(1, 5)
        .maximum(y.t())
        .neg()
        .clamp(-4, 3)
        .minimum(y.t().abs())
        .maximum(x.view(150, 37))
        .abs()
        .sub(y.view(150, 37))
        .clamp(-6, 6)
        .neg()
    ),
    "a few columns": lambda x, _: x[:, :3].t().contiguous() * 2,
    "rolled": lambda x, y: (x + y).roll((3, -50), (0, 1)),
    "rolled and turned": lambda x, y: (x + y).flip(1).roll(5, 1).roll(-1, 0),
    "repeated": lambda x, y: (x * y).repeat(2, 3),
    "many parts": lambda x, y: torch.cat([part + 1 for part in (*x.chunk(9, 1), y)], 1),
    "parts of one element": lambda x, y: torch.cat((x[:1], y[3:4], x[2:3]), 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_each_layout_is_written(dtype: torch.dtype) -> None:
    x, y = (drawn(37, 150).mul(2).round().to(dtype) for _ in range(2))
    call = torch.compile(
        lambda *inputs: [call(*inputs) for call in LAYOUTS.values()], backend="ctk"
    )
    for name, one in zip(LAYOUTS, call(x, y), strict=True):
        wanted = LAYOUTS[name](x, y)
        assert (one.shape, one.stride()) == (wanted.shape, wanted.stride()), name
        assert torch.equal(one, wanted), name


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64])
def test_tiles_of_every_width_end_anywhere(dtype: torch.dtype) -> None:
    """Squares of 4 to 16 rows, tiles of 8 to 64: of sides just below and above each."""
    sides = ((16, 16), (17, 129), (63, 31), (64, 128), (65, 143))
    inputs = [drawn(*side).mul(50).abs().to(dtype) for side in sides]
    found = run_as_c(lambda *given: [x.t().contiguous() for x in given], *inputs)
    assert all(torch.equal(one, x.t()) for one, x in zip(found, inputs, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("sanitize", [(), ("address",)])
def test_squares_end_anywhere(dtype: torch.dtype, sanitize: tuple[Literal["address"], ...]) -> None:
    """Blocks of 128 rows, squares of 16: of sides just below and above each."""

    def turned(x, y):
        return x + y.t(), (x + x * 2).t().contiguous(), x.flip(0).t() + y

    for side in ((16, 16), (31, 16), (16, 47), (128, 144), (129, 257)):
        x, y = drawn(*side).mul(50).to(dtype), drawn(*reversed(side)).mul(50).to(dtype)
        found = run_as_c(turned, x, y, options=COptions(sanitize=sanitize))
        for one, wanted in zip(found, turned(x, y), strict=True):
            assert torch.equal(one, wanted)


def test_squares_of_sizes_that_vary() -> None:
    call = torch.compile(lambda x, y: x + y.t(), backend="ctk", dynamic=True)
    for side in ((16, 33), (130, 64), (3, 200), (1, 17), (0, 40)):
        x, y = drawn(*side), drawn(*reversed(side))
        assert torch.equal(call(x, y), x + y.t())


def test_nodes_may_be_called_like_functions_of_c() -> None:
    """Eager's library rounds some roots of numbers that are no squares to the farther neighbour."""
    x = drawn(5, dtype=torch.float64).mul(9).round().square()
    wanted = x.sqrt().floor(), x.sqrt()
    for found, each in zip(
        run_as_c(lambda x: (x.sqrt().floor(), x.sqrt()), x), wanted, strict=True
    ):
        assert torch.equal(found, each)


@pytest.mark.parametrize("name", ["empty", "i0"])
def test_nodes_may_be_called_like_what_is_around_them(name: str) -> None:
    graph = Graph()
    x = graph.placeholder(name)
    x.meta["val"] = drawn(3)
    made = graph.call_function(torch.ops.aten.abs.default, (x,))
    made.meta["val"] = drawn(3)
    graph.output((made,))
    gm, numbering = GraphModule({}, graph), Numbering(config=Config(codegen="c", fallback=()))
    found = generate(gm, [drawn(3)], "forward", numbering)([-torch.ones(3)])
    assert torch.equal(found[0], torch.ones(3))


def test_torch_has_the_only_threads() -> None:
    run_as_c(lambda x: x + 1, drawn(300, 300))
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    loaded = {line.split()[-1] for line in lines if "libgomp" in line}
    assert loaded <= {openmp_library()}


def buffer_of(name: str, tensor: torch.Tensor) -> Buffer:
    shape, strides = map(as_index, tensor.shape), map(as_index, tensor.stride())
    return Buffer(name, tensor.dtype, tuple(shape), tuple(strides), tensor.device, "input")
