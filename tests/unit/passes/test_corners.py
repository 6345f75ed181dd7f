"""Corners in which a pass or a code generator once gave other results than eager."""

import pytest
import torch
import torch.nn.functional as F

import ctk

INF = float("inf")
COMPLEX = torch.tensor([complex(INF, 1), complex(1, INF), complex(-0.0, 0.0), complex(0.0, -0.0)])
CHANNELS_LAST = torch.arange(32.0).view(2, 4, 4, 1).permute(0, 3, 1, 2)
ZEROS = torch.tensor([-0.0, 0.0, 1.0])
LINEAR = torch.arange(12.0).view(4, 3)


def parts(x):
    """Return the bits of complex numbers, NaN as 7."""
    return torch.view_as_real(x).nan_to_num(7.0)


def attend(x, scales):
    """Return attention with a chain of scales that is longer than the stack of Python."""
    scores = x @ x.mT
    for place in range(scales):
        scores = scores * (0.5 if place % 2 else 2.0)
    return torch.softmax(scores, -1) @ x


def turned(x, bias):
    return F.linear(x, LINEAR, bias).transpose(-2, -1).contiguous()


PROGRAMS = {
    "integers times ones": (lambda x: x * torch.ones_like(x) + x * 0, torch.arange(4)),
    "many scales of scores": (lambda x: attend(x, 1000), torch.arange(24.0).view(1, 2, 3, 4) / 24),
    "complex times 1": (lambda x: parts(x * 1), COMPLEX),
    "complex over ones": (lambda x: parts(x / torch.ones(4)), COMPLEX),
    "complex minus zeros": (lambda x: torch.signbit(parts(x - torch.zeros(4))), COMPLEX),
    "views of one channel": (
        lambda x: F.conv2d(x.view(2, 16).view(2, 1, 4, 4), torch.ones(2, 1, 1, 1)).view(2, 32),
        CHANNELS_LAST,
    ),
    "plus zero": (lambda x: 1 / (x * 2 + 0), ZEROS),
    "minus negative zero": (lambda x: 1 / (x * 2 - -0.0), ZEROS),
    "two zeros": (lambda x: (1 / (x.abs() * -0.0), 1 / (x.abs() * 0.0)), ZEROS),
    "chosen zeros": (lambda x: 1 / torch.where(x > 0, 0.0, -0.0), ZEROS),
    "tensors of zeros": (
        lambda x: (1 / (x + torch.tensor([-0.0, 0.0, 1.0])), 1 / (x + torch.tensor([0.0, 0, 1]))),
        ZEROS,
    ),
    "bias of no dimension": (lambda x: turned(x, torch.tensor(2.0)), torch.ones(2, 3)),
    "bias of a row": (lambda x: turned(x, torch.arange(4.0)[None]), torch.ones(5, 4, 3)),
    "bias of a column": (lambda x: turned(x, torch.arange(2.0)[:, None]), torch.ones(2, 3)),
}


@pytest.mark.parametrize("codegen", ["eager", "torchscript"])
def test_results_are_those_of_eager(codegen: str) -> None:
    for name, (program, x) in PROGRAMS.items():
        with torch.no_grad():
            expected, found = program(x), compiled(program, codegen)(x)
        for a, b in zip(*map(tensors, (expected, found)), strict=True):
            assert a.stride() == b.stride(), name
            assert torch.equal(a, b), name
            assert not a.is_floating_point() or torch.equal(a.signbit(), b.signbit()), name


def compiled(program, codegen):
    torch._dynamo.reset()
    config = ctk.Config(codegen=codegen)
    return torch.compile(program, backend=lambda gm, inputs: ctk.compile_fx(gm, inputs, config))


def tensors(results):
    return results if isinstance(results, tuple) else (results,)


def constants(x):
    ones, held = torch.ones(3), torch.tensor([1.0, 2.0, 3.0])
    return ones, ones.view(3, 1), ones[1:], held, held.view(3, 1), x * 2


def test_results_that_share_constants_share_memory() -> None:
    for codegen in ("eager", "torchscript"):
        results = compiled(constants, codegen)(torch.ones(3))
        results[0].add_(10)
        results[3].mul_(0)
        assert [each.sum().item() for each in results[:5]] == [33, 33, 22, 0, 0]


def test_equal_sizes_have_many_expressions() -> None:
    for program in (
        lambda x: x.view(-1, 2).view(x.shape[0], -1) * 1.5,
        lambda x: x.reshape(x.shape[0], 2, -1).reshape(x.shape[0], -1).sin(),
    ):
        torch._dynamo.reset()
        call = torch.compile(program, backend="ctk", dynamic=True, options={"codegen": "eager"})
        for shape in ((6, 4), (3, 4), (5, 8)):
            x = torch.ones(shape)
            assert torch.equal(call(x), program(x))


def test_two_tables_of_decompositions_may_call_each_other() -> None:
    for tables in (("core_aten", "inductor"), ("inductor", "core_aten"), ("inductor", "-inductor")):
        torch._dynamo.reset()
        config = ctk.Config(codegen="eager", decompositions=tables)
        call = torch.compile(F.hardswish, backend=lambda gm, x, c=config: ctk.compile_fx(gm, x, c))
        torch.testing.assert_close(call(ZEROS), F.hardswish(ZEROS))
