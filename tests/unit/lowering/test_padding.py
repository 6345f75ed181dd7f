"""Pads that repeat elements, and their gradients, are those of eager."""

import pytest
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.lowered import compare
from tests.unit.lowering.test_operators import rows


def padded(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        F.pad(x, (2, 1), "reflect"),
        F.pad(x, (3, 3, 0, 2), "reflect") * 2,
        F.pad(x, (0, 3, 2, 0), "replicate"),
        F.pad(y, (1, 2, 0, 1, 1, 0), "reflect"),
        F.pad(y, (1, 2, 3, 1, 0, 5), "replicate"),
    ]


@pytest.mark.parametrize("codegen", ["", "c"])
def test_pads_and_their_gradients(codegen: str) -> None:
    x, y = rows(2, 3, 4), rows(2, 2, 3, 4)
    lowered = compare(padded, x, y, codegen=codegen)
    assert all("replication" in name for name in lowered.operators)


def test_types_and_sizes_of_the_call() -> None:
    x, y = rows(2, 3, 4).detach().bfloat16(), rows(2, 2, 3, 4).detach().bfloat16()
    assert not compare(padded, x, y, codegen="c").library
    assert not compare(padded, x.float(), y.float(), dynamic=True).library
