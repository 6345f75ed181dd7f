"""Pieces of tensors, cut and joined at random: the same bits after `simplify_split_cat`."""

import random

import pytest
import torch

from ctk.compiler.passes.post_grad import simplify_split_cat
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten = torch.ops.aten


def cut(x, draw):
    """Return parts of a tensor along a dimension, cut in one of the ways of ATen."""
    axis = draw.randrange(x.dim())
    size = x.shape[axis]
    match draw.randrange(5):
        case 0:
            return list(x.split(draw.randint(1, size), axis))
        case 1:
            return list(x.unbind(axis))
        case 2:
            place = draw.randint(0, size)
            return list(x.split_with_sizes([place, size - place], axis))
        case 3:
            return [x.select(axis, i - size * draw.randrange(2)) for i in range(size)]
        case _:
            step = draw.randint(1, 2)
            ends = sorted(draw.sample(range(size + 1), min(3, size)))
            pairs = zip([0, *ends], [*ends, size], strict=True)
            return [aten.slice.Tensor(x, axis, a, b, step) for a, b in pairs]


def turn(x, draw):
    """Return a view (or a copy) of the same values."""
    match draw.randrange(7):
        case 0 if x.dim() > 1:
            return x.transpose(*draw.sample(range(x.dim()), 2))
        case 1:
            return x.unsqueeze(draw.randint(0, x.dim()))
        case 2 if x.dim() > 1:
            return x.reshape(-1, x.shape[-1]) if draw.randrange(2) else x.flatten()
        case 3 if x.dim() and x.shape[-1] % 2 == 0 and x.shape[-1]:
            return x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
        case 4:
            return x.clone()
        case _:
            return x


def joined(draw, *inputs):
    """Return a function of pieces that are put together, in order or nearly."""
    parts = []
    for x in draw.sample(inputs, draw.randint(1, len(inputs))):
        state = draw.getrandbits(32)
        x = turn(turn(x, draw), draw)
        found = cut(x, draw) if x.dim() else [x]
        parts += [turn(part, random.Random(state)) for part in found]
    if draw.randrange(3) == 0:
        i, j = draw.randrange(len(parts)), draw.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]
    alike = [part for part in parts if part.dim() == parts[0].dim()]
    same = [part for part in alike if part.shape == parts[0].shape]
    if draw.randrange(2) or not parts[0].dim():
        whole = torch.stack(same, draw.randint(0, parts[0].dim()))
    else:
        axis = draw.randrange(parts[0].dim())
        rest = [[*part.shape[:axis], *part.shape[axis + 1 :]] for part in alike]
        whole = torch.cat(
            [p for p, sizes in zip(alike, rest, strict=True) if sizes == rest[0]], axis
        )
    if draw.randrange(3) == 0:
        whole = whole.tanh()
    results = [turn(part, draw) for part in (cut(whole, draw) if draw.randrange(2) else [whole])]
    return [part if draw.randrange(3) == 0 else part + 1 for part in results]


def drawn(seed):
    """Return a program of two tensors."""

    def program(x, y):
        return joined(random.Random(seed), x, y)

    return program


def shares(result, inputs):
    """Return whether a result has elements in the memory of an input."""
    memory = {each.untyped_storage().data_ptr() for each in inputs}
    return result.numel() > 0 and result.untyped_storage().data_ptr() in memory


def steps(tensor):
    """Return the strides that mean something."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def test_pieces_with_gaps_keep_their_values():
    """The parts of `x.view(3, 4)[:, :2]` in a row are not a slice of `x`."""

    def rows(x):
        y = x.view(3, 4)
        return torch.cat([y[:1, :2], y[1:, :2]]).neg()

    def part(x, y):
        return torch.cat([x, y]).view(6, 4)[:3, :2].neg()

    inputs = torch.arange(12.0), torch.arange(12.0) + 20
    for program, given in ((rows, inputs[:1]), (part, inputs)):
        gm = aten_graph(program, *given)
        run_pass(gm, simplify_split_cat.PASS, stage="forward")
        assert torch.equal(gm(*given), program(*given))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_pieces_at_random_keep_bits_strides_and_sharing(mode):
    changed = 0
    for seed in range(40):
        inputs = torch.randn(4, 6, 2), torch.randn(2, 3, 4).transpose(0, 2)
        program = drawn(seed)
        gm = aten_graph(program, *inputs, tracing_mode=mode)
        changed += bool(rules_of(run_pass(gm, simplify_split_cat.PASS, stage="forward")))
        assert not rules_of(run_pass(gm, simplify_split_cat.PASS, stage="forward")), seed
        for new, old in zip(gm(*inputs), program(*inputs), strict=True):
            assert torch.equal(new, old), seed
            assert steps(new) == steps(old), seed
            assert shares(new, inputs) == shares(old, inputs), seed
    assert changed > 12
