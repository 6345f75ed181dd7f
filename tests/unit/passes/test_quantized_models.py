"""Models with 8-bit weights, as PT2E quantization writes them, against eager."""

import copy

import pytest
import torch

from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.quantized_programs import Convnet, Gated, requantized_in_each_call

TOKENS, IMAGES = torch.randn(2, 4, 16), torch.randn(2, 3, 8, 8)


def rewrites_in(model, x, codegen, **config):
    """Compile a model, compare it with eager, and return how often each pass rewrote."""
    torch._dynamo.reset()
    recorder = Recorder()
    options = {"freezing": True, "codegen": codegen, **config}
    compiled = torch.compile(
        copy.deepcopy(model).eval(), backend=lambda g, i: compile_fx(g, i, options, recorder)
    )
    with torch.no_grad():
        result, expected = compiled(x), model.eval()(x)
    assert result.stride() == expected.stride()
    # Where a number lies in the middle between two integers, requantizing may choose the other.
    # None does here: the rest is rounding.
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    passes = [record for record in recorder.log.passes() if record.id.stage == "frozen"]
    return {record.id.name: len(record.rewrites) for record in passes if record.rewrites}


@pytest.mark.slow
@pytest.mark.parametrize("codegen", ["eager", "torchscript"])
def test_a_quantized_convnet(codegen):
    made = rewrites_in(Convnet(), IMAGES, codegen)
    assert made["prepack_quantized"] == 4
    assert made["fuse_quantized"] >= 5
    assert "prepack_convolution" not in made


@pytest.mark.slow
@pytest.mark.parametrize("codegen", ["eager", "torchscript"])
def test_a_quantized_block(codegen):
    made = rewrites_in(Gated(), TOKENS, codegen)
    assert made["promote_dequantize"] >= 3
    assert made["prepack_quantized"] == 4
    assert made["fuse_quantized"] == 4  # gelu, relu, quantize, and the sum with x
    assert "concat_linear" not in made


@pytest.mark.slow
def test_a_dynamically_quantized_block():
    made = rewrites_in(Gated(requantized_in_each_call), TOKENS, "eager")
    assert made["prepack_quantized"] == 4
    assert made["fuse_quantized"] == 2  # gelu and the sum; relu would lose a NaN
