"""Kernels as C compute what eager computes."""

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


def test_nodes_may_be_called_like_functions_of_c() -> None:
    x = drawn(5, dtype=torch.float64).abs()
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
