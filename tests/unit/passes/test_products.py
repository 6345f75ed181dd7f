"""Products and the operations around them: beside Inductor, and written in place."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

import ctk
from ctk.compiler.options.config import Config
from ctk.toolkit.compile_log.recorder import Recorder

aten = torch.ops.aten
A, B, C, D = (torch.randn(6, 6) for _ in range(4))
PLACES = torch.tensor([[0], [5], [2], [2], [1], [3]])
ROWS, WIDE = torch.randn(4096, 8).double(), torch.randn(8, 8).double()
EVERY = {"decompose_products.enabled": "always"}

BESIDE = {  # program, inputs, options of Inductor, our pass, options of ours
    "addmm": (lambda a, b, c: a @ b + c[:1], (A, B, C), {}, "fuse_addmm", {}),
    "addmm of a column": (lambda a, b, c: a @ b + c[:, :1], (A, B, C), {}, "fuse_addmm", {}),
    "addmm of a number": (lambda a, b, c: c[0, 0] + a @ b, (A, B, C), {}, "fuse_addmm", {}),
    "mm_plus_mm": (lambda a, b, c, d: a @ b + c @ d, (A, B, C, D), {}, "fuse_addmm", {}),
    "scatter_upon_const_tensor": (
        lambda i: torch.zeros(6, 9).scatter(1, i, 1.5) * 2, (PLACES,), {}, "scatter_to_where", {}
    ),
    "decompose_mm": (
        lambda a, b: a @ b, (A[:1], B),
        {"post_grad_fusion_options": {"decompose_mm_pass": {}}}, "decompose_products", EVERY,
    ),
    "decompose_bmm": (
        lambda a, b: torch.bmm(a[None], b[None]), (A, B),
        {"post_grad_fusion_options": {"decompose_mm_pass": {}}}, "decompose_products", EVERY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_that_inductor_rewrites(name):
    program, inputs, options, step, ours = BESIDE[name]
    counters.clear()
    torch._dynamo.reset()
    with inductor.patch(fx_graph_cache=False, **options):
        torch.compile(program)(*inputs)
    assert counters["inductor"]["pattern_matcher_count"]
    assert rewrites_of(step, compiled(program, inputs, ours))


def compiled(program, inputs, options):
    recorder = Recorder()
    torch._dynamo.reset()
    config = Config().patch(options)
    call = torch.compile(program, backend=lambda gm, x: ctk.compile_fx(gm, x, config, recorder))
    torch.testing.assert_close(call(*inputs), program(*inputs))
    torch.testing.assert_close(call(*inputs), program(*inputs))  # no call changes an input
    return recorder.log


def rewrites_of(name, log):
    return [rewrite for each in log.passes() if each.id.name == name for rewrite in each.rewrites]


def test_a_product_is_added_to_another_in_place():
    log = compiled(lambda a, b, c, d: (a @ b + c @ d) * 2, (A, B, C, D), {})
    assert len(rewrites_of("reinplace", log)) == 1
    batch = torch.randn(3, 6, 6)
    log = compiled(lambda a: torch.baddbmm(torch.bmm(a, a), a, a).sin(), (batch,), {})
    assert len(rewrites_of("reinplace", log)) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b, c: a @ b + c,  # an input
        lambda a, b, c: (y := c @ b, a @ b + y),  # a result
        lambda a, b, c: (a @ b + (y := c @ b)) * y,  # read again
        lambda a, b, c: a @ b + (c @ b)[0],  # a part
        lambda a, b, c: torch.addmm(y := c @ b, y, b),  # a factor as well
    ],
)
def test_a_product_is_not_added_in_place(program):
    assert not rewrites_of("reinplace", compiled(program, (A, B, C), {}))


def test_a_decomposed_product_has_the_gradients_of_the_product():
    x, w = ROWS.clone().requires_grad_(), WIDE.clone().requires_grad_()
    expected = torch.autograd.grad((x @ w).sin().sum(), (x, w))
    recorder = Recorder()
    torch._dynamo.reset()
    call = torch.compile(
        lambda x, w: (x @ w).sin().sum(),
        backend=lambda gm, i: ctk.compile_fx(gm, i, Config(), recorder),
    )
    found = torch.autograd.grad(call(x, w), (x, w))
    assert rewrites_of("decompose_products", recorder.log)
    torch.testing.assert_close(found, expected)


def test_an_index_out_of_range_is_an_error():
    for place in (-1, 9):
        torch._dynamo.reset()
        call = torch.compile(lambda i: torch.zeros(6, 9).scatter(1, i, 1.0) * 2, backend="ctk")
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            call(torch.full((6, 1), place))
