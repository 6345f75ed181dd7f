"""`flex_attention` and its gradient in Triton's interpreter, beside all scores in float64.

torch refuses to train `flex_attention` on a CPU, so the gradients are those of its operator.
"""

from collections.abc import Callable

import pytest
import torch
from torch.fx import GraphModule
from torch.nn.attention.flex_attention import flex_attention

import ctk
from ctk import Config
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.flex_programs import PROGRAMS, dense, exact, gradients, operator_call, results
from tests.helpers.triton_kernels import INTERPRETED

pytestmark = [
    INTERPRETED,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]

PROGRAM = {program.name: program for program in PROGRAMS}
FORWARD = ("plain", "alibi_causal", "cross", "odd_parts", "small_blocks", "empty_rows", "jagged")
TRAINED = ("causal", "relative", "capped", "grouped", "other_values", "odd_blocks", "empty_rows")


def compiled(call: Callable, recorder: Recorder) -> Callable:
    config = Config(codegen="triton", fallback=(), passes={"triton": {"interpret": True}})

    def backend(gm: GraphModule, inputs: list) -> Callable:
        return ctk.compile_fx(gm, inputs, config, recorder)

    torch.compiler.reset()
    return torch.compile(call, backend=backend, fullgraph=True)


def products(recorder: Recorder) -> int:
    """Return how many kernels with products there are."""
    return sum(
        (record.source or "").count("result = tl.zeros") for record in recorder.log.kernels()
    )


@pytest.mark.parametrize("name", FORWARD)
def test_values(name: str) -> None:
    program, recorder = PROGRAM[name], Recorder()
    inputs = program.inputs()
    found = results(compiled(program.call(), recorder)(*inputs))
    for mine, each in zip(found, exact(program, inputs), strict=True):
        torch.testing.assert_close(mine.double(), each, rtol=2e-5, atol=2e-5)
    assert products(recorder) == 1


def test_only_the_logarithms_are_used() -> None:
    program, recorder = PROGRAM["logarithms"], Recorder()
    inputs = program.inputs()
    found = compiled(lambda *x: program.call()(*x)[1].lse, recorder)(*inputs)
    expected = exact(program, inputs)[1]
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    assert products(recorder) == 1


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str) -> None:
    program, recorder = PROGRAM[name], Recorder()
    inputs = program.inputs()
    found = gradients(compiled(operator_call(program), recorder), inputs)
    expected = gradients(lambda *x: dense(program, x), [each.double() for each in inputs])
    for mine, each in zip(found, expected, strict=True):
        close = 1e-5 * float(each.detach().abs().max())
        torch.testing.assert_close(mine.double(), each, rtol=1e-4, atol=close)
    assert products(recorder) == 3


def test_a_vetoed_gradient_runs_in_eager() -> None:
    class Vetoing(Recorder):
        def allow_kernel(self, kernel: object) -> bool:
            return "backward" not in str(kernel)

    program, recorder = PROGRAM["relative"], Vetoing()
    inputs = program.inputs()
    found = gradients(compiled(operator_call(program), recorder), inputs)
    expected = gradients(lambda *x: dense(program, x), [each.double() for each in inputs])
    for mine, each in zip(found, expected, strict=True):
        close = 1e-5 * float(each.detach().abs().max())
        torch.testing.assert_close(mine.double(), each, rtol=1e-4, atol=close)


def test_public_function_is_the_operator() -> None:
    q, k, v = PROGRAM["causal"].inputs()
    mask = PROGRAM["causal"].block_mask()
    run = compiled(lambda *x: flex_attention(*x, block_mask=mask), Recorder())
    found, _ = operator_call(PROGRAM["causal"])(q, k, v)
    torch.testing.assert_close(run(q, k, v), found)
