"""Tensors with a storage offset, read through copies that a pass removes."""

import pytest
import torch
from torch import Tensor

COPIES = {
    "mul": lambda x: x * 1,
    "casts": lambda x: x.double().float(),
    "clone": lambda x: x.clone(),
    "stack": lambda x: torch.stack(x.unbind(0)),
    "cat": lambda x: torch.cat([x]),
    "join": lambda x: torch.cat(x.split(2)),
    "repeat": lambda x: x.repeat(1, 1),
    "neg": lambda x: x.neg().neg(),
}
READERS = {
    "split": lambda x: [part + 1 for part in x.split([2, 4])],
    "unbind": lambda x: [part + 1 for part in x.unbind(0)],
    "slice of view": lambda x: [x.reshape(-1)[4:] + 1],
    "transposed": lambda x: [x.reshape(2, 3, 6).transpose(0, 1) * 3, x.mT[1:] + 1],
    "as_strided": lambda x: [x.as_strided((2,), (1,), 2) + 0.5],
    "as_strided of view": lambda x: [x.reshape(-1)[2:].as_strided((2,), (1,), 3) + 0.5],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("is_sliced_inside", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_a_copy_that_is_removed_keeps_the_places_of_its_readers(reader, is_sliced_inside, dynamic):
    def f(x: Tensor) -> list[Tensor]:
        x = x[3:] if is_sliced_inside else x
        return [result for copy in COPIES.values() for result in READERS[reader](copy(x))]

    x = torch.randn(9, 6)
    x = x if is_sliced_inside else x[3:]
    results = torch.compile(f, backend="ctk", dynamic=dynamic)(x)
    for result, expected in zip(results, f(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_a_wider_type_of_a_copy_has_the_alignment_of_the_copy():
    x = torch.randn(10, dtype=torch.bfloat16)[1:9]  # begins at an odd place

    def f(x: Tensor) -> Tensor:
        return (x * 1).view(torch.int32) + 1

    assert torch.equal(torch.compile(f, backend="ctk")(x), f(x))


def test_gradients_of_a_part():
    def f(x: Tensor) -> Tensor:
        gate, up = (x / 1).chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    x = torch.randn(9, 6)[3:].requires_grad_()
    result = torch.compile(f, backend="ctk")(x)
    expected = f(x)
    torch.testing.assert_close(result, expected)
    (grad,) = torch.autograd.grad(result.square().sum(), x)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.square().sum(), x)[0])
