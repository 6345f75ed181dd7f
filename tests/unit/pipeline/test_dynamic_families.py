"""One compile serves every batch size: five families of models, inference and training."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ctk.compiler.pipeline import compile_fx
from tests.helpers.model_families import FAMILIES, Dims

BATCHES = (2, 5, 3, 8)


@pytest.fixture
def data_dependent() -> Any:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


def _results(
    model: Callable[..., Any], inputs: Sequence[Tensor], dynamic: Dims, *, training: bool
) -> list[Tensor]:
    """Return the outputs, and in training the gradients of the inputs, too."""
    given = [each.clone().requires_grad_(training and each.is_floating_point()) for each in inputs]
    for tensor, dims in zip(given, dynamic, strict=True):
        torch._dynamo.mark_dynamic(tensor, dims)  # torch raises if one is specialized
    found = model(*given)
    outputs = list(found) if isinstance(found, tuple) else [found]
    if not training:
        return outputs
    torch.stack([each.square().sum() for each in outputs]).sum().backward()
    return [*outputs, *(each.grad for each in given if each.grad is not None)]


@pytest.mark.parametrize(
    "family",
    [
        each if each in ("decoder", "mixture") else pytest.param(each, marks=pytest.mark.slow)
        for each in FAMILIES
    ],
)
@pytest.mark.parametrize(
    ("codegen", "training"),
    [
        ("eager", True),
        pytest.param("eager", False, marks=pytest.mark.slow),
        pytest.param("torchscript", True, marks=pytest.mark.slow),
        pytest.param("torchscript", False, marks=pytest.mark.slow),
    ],
)
def test_one_compile_serves_all_batches(
    family: str, codegen: str, training: bool, data_dependent: None
) -> None:
    torch.manual_seed(0)
    kind, make, dynamic = FAMILIES[family]
    eager, model = kind(), kind()
    model.load_state_dict(eager.state_dict())
    compiles: list[object] = []

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        compiles.append(gm)
        return compile_fx(gm, inputs, {"codegen": codegen, "fallback": ("eager",)})

    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for batch in BATCHES:
        inputs = make(batch)
        with torch.set_grad_enabled(training):
            wanted = _results(eager, inputs, dynamic, training=training)
            got = _results(compiled, inputs, dynamic, training=training)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert len(compiles) == 1
    if training:
        for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
