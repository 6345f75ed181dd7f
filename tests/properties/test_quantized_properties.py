"""Drawn quantized programs: the passes for them keep the numbers, within one step of quantizing."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.options.config import Config
from ctk.compiler.passes.freezing import (
    fuse_quantized,
    prepack_linear,
    prepack_quantized,
    promote_dequantize,
    recover_linear,
)
from ctk.compiler.torch_compat.inductor import onednn
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.helpers.passes import aten_graph, rules_of, run_pass, text_of
from tests.helpers.quantized_programs import Quantized, requantized, requantized_in_each_call

PASSES = (
    recover_linear.PASS,
    promote_dequantize.PASS,
    prepack_quantized.PASS,
    prepack_linear.PASS,
    fuse_quantized.PASS,
)
EAGER = Config(codegen="eager")
SETTINGS = settings(derandomize=True, deadline=None)
HOW_MANY = pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.slow)])
SCALE = 0.0625
"""Of the last quantize: a power of two, so that one step is exact."""

BEHIND = {
    "nothing": lambda y: y,
    "relu": torch.relu,
    "clamp": lambda y: y.clamp(-1.0, 2.0),
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "tanh": torch.tanh,
    "leaky": lambda y: torch.nn.functional.leaky_relu(y, 0.3),
    "sin": torch.sin,
}


@dataclass(frozen=True)
class Drawn:
    """A layer between an input and a quantize.

    `high` is the largest integer of the input, `limit` of the weight: 127, or 255 and 64.
    """

    is_image: bool
    is_dynamic: bool
    batch: int
    width: int
    outputs: int
    groups: int
    small: bool
    has_bias: bool
    is_one: bool
    is_turned: bool
    behind: str
    zero: int
    bounds: tuple[int, int, torch.dtype]
    adds: bool
    seed: int

    def program(self):
        torch.manual_seed(self.seed)
        high, limit = (255, 63) if self.small else (127, 127)
        groups = self.groups if self.is_image else 1
        shape = (self.outputs * groups, self.width, *((3, 2) if self.is_image else ()))
        settings = {"padding": 1, "groups": groups} if self.is_image else {}
        layer = Quantized(
            *shape, bias=self.has_bias, limit=limit, is_one=self.is_one, **settings
        ).requires_grad_(False)

        def program(x):
            if self.is_dynamic and not self.is_image:
                y = requantized_in_each_call(x, high)
            else:
                y = requantized(x, 0.05, self.zero, 0, high)
            z = BEHIND[self.behind](layer(y))
            if self.adds:
                z = torch.relu(layer(y) + requantized(z, 0.5, self.zero, *self.bounds))
            return requantized(z, SCALE, self.zero, *self.bounds), layer(y)

        return program

    def inputs(self):
        torch.manual_seed(self.seed)
        if self.is_image:
            groups = self.groups if self.is_image else 1
            x = torch.randn(self.batch, self.width * groups, 5, 4)
            return x.contiguous(memory_format=torch.channels_last) if self.is_turned else x
        return torch.randn(self.batch, 3, self.width).transpose(0, 1 if self.is_turned else 0)


small = st.integers(1, 9)
drawn = st.builds(
    Drawn,
    is_image=st.booleans(),
    is_dynamic=st.booleans(),
    batch=st.integers(1, 3),
    width=small,
    outputs=small,
    groups=st.integers(1, 3),
    small=st.booleans(),
    has_bias=st.booleans(),
    is_one=st.booleans(),
    is_turned=st.booleans(),
    behind=st.sampled_from(sorted(BEHIND)),
    zero=st.sampled_from([0, 3, 64]),
    bounds=st.sampled_from(
        [(0, 255, torch.uint8), (0, 127, torch.uint8), (-128, 127, torch.int8), (3, 90, torch.int8)]
    ),
    adds=st.booleans(),
    seed=st.integers(0, 99),
)


def rewritten(gm, veto=None):
    recorder, after = Recorder(veto), copy_graph_module(gm)
    records = [
        run_pass(after, step, stage="frozen", observer=recorder, config=EAGER) for step in PASSES
    ]
    return after, [rule for record in records for rule in rules_of(record)]


def assert_close(results, expected):
    """The requantized result may be one step off where a number lies in the middle of two."""
    (quantized, plain), (wanted, exact) = results, expected
    assert quantized.stride() == wanted.stride()
    assert plain.stride() == exact.stride()
    torch.testing.assert_close(plain, exact, rtol=1e-5, atol=1e-5)
    steps = (quantized - wanted).abs() / SCALE
    assert steps.max() <= 1
    assert (steps > 0).float().mean() <= 0.05


@HOW_MANY
def test_quantized_programs_keep_their_numbers(count):
    @settings(SETTINGS, max_examples=count)
    @given(case=drawn, choice=st.integers(0, 20))
    def check(case, choice):
        program, x = case.program(), case.inputs()
        gm = aten_graph(program, x)
        after, rules = rewritten(gm)
        assert any("qlinear" in rule or "qconv" in rule for rule in rules)
        assert_close(after(x), program(x))
        again, more = rewritten(after)
        assert more == []
        assert text_of(again) == text_of(after)
        left_out = choice % len(rules) + 1
        partly, _ = rewritten(gm, Veto(rewrites=frozenset({left_out})))
        assert_close(partly(x), program(x))

    check()


def of_largest(layer, high):
    return lambda x: layer(requantized(x, 0.05, 0, 0, high))


def test_the_largest_numbers_do_not_saturate():
    """127 times 127, and 255 times 64, in pairs: the largest sums that a CPU without VNNI holds."""
    for high, limit, outputs in itertools.product((127, 255), (127, 64), (1, 33)):
        weight = torch.full((outputs, 64), limit, dtype=torch.int8)
        layer = Quantized(outputs, 64, limit=limit, bias=False)
        layer.weight.copy_(weight)
        program, x = of_largest(layer, high), torch.full((3, 64), 100.0)
        gm = aten_graph(program, x)
        record = run_pass(gm, prepack_quantized.PASS, stage="frozen")
        is_safe = high * limit * 2 < 1 << 15 or not onednn.adds_pairs_in_16_bits()
        assert bool(record.rewrites) == is_safe
        torch.testing.assert_close(gm(x), program(x))
