"""Lowerings of operators next to eager: values, types, strides and gradients."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.operators import LOWERINGS, TABLES
from ctk.compiler.passes.joint.philox import DRAW
from tests.helpers.lowered import Lowered, captured, compare
from tests.helpers.torch_bugs import LOST_CHANNELS_LAST

LIST = torch.tensor([2, 0, 3, 0])


def rows(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator).requires_grad_()


def images() -> Tensor:
    return rows(2, 4, 3, 5).detach().contiguous(memory_format=torch.channels_last).requires_grad_()


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), (rows(3, 5),)),
    "gates": (lambda x: F.silu(x) * F.mish(x) + F.glu(torch.cat([x, x], 1), 1), (rows(3, 5),)),
    "hard": (lambda x: F.hardswish(4 * x) + F.hardtanh(x) + F.hardsigmoid(4 * x), (rows(3, 5),)),
    "kinks": (lambda x: F.elu(x) + F.leaky_relu(x) + F.softplus(x) + F.relu(x), (rows(3, 5),)),
    "shrink": (lambda x: F.softshrink(x) + F.hardshrink(x) + F.logsigmoid(x), (rows(3, 5),)),
    "softmax": (lambda x: F.softmax(x, 0) + F.log_softmax(x, -1), (rows(3, 5),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), (rows(3, 5), rows(5), rows(5))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (rows(3, 5), rows(5))),
    "group_norm": (
        lambda x, w, b: F.group_norm(x, 2, w, b),
        (rows(2, 4, 3, 5), rows(4), rows(4)),
    ),
    "channels_last": (lambda x, w, b: F.group_norm(x, 2, w, b), (images(), rows(4), rows(4))),
    "batch_norm": (
        lambda x, m, v, w: F.batch_norm(x, m, v, w, training=True),
        (images(), torch.zeros(4), torch.ones(4), rows(4)),
    ),
    "batch_norm_eval": (
        lambda x, m, v, w: F.batch_norm(x, m, v, w),
        (images(), torch.zeros(4), torch.ones(4), rows(4)),
    ),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t, ignore_index=0, label_smoothing=0.1),
        (rows(4, 5), LIST),
    ),
    "pixels": (
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        (rows(2, 5, 2), torch.tensor([[0, 4], [1, 1]])),
    ),
    "losses": (
        lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y),
        (rows(3, 5), rows(5, 3).detach().T),
    ),
    "embedding": (lambda w, i: F.embedding(i, w, padding_idx=0), (rows(5, 3), LIST)),
    "concatenated": (lambda x, y: torch.cat([x, y, x[:, :0]], 1), (rows(3, 5), rows(3, 2))),
    "stacked": (lambda x, y: torch.stack([x, y], 1), (rows(3, 5), rows(3, 5))),
    "padded": (lambda x: F.pad(x, (1, -1, 2, 0), value=1.5), (rows(3, 5),)),
    "moved": (lambda x: torch.roll(x, (1, -2), (0, 1)).flip(0).repeat(2, 1), (rows(3, 5),)),
    "cut": (lambda x: x[1:, ::2] * x.select(0, 0)[1:4] + x.diagonal(), (rows(3, 5),)),
    "parts": (lambda x: [a.exp() for a in (*x.split(2, 1), *x.unbind())], (rows(3, 5),)),
    "triangle": (lambda x: torch.tril(x) - torch.triu(x, 1), (rows(4, 4),)),
    "moments": (lambda x: x.var(0) + x.std(0, correction=0) + x.mean(0), (rows(3, 5),)),
    "norms": (lambda x: x.norm(dim=1) + x.norm(p=1, dim=1) + x.norm(p=3, dim=1), (rows(3, 5),)),
    "extremes": (lambda x: [x.amax(1), *x.max(0), x.argmin(), x.logsumexp(1)], (rows(3, 5),)),
    "indexed": (lambda x, i: x[i - 4] + x[:, i, None][1:2, :, 0] @ x, (rows(4, 4), LIST)),
    "gathered": (lambda x, i: x.gather(1, i[:, None]) * x.index_select(0, i), (rows(4, 4), LIST)),
    "scattered": (
        lambda x, i: x.scatter_add(0, i[None], x[:1] * 2).index_put((i,), x, accumulate=True),
        (rows(4, 4), LIST),
    ),
    "pooled": (lambda x: F.max_pool2d(x, 2, 1, 1) + F.avg_pool2d(x, 2, 1, 1), (images(),)),
    "reflected": (lambda x: F.pad(x, (1, 2), "reflect").exp(), (rows(3, 5),)),
    "no axes": (lambda x: [(x > 0).any(dim=()), (x > 0).all(dim=()), x.sum(())], (rows(3, 5),)),
    "one infinity": (lambda x: x.var(correction=0), (torch.tensor(torch.inf),)),
    "compared": (
        lambda x, y: [x.bfloat16() == y, x.bfloat16() < y, torch.heaviside(x * torch.nan, y)],
        (torch.full((3,), 0.1), torch.tensor(0.1)),
    ),
    "sizes": (lambda x: torch.tril(x, x.shape[1] - 6) + F.pad(x, (0, 0, 1, 0))[1:], (rows(3, 5),)),
    "running": (lambda x: x.cumsum(0) + x.cumprod(1), (rows(3, 5),)),
    "integers": (lambda i: [i // 2, i % -3, i**3, i.sum(), i.float() / 3, i & 1, ~i], (LIST,)),
    "divided": (
        lambda x, y: [x // y, x % y, torch.fmod(x, y), x.div(y, rounding_mode="trunc")],
        (torch.tensor([5.0, -5.0, 0.0, torch.inf]), torch.tensor([3.0, 3.0, -2.0, 0.0])),
    ),
    "chosen": (
        lambda x: torch.where(x > 0, x, 0.5).masked_fill(x > 1, 2).clamp(-1, 1.5),
        (rows(3, 5),),
    ),
    "mixed": (lambda x, y: x.half() + y.bfloat16() * 2 + torch.lerp(x, y, 0.7), (rows(3), rows(3))),
    "made": (lambda x: x + torch.arange(5) + torch.eye(3, 5), (rows(3, 5),)),
    "written": (lambda x, y: x.t().copy_(y.exp()).sum(0), (torch.zeros(5, 3), rows(3, 5).detach())),
    "lists": (lambda x, y: torch._foreach_mul([x, y.exp()], 0.5), (rows(3), rows(2))),
    "drawn": (lambda s: DRAW(s, 1, [3, 5], "uniform", torch.float32), (torch.tensor([5, 7]),)),
    "scalar": (lambda x: F.softmax(x, 0) + x.cumsum(0) + x.amax() + x.var(correction=0), (rows(),)),
    "empty": (lambda x: [x.softmax(1), x.sum(1), torch.cat([x, x]), x.mean(1)], (rows(3, 0),)),
}  # fmt: skip

BUGS = {"channels_last": LOST_CHANNELS_LAST}
"""The bugs of torch that make eager another result than the one that torch promises."""


def named(names: Iterable[str]) -> list[Any]:
    marks = {name: bug.is_harmful for name, bug in BUGS.items()}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


@pytest.mark.parametrize("name", named(CALLS))
def test_kernels_compute_what_eager_does(name: str) -> None:
    call, inputs = CALLS[name]
    compare(call, *inputs)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("activation_gradients", "gelu"),
        ("activations", "gelu"),
        ("comparisons", "compared"),
        ("creation", "made"),
        ("foreach", "lists"),
        ("functions", "compared"),
        ("indexing", "embedding"),
        ("losses", "losses"),
        ("movement", "concatenated"),
        ("normalization", "layer_norm"),
        ("normalization_gradients", "layer_norm"),
        ("padding", "reflected"),
        ("pointwise", "mixed"),
        ("pooling", "pooled"),
        ("random", "drawn"),
        ("reductions", "moments"),
        ("scans", "running"),
        ("softmax", "softmax"),
        ("writes", "written"),
    ],
)
def test_each_table_makes_kernels(module: str, name: str) -> None:
    table = importlib.import_module(f"ctk.compiler.lowering.operators.{module}").TABLE
    call, inputs = CALLS[name]
    lowered = compare(call, *inputs)
    made = {
        node.target
        for gm, program in lowered.graphs
        for step in program.steps
        if isinstance(step, Kernel)
        for node in gm.graph.nodes
        if node.name in step.nodes
    }
    assert made & table.keys()


@pytest.mark.parametrize(
    "name", ["layer_norm", "cross_entropy", "concatenated", "cut", "moments", "sizes"]
)
def test_sizes_may_be_symbols(name: str) -> None:
    call, inputs = CALLS[name]
    compare(call, *inputs, dynamic=True)


LOST_ROUNDINGS = frozenset(("mixed",))
"""Within a kernel 16 bits that were cast are not rounded, so results are not those of eager."""


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", named(sorted(CALLS.keys() - LOST_ROUNDINGS)))
def test_kernels_in_c_compute_what_eager_does(name: str, *, dynamic: bool) -> None:
    call, inputs = CALLS[name]
    compare(call, *inputs, dynamic=dynamic, codegen="c")


def test_zeros_keep_their_sign_at_a_bound_in_c() -> None:
    def bounded(x: Tensor) -> list[Tensor]:
        bounds = x.relu(), x.clamp(min=0), x.clamp(-0.0, 0.0), F.hardtanh(x, 0.0, 1.0), F.relu6(x)
        return [each.signbit() for each in (*bounds, torch.fmax(x, -x), torch.fmin(x, -x))]

    compare(bounded, torch.tensor([0.0, -0.0] * 8), codegen="c")


@pytest.mark.parametrize("name", ["embedding", "scattered"])
def test_what_meets_in_c_is_added_up(name: str) -> None:
    call, inputs = CALLS[name]
    compare(call, *inputs, codegen="c")


def test_a_position_out_of_range_is_an_index_error_in_c() -> None:
    with pytest.raises(IndexError, match=r"index 9 is out of bounds .* size 4"):
        captured_in_c(lambda x, i: x[i] + 1, rows(4, 3).detach(), torch.tensor([1, 9]))


def captured_in_c(call: Callable[..., Any], *inputs: Tensor) -> object:
    return Lowered("c").compile(captured(call, len(inputs)), inputs)(*inputs)


def test_each_operator_is_listed_once_and_in_order() -> None:
    for table in TABLES:
        names = [str(operator) for operator in table]
        assert names == sorted(names)
    assert len(LOWERINGS) == sum(map(len, TABLES))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_write_into_memory_that_exists(dtype: torch.dtype) -> None:
    """What `reinplace` makes of a graph."""

    def write(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        aten = torch.ops.aten
        aten.index_put_.default(x, [i], y)
        aten.masked_fill_.Scalar(x, x > 0.5, 0.25)
        aten.scatter_add_.default(y, 1, i[None], x[:1])
        aten.copy_.default(x[1:], y[1:].exp())
        return x + y

    places = torch.tensor([2, 0, 3, 1])
    inputs = [rows(4, 4).detach().to(dtype), rows(4, 4).detach().to(dtype) * 2, places]
    gm = make_fx(write, tracing_mode="fake")(*inputs)
    program = lower(gm)
    copies = [[each.clone() for each in inputs] for _ in range(2)]
    results = [run_program(gm, program, copies[0], check=True), write(*copies[1])]
    for mine, eager in zip([results[0], *copies[0]], [results[1], *copies[1]], strict=True):
        torch.testing.assert_close(mine, eager)
    kernels = {node for step in program.steps if isinstance(step, Kernel) for node in step.nodes}
    assert {"index_put_", "masked_fill_", "copy_"} <= kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_random_numbers_have_the_bits_of_the_operator(dtype: torch.dtype) -> None:
    def draw(seeds: Tensor) -> list[Tensor]:
        return [
            DRAW(seeds, 1, [3, 5], kind, dtype, stride=[1, 3]) for kind in ("uniform", "normal")
        ]

    seeds = torch.tensor([5, -(2**62) + 12345])
    gm = make_fx(draw, tracing_mode="fake")(seeds)
    program = lower(gm)
    mine = run_program(gm, program, [seeds], check=True)
    assert all(isinstance(step, Kernel) for step in program.steps)
    assert torch.equal(mine[0], draw(seeds)[0])
    torch.testing.assert_close(mine[1], draw(seeds)[1], rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.skipif(
    not hasattr(ShapeEnv, "error_on_new_guards"), reason="torch 2.11 cannot refuse guards"
)
def test_an_operator_without_a_lowering_is_taken_apart() -> None:
    """Its kernels all come from the node, and have the strides of eager."""
    lowered = compare(lambda x: F.unfold(x, 2).exp(), rows(1, 2, 3, 5))
    assert not lowered.library
    (_, forward), *_ = lowered.graphs
    origins = {node for step in forward.steps if isinstance(step, Kernel) for node in step.nodes}
    assert origins == {"im2col", "exp"}


def test_what_is_no_kernel_says_why() -> None:
    lowered = compare(
        lambda x, y: torch.mm(x, y).sort()[0] + torch.polygamma(2, x), rows(4, 4), rows(4, 4)
    )
    why = {str(call.node.target): call.why for call in lowered.library}
    assert why["aten.mm.default"] == "it has no lowering"
    assert "iterations without a bound" in why["aten.polygamma.default"]


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_many_parts_are_joined_by_the_library(join) -> None:
    parts = [rows(2, 3) for _ in range(33)]
    few = compare(lambda *xs: join(xs, 1) * 2, *parts[:32])
    many = compare(lambda *xs: join(xs, 1) * 2, *parts)
    assert not few.library
    assert [call.why for call in many.library] == ["it joins more than 32 parts"]


def test_a_write_into_an_input_stays_behind_what_reads_it() -> None:
    """The kernel that writes is no producer of the one that read before."""

    def renew(x: Tensor, mean: Tensor) -> Tensor:
        return mean.copy_(x.mean(0) + 0.9 * mean)

    inputs = [rows(2, 4).detach(), torch.ones(4)]
    gm = make_fx(renew, tracing_mode="fake")(*inputs)
    program = fuse(lower(gm), lambda *_: True)
    copies = [[each.clone() for each in inputs] for _ in range(2)]
    run_program(gm, program, copies[0], check=True)
    renew(*copies[1])
    torch.testing.assert_close(copies[0][1], copies[1][1])


def test_a_number_that_only_the_call_knows_is_computed_with_or_left_to_the_library() -> None:
    soft = compare(lambda x, n: F.softplus(x, beta=n), rows(3, 5), 3, dynamic=True)
    assert not soft.library
    norm = compare(lambda x, p: torch.linalg.vector_norm(x, p, 1), rows(3, 5), 3, dynamic=True)
    (call,) = (call for call in norm.library if "vector_norm" in str(call.node.target))
    assert call.why == "it asks for a number that only the call knows"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_scatter_that_a_gpu_cannot_do_in_one_order_is_the_librarys(dtype: torch.dtype) -> None:
    with FakeTensorMode():
        at = torch.zeros(4, dtype=torch.int64, device="cuda")
        gm = make_fx(lambda x: x.index_add(0, at, x))(torch.empty(4, dtype=dtype, device="cuda"))

    def is_lowered() -> bool:
        return all(isinstance(step, Kernel) for step in lower(gm).steps)

    assert is_lowered() == (dtype == torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not is_lowered()
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_second_result_of_log_sigmoid_is_empty_on_a_gpu() -> None:
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        gm = make_fx(torch.ops.aten.log_sigmoid_forward.default)(x)
    assert all(isinstance(step, Kernel) for step in lower(gm).steps)
