"""Triton kernels on a real device: eager's values, alignments, streams, graphs, two launches."""

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional as F

from ctk.compiler.cache_folder.notes import Notes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def compiled(function: Callable, **options: object) -> Callable:
    torch._dynamo.reset()
    given = {"codegen": "triton", "fallback": (), "passes": {"triton": options}}
    return torch.compile(function, backend="ctk", options=given)


def check(function: Callable, *inputs: torch.Tensor, **options: object) -> None:
    """Compare with float64: of 16 bits eager rounds in between, where kernels do not."""
    run = compiled(function, **options)
    exact = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    for _ in range(2):
        found = run(*inputs)
        assert found.dtype == function(*inputs).dtype
        torch.testing.assert_close(found.to(exact.dtype), exact, rtol=1e-2, atol=1e-3)


def draw(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


PROGRAMS: dict[str, tuple[Callable, Callable]] = {
    "bias_gelu": (lambda x, b: F.gelu(x + b), lambda: (draw(512, 768), draw(768))),
    "layer_norm": (
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda: (draw(300, 1000, dtype=torch.bfloat16),),
    ),
    "softmax_of_long_rows": (lambda x: torch.softmax(x, -1), lambda: (draw(200, 50257),)),
    "group_norm": (
        lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)),
        lambda: (
            draw(6, 64, 32, 32, dtype=torch.bfloat16),
            draw(64).bfloat16(),
            draw(64).bfloat16(),
        ),
    ),
    "batch_norm": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True)),
        lambda: (draw(64, 16, 32, 32), draw(16), draw(16)),
    ),
    "long_column_sum": (lambda x, y: (x * y).sum(0), lambda: (draw(40000, 200), draw(40000, 200))),
    "sum_of_all": (lambda x: x.sum(), lambda: (draw(1000, 3000),)),
    "variance_of_all": (lambda x: x.var(), lambda: (draw(1000, 3000),)),
    "column_sum": (lambda x: x.sum(0), lambda: (draw(9000, 300),)),
    "transpose": (lambda x, y: x + y.t(), lambda: (draw(300, 400), draw(400, 300))),
    "argmax": (lambda x: x.argmax(-1), lambda: (draw(64, 3000),)),
    "cumsum": (lambda x: x.cumsum(-1), lambda: (draw(64, 3000),)),
    "gather": (
        lambda w, at: w[at] * 2,
        lambda: (draw(50, 64), torch.randint(0, 50, (70,), device="cuda")),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    function, inputs = PROGRAMS[name]
    check(function, *inputs())


@pytest.mark.parametrize("name", ["bias_gelu", "layer_norm"])
def test_autotuned_layouts(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path))
    function, inputs = PROGRAMS[name]
    check(function, *inputs(), autotune=True)
    with contextlib.closing(sqlite3.connect(Notes(tmp_path).path)) as kept:
        assert kept.execute("SELECT count(*) FROM choices").fetchone()[0] > 0


def test_addresses_that_are_no_multiples_of_16() -> None:
    x = draw(1025)
    run = compiled(lambda x: x * 2)
    for part in (x[:1024], x[1:]):
        torch.testing.assert_close(run(part), part * 2)


def test_sums_have_the_same_bits_each_time() -> None:
    x = draw(3000, 1000)
    run = compiled(lambda x: (x.sum(), x.sum(0), x.var()))
    first = run(x)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(run(x), first, strict=True))


def test_kernels_run_on_the_current_stream_and_in_cuda_graphs() -> None:
    x = draw(256, 1000)
    run = compiled(lambda x: torch.softmax(x, -1).sum(0))
    run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run(x)
    x.copy_(draw(256, 1000))
    graph.replay()
    torch.testing.assert_close(result, torch.softmax(x, -1).sum(0), rtol=1e-4, atol=1e-4)


def test_kernels_run_in_a_new_thread() -> None:
    """Its first launch is the driver's, which knows no device there."""
    x = draw(256, 1000)
    run = compiled(lambda x: x * 2 + 1)
    run(x)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(run, x).result()
    torch.testing.assert_close(result, x * 2 + 1)


def test_dynamic_sizes_reuse_a_kernel() -> None:
    function = PROGRAMS["layer_norm"][0]
    torch._dynamo.reset()
    options = {"codegen": "triton", "fallback": ()}
    run = torch.compile(function, backend="ctk", options=options, dynamic=True)
    for rows, length in ((3, 100), (70, 1024), (2, 40000)):
        x = draw(rows, length)
        torch.testing.assert_close(run(x), function(x), rtol=1e-3, atol=1e-4)


def test_accuracy_of_roots_and_of_subnormal_results() -> None:
    """Within one ULP of float64; a subnormal result is none less than a normal one."""
    special = torch.tensor([0.0, -0.0, float("inf"), float("nan"), -1.0, 1e-40], device="cuda")
    x = torch.cat((draw(100_000).exp2(), draw(1000).abs() * 1e30, special))
    exact = x.double().rsqrt()
    error = ((compiled(lambda x: x.rsqrt())(x).double() - exact) / exact).abs()
    assert error[:-6].max() < 2**-23
    torch.testing.assert_close(
        compiled(lambda x: x.rsqrt())(special), special.rsqrt(), equal_nan=True
    )
    low = torch.linspace(-103, -88, 1000, device="cuda")
    torch.testing.assert_close(compiled(lambda x: x.exp())(low), low.exp(), rtol=1e-6, atol=1.5e-45)


def test_rms_norm_is_as_near_to_float64_as_rounding_allows() -> None:
    x, weight = draw(4096, 1024), draw(1024)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    exact = norm(x.double(), weight.double())
    own = (compiled(norm)(x, weight) - exact).abs().max()
    assert own <= 2 * (norm(x, weight) - exact).abs().max()


@pytest.mark.parametrize("length", [1000, 70_000])
@pytest.mark.parametrize("scale", [1e3, 1e10, 1e30])
def test_a_scaled_softmax_of_large_numbers_is_finite(scale, length):
    """Unrounded, the largest product exceeds the maximum, and its exponential is infinite."""
    x = draw(16, length) * scale
    for function in (lambda x: (x * 3.1).softmax(-1), lambda x: (x * 3.1 + x).softmax(-1)):
        assert torch.equal(compiled(function)(x).isnan(), function(x).isnan())
