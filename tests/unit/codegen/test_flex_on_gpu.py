"""`flex_attention` and its gradient on a GPU, beside all scores in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from tests.helpers.flex_programs import PROGRAMS, Flex, dense, gradients

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
PROGRAM = {program.name: program for program in PROGRAMS}


def training(program: Flex) -> Any:
    mask, options = program.block_mask("cuda"), {**program.options}
    options["return_aux"] = AuxRequest(lse=True)

    def run(q: Tensor, k: Tensor, v: Tensor, *captured: Tensor) -> list[Tensor]:
        score = None if program.score is None else program.score(*captured)
        result, aux = flex_attention(q, k, v, score, mask, **options)
        assert aux.lse is not None
        return [result, aux.lse]

    given = {"codegen": "triton", "fallback": ()}
    torch.compiler.reset()
    return torch.compile(run, backend="ctk", options=given)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", PROGRAM)
def test_training(name: str, dtype: torch.dtype) -> None:
    program = PROGRAM[name]
    inputs = program.inputs(device="cuda")
    inputs = [x.to(dtype) if place < 3 else x for place, x in enumerate(inputs)]
    found = gradients(training(program), inputs)
    exact = gradients(lambda *x: dense(program, x), [x.double() for x in inputs])
    for mine, expected in zip(found, exact, strict=True):
        close = TOLERANCE[dtype] * float(expected.detach().abs().max())
        torch.testing.assert_close(mine.double(), expected, rtol=TOLERANCE[dtype], atol=close)
