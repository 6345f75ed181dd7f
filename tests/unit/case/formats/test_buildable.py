"""Values that a script can build: tensors with unusual strides are no exception."""

import dataclasses
from pathlib import Path

import pytest
import torch

from ctk.compiler.fx.clone import raw_bytes
from ctk.repro_templates.graph.values import randn
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.fillings import FILLINGS, fill_tensor, is_possible
from ctk.toolkit.case.formats.tensor_content import content_of
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.repro.tensor_source import Sources, tensor_source
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, op_names
from tests.helpers.repros import BACKENDS, fails_and_heals

UNUSUAL = {
    "a row of a column": randn((4, 4), seed=0)[:1, :1],
    "one element, stride 4": randn((4, 4), seed=0)[:1, 0],
    "one element, stride 0": randn((1,), seed=0).expand(1, 1),
    "one bfloat16, stride 4": randn((4, 4), seed=0, dtype=torch.bfloat16)[:1, 0],
    "one bool, stride 3": torch.ones(3, 3, dtype=torch.bool)[:1, 0],
    "one complex, stride 3": torch.full((3, 3), 1 + 2j)[:1, 0],
    "an expanded scalar": torch.tensor(2.5).expand(3, 100),
    "an expanded element": randn((1,), seed=0).expand(5),
    "no element, stride 5": torch.empty_strided((0,), (5,)),
    "no element, strides 7 and 3": torch.empty_strided((2, 0), (7, 3)),
}


@pytest.mark.parametrize("tensor", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_strides_are_filled_recognised_and_written(tensor: torch.Tensor) -> None:
    for filling in (name for name in FILLINGS if is_possible(tensor, name)):
        other = fill_tensor(tensor, filling)
        assert isinstance(other, torch.Tensor)
        assert (other.shape, other.stride()) == (tensor.shape, tensor.stride())
        assert content_of(other).is_recipe
    assert len(raw_bytes(tensor.resolve_conj())) == tensor.numel() * tensor.itemsize
    assert "torch" in tensor_source(tensor, "x", Sources())


@pytest.mark.parametrize("tensor", UNUSUAL.values(), ids=UNUSUAL)
def test_a_case_with_unusual_strides_is_reduced(tensor: torch.Tensor) -> None:
    """It once ended in an internal error: torch views bytes only where the stride is 1."""
    case = captured(lambda x, y: abs(x.sum()) * torch.relu(y.sin().cos()), tensor, torch.ones(2))
    case = dataclasses.replace(case, inputs=(tensor, *case.inputs[1:]))
    assert fingerprint(case) != fingerprint(captured(lambda x: x.sin(), tensor))
    result = minimize(Problem(case, FakeOracle(has_ops("relu"))))
    assert (result.reason, op_names(result.best)) == ("minimal", ["relu"])


def test_a_repro_with_unusual_strides_fails_and_heals(tmp_path: Path) -> None:
    backends = tmp_path / "planted_backends.py"
    backends.write_text(BACKENDS)
    floats = [tensor for tensor in UNUSUAL.values() if tensor.dtype == torch.float32]
    case = captured(lambda *xs: [x + 1 for x in xs], *floats)
    case = dataclasses.replace(
        case,
        inputs=tuple(floats),
        target=f"{backends}:wrong",
        signature=Signature("accuracy", output="out0"),
    )
    fails_and_heals(case, tmp_path, backends)


def test_a_tensor_with_other_values_stays_where_it_is_in_its_storage():
    tensor = torch.nn.Parameter(torch.arange(30.0)[7:19].view(3, 4).t())
    other = fill_tensor(tensor, "ones")
    assert isinstance(other, torch.nn.Parameter) and other.requires_grad and other.is_leaf
    assert (other.storage_offset(), other.stride()) == (7, (1, 4))
    assert other.tolist() == torch.ones(4, 3).tolist()
