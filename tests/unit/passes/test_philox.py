"""The counter-based generator: known answers, distributions, and independence of its draws."""

import math

import pytest
import torch

from ctk.compiler.passes.joint.philox import DRAW, philox

KNOWN = [  # of Random123: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
SEEDS = torch.tensor([3, -5, 2**62 + 7])
COUNT = 40_000


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    found = philox([torch.tensor([c]) for c in counter], [torch.tensor(k) for k in key])
    assert tuple(int(each) for each in found) == words


def drawn(kind, dtype=torch.float64, index=0, size=(COUNT,), **more):
    return DRAW(SEEDS, index, list(size), kind, dtype, **more)


def distance(numbers, cumulative):
    """The distance of Kolmogorov and Smirnov, times the root of how many numbers there are."""
    sorted_, steps = numbers.double().sort()[0], torch.arange(COUNT + 1) / COUNT
    expected = cumulative(sorted_)
    gaps = torch.maximum((expected - steps[:-1]).abs(), (expected - steps[1:]).abs())
    return gaps.max().item() * math.sqrt(COUNT)


CURVES = {
    "uniform": (0.5, 1 / 12, lambda x: x),
    "normal": (0.0, 1.0, lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2),
    "exponential": (1.0, 1.0, lambda x: 1 - torch.exp(-x)),
}


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_distributions(kind, index):
    mean, variance, cumulative = CURVES[kind]
    numbers = drawn(kind, index=index)
    assert abs(numbers.mean().item() - mean) < 4 * math.sqrt(variance / COUNT)
    assert abs(numbers.var().item() / variance - 1) < 0.05
    assert distance(numbers, cumulative) < 1.63  # one in a hundred is farther
    wanted = drawn(kind, torch.float32, index)
    assert distance(wanted, cumulative) < 1.63


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_uniform_number_is_never_one(dtype):
    numbers = drawn("uniform", dtype)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.double().mean().item() - 0.5) < 0.01


def test_integers():
    numbers = drawn("integers", torch.int64, low=-3, high=4)
    counts = torch.stack([(numbers == each).sum() for each in range(-3, 4)])
    expected = COUNT / 7
    assert counts.sum() == COUNT
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi squared, 6 degrees, 1 in 1000
    assert drawn("integers", torch.int64, low=-(2**62), high=2**62).double().std() > 2**61


def test_draws_depend_on_the_seed_and_the_place_only():
    assert torch.equal(drawn("normal"), drawn("normal"))
    assert torch.equal(drawn("uniform", size=(7,)), drawn("uniform")[:7])
    correlated = torch.corrcoef(torch.stack([drawn("normal", index=i) for i in range(3)]))
    assert (correlated - torch.eye(3)).abs().max() < 0.02
    shifted = torch.corrcoef(torch.stack([drawn("normal")[:-1], drawn("normal")[1:]]))
    assert abs(shifted[0, 1]) < 0.02


@pytest.mark.parametrize("size", [(), (0,), (1,), (3, 5), (2, 0, 3)])
def test_sizes_and_strides(size):
    for kind in CURVES:
        assert drawn(kind, torch.float32, size=size).shape == size
    turned = drawn("uniform", size=(3, 5), stride=[1, 3])
    assert turned.stride() == (1, 3)
    assert torch.equal(turned, drawn("uniform", size=(3, 5)))
