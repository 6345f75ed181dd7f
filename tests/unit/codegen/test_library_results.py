"""What a library call gives is not always what torch recorded of it."""

import torch
from torch import Tensor

from tests.helpers.lowered import compare


def test_a_type_that_torch_records_wrongly() -> None:
    """In bfloat16 the running statistics are recorded as float32."""

    def renewed(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        update = torch.ops.aten._batch_norm_with_update
        return update(x, weight, weight, mean, variance, 0.1, 1e-5)[0]

    x = torch.arange(24.0).reshape(4, 3, 2).sin().bfloat16()
    compare(renewed, x, *(torch.ones(3).bfloat16() for _ in range(3)), codegen="c")
