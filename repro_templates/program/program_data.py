"""Other data for the tensors of a program while it is played: wider, or next to its own.

    with change_data(roots, widen_data):              in float64
    with change_data(roots, partial(neighbours, towards=math.inf)):    each float a bit larger

Tensors that the program itself creates are widened in float64.py.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from ctk.compiler.fx.clone import is_freed
from ctk.repro_templates.numbers.float64 import wider
from ctk.repro_templates.program.program_state import tensors_of


@contextlib.contextmanager
def change_data(
    roots: Sequence[object], change: Callable[[Tensor], Tensor]
) -> Generator[None, None, None]:
    """Give every tensor that a program keeps other data in the body, and restore it after it.

    Args:
        roots: The model, and the arguments of its calls by name. Objects that functions among them
            name are the user's own, and cannot be copied. Inference tensors stay: they allow no
            other data.
    """
    tensors = tensors_of(*roots).values()
    kept: list[tuple[Tensor, Tensor]] = []
    try:
        for tensor in tensors:
            if tensor.is_inference() or is_freed(tensor):
                continue
            data = tensor.data
            if (changed := change(data)) is not data:
                kept.append((tensor, data))
                tensor.data = changed
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def widen_data(data: Tensor) -> Tensor:
    """Return the data of a tensor in the float64 form of its dtype.

    Raises:
        PrecisionRefused: Its rounding is part of the program (float8).
    """
    return data.to(wider(data.dtype))


def neighbours(data: Tensor, towards: float) -> Tensor:
    """Return the neighbour of every float in its own dtype.

    The results of the program are then as good as its own: they differ by its rounding.

    Args:
        towards: Infinity, or minus infinity.
    """
    if data.dtype not in (torch.float32, torch.float64) or data.layout is not torch.strided:
        return data
    return torch.nextafter(data, torch.full_like(data, towards))


@contextlib.contextmanager
def widen_dtype(*, is_wide: bool) -> Generator[None, None, None]:
    """Make new floats float64 in the body, if `is_wide`."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if is_wide else kept)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)
