"""Chains of casts, views and operations that change nothing: exact, and beside Inductor."""

import itertools

import pytest
import torch
from torch._inductor import config as inductor

import ctk
from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint import remove_noops, simplify_casts, simplify_views
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten, prims = torch.ops.aten, torch.ops.prims
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
    *(torch.complex64, torch.complex128),
)
EXACT = (0.0, -0.0, 1, -1.5, 255, 256, 257, 2049, 65504, 65520, 2**24 + 1, 2**31 - 1, 1 + 2**-24)
ROUNDED = (1e-45, 3.3e38, 1e39, 1e-8, 1.001953125, float("inf"), -float("inf"), float("nan"))
EDGES = torch.tensor([*EXACT, *ROUNDED], dtype=torch.float64)


def values(dtype):
    """Return each pattern of up to 16 bits; of wider types random ones and edges."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.itemsize < 3:
        small = torch.int8 if dtype.itemsize == 1 else torch.int16
        return torch.arange(1 << 8 * dtype.itemsize).to(small).view(dtype)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**63), 2**63 - 1, (2000,), generator=generator).view(dtype)
    edges = EDGES if dtype.is_floating_point or dtype.is_complex else torch.arange(-70000, 70000)
    return torch.cat([drawn, edges.to(dtype)])


def bits(x):
    """Return numbers and signs; NaN is 7, whatever its bits."""
    if x.is_complex():
        x = torch.view_as_real(x)
    if not x.is_floating_point():
        return x.to(torch.int64), x
    x = x.to(torch.float64)
    return x.nan_to_num(7.0, 1e309, -1e309), x.signbit() & ~x.isnan()


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("first", DTYPES, ids=str)
def test_one_cast_has_the_bits_of_two(first):
    pairs = list(itertools.product(DTYPES, DTYPES))

    def program(x):
        return [x.to(second).to(third) for second, third in pairs]

    x = values(first)
    gm = aten_graph(program, x[:2])
    assert rules_of(run_pass(gm, simplify_casts.PASS)) or first is torch.complex128
    for one, two, pair in zip(gm(x), program(x), pairs, strict=True):
        assert all(map(torch.equal, bits(one), bits(two))), pair


def test_a_chain_of_three_casts_becomes_one():
    gm = aten_graph(lambda x: x.float().double().float().half().float().sin(), torch.ones(3).half())
    run_pass(gm, simplify_casts.PASS)
    gm.graph.eliminate_dead_code()
    assert [node.target for node in gm.graph.nodes][1:-1] == [
        aten._to_copy.default,
        aten.sin.default,
    ]


def test_a_cast_of_an_expanded_tensor_keeps_its_strides():
    def program(x):
        return x.expand(3, 4).float().half(), x[:, ::2].float().half()

    x = torch.ones(1, 4).half()
    gm = aten_graph(program, x)
    run_pass(gm, simplify_casts.PASS)
    for a, b in zip(gm(x), program(x), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()
        assert a.data_ptr() != x.data_ptr()


def test_symbolic_sizes_get_no_guards():
    def program(x):
        return x.permute(1, 0).t().double().float().repeat(1, 1) * 2

    call = torch.compile(program, backend="ctk", dynamic=True, fullgraph=True)
    for shape in ((3, 4), (5, 5), (7, 2)):
        x = torch.randn(shape)
        assert torch.equal(call(x), program(x))


X, HALF, INTS = torch.randn(2, 3, 4), torch.randn(4, 4).bfloat16(), torch.arange(6)
BESIDE = {
    "pointless_convert": (lambda x: x.float().bfloat16() * 2, HALF, simplify_casts),
    "pointless_convert down": (lambda x: x.double().float().half() * 2, X, simplify_casts),
    "pointless_permute_pair": (
        lambda x: x.permute(2, 0, 1).permute(1, 2, 0) * 2,
        X,
        simplify_views,
    ),
    "permute of transpose": (lambda x: x.transpose(0, 1).permute(1, 0, 2) * 2, X, simplify_views),
    "remove_redundant_views": (
        lambda x: x.view(torch.int32).view(torch.float32) * 2,
        X,
        simplify_views,
    ),
    "view_dtype_noop": (lambda x: x.view(torch.float32) * 2, X, remove_noops),
    "repeat_noop": (lambda x: x.repeat(1, 1, 1) * 2, X, remove_noops),
    "constant_pad_nd": (lambda x: aten.constant_pad_nd.default(x, [0, 0]) * 2, X, remove_noops),
    "constant_pad_nd out": (
        lambda x: aten.constant_pad_nd.default(x.sin(), [0, 0]),
        X,
        remove_noops,
    ),
    "int_noop": (lambda x: x.floor() + x.ceil() * x.round() - x.trunc(), INTS, remove_noops),
    "convert_element_type_noop": (
        lambda x: prims.convert_element_type(x, x.dtype) * 2,
        X,
        remove_noops,
    ),
    "device_put_noop": (lambda x: prims.device_put(x, x.device) * 2, X, remove_noops),
    "true_noop of copy": (lambda x: aten.copy.default(x.sin(), x) * 2, X, remove_noops),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_that_inductor_simplifies(name):
    program, x, module = BESIDE[name]
    sizes = []
    torch._dynamo.reset()
    with inductor.patch(
        joint_custom_pre_pass=lambda graph: sizes.append(len(graph.nodes)),
        post_grad_custom_post_pass=lambda graph: sizes.append(len(graph.nodes)),
        fx_graph_cache=False,
    ):
        torch.compile(program)(x)
    assert sizes[0] > sizes[-1]
    recorder = Recorder()
    torch._dynamo.reset()
    found = torch.compile(program, backend=lambda gm, x: ctk.compile_fx(gm, x, EAGER, recorder))(x)
    assert torch.equal(found, program(x))
    assert any(each.rewrites for each in recorder.log.passes() if each.id.name == module.PASS.name)


EAGER = Config(codegen="eager")
