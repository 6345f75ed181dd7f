"""Random graphs through the loop IR, fused or not: the interpreter gives what eager gives."""

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import Phase, given, note, settings
from torch import Tensor, fx

from ctk.compiler.codegen.select import generate
from ctk.compiler.lowering.fuse import FusionOptions, fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import Program as Lowered
from ctk.compiler.lowering.lower import LoweringOptions, lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.lowering.text import program_text
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from tests.helpers.loop_programs import Program, loop_programs
from tests.helpers.triton_kernels import INTERPRETED

GENERATE = (Phase.explicit, Phase.generate)  # a program of nine steps is small enough
SETTINGS = settings(derandomize=True, deadline=None, phases=GENERATE)
HOW_MANY = pytest.mark.parametrize("count", [15, pytest.param(600, marks=pytest.mark.slow)])
ROUNDINGS = 64
"""How many roundings of the largest number at hand two right results may be apart."""


def assert_near(found: Tensor, eager: Tensor, scale: float) -> None:
    """Check a value; floats may differ by some roundings of the largest number that there was."""
    assert (found.dtype, found.shape) == (eager.dtype, eager.shape)
    if eager.dtype.is_floating_point:
        near = ROUNDINGS * torch.finfo(eager.dtype).eps
        torch.testing.assert_close(found, eager, rtol=near, atol=near * scale, equal_nan=True)
    else:
        assert torch.equal(found, eager)


class Scale(fx.Interpreter):
    """Runs a graph in eager and notes the largest number in it."""

    largest = 1.0

    def run_node(self, n: fx.Node) -> object:
        value = super().run_node(n)
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            finite = value.double().nan_to_num(0, 0, 0).abs().max().item()
            self.largest = max(self.largest, finite)
        return value


def hold(count: int, check: Callable[[Program], None]) -> None:
    """Check so many programs; which ones depends on the code of `check`."""
    settings(SETTINGS, max_examples=count)(given(loop_programs())(check))()


def assert_same(program: Program, gm: fx.GraphModule, lowered: Lowered) -> None:
    """Check what the interpreter makes of a lowered graph."""
    note(gm.print_readable(print_output=False))
    note(program_text(lowered))
    eager = Scale(gm)
    expected = eager.run(*program.inputs())
    found = run_program(gm, lowered, program.inputs(), check=True)
    for each, value in zip(found, expected, strict=True):
        assert_near(each, value, eager.largest)


@HOW_MANY
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_lowered_graphs_compute_what_eager_computes(mode: str, count: int) -> None:
    def check(program: Program) -> None:
        gm = program.graph(mode)
        assert_same(program, gm, lower(gm))

    hold(count, check)


@HOW_MANY
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_fused_graphs_compute_what_eager_computes(mode: str, count: int) -> None:
    def check(program: Program) -> None:
        gm = program.graph(mode)
        fused = fuse(lower(gm), lambda *_: True)
        assert_same(program, gm, fused)
        assert_same(program, gm, plan_memory(fused, lambda *_: True))

    hold(count, check)


@HOW_MANY
def test_any_of_the_fusions_may_be_left_out(count: int) -> None:
    def check(program: Program) -> None:
        gm, draw = program.graph(), random.Random(program.seed)
        fused = fuse(lower(gm), lambda *_: draw.random() < 0.5)
        assert_same(program, gm, plan_memory(fused, lambda *_: draw.random() < 0.5))

    hold(count, check)


@HOW_MANY
def test_exact_kernels_have_the_bits_of_eager(count: int) -> None:
    def check(program: Program) -> None:
        gm = program.graph()
        lowered = lower(gm, LoweringOptions(exact=True))
        fused = fuse(lowered, lambda *_: True, FusionOptions(exact=True))
        note(program_text(fused))
        expected = gm(*program.inputs())
        found = run_program(gm, fused, program.inputs(), check=True)
        for each, value in zip(found, expected, strict=True):
            torch.testing.assert_close(each, value, rtol=0, atol=0, equal_nan=True)

    hold(count, check)


TRITON = {"interpret": True}
CODEGENS = [
    pytest.param("c", {}, id="c"),
    pytest.param("triton", TRITON, id="triton", marks=INTERPRETED),
    pytest.param("triton", {**TRITON, "chunk": 3}, id="triton-split", marks=INTERPRETED),
    pytest.param("triton", {**TRITON, "row_limit": 2}, id="triton-loops", marks=INTERPRETED),
]


@pytest.mark.parametrize("count", [4, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize(("codegen", "options"), CODEGENS)
def test_kernels_compute_what_the_interpreter_computes(
    codegen: str, options: dict[str, object], mode: str, count: int
) -> None:
    config = Config(codegen=codegen, fallback=(), passes={codegen: options})

    def check(program: Program) -> None:
        gm = program.graph(mode)
        planned = plan_memory(fuse(lower(gm), lambda *_: True), lambda *_: True)
        note(program_text(planned))
        eager = Scale(gm)
        eager.run(*program.inputs())
        expected = run_program(gm, planned, program.inputs())
        numbering = Numbering(config=config)
        found = generate(gm, program.inputs(), "forward", numbering)(list(program.inputs()))
        for each, value in zip(found, expected, strict=True):
            assert_near(each, value, eager.largest)

    hold(count, check)
