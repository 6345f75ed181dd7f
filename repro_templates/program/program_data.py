"""Other data for the tensors of a program, for as long as it is played: wider, or next to its own.

    with changed_data(roots, widened_data):              in float64
    with changed_data(roots, partial(neighbours, towards=math.inf)):    each float a bit larger

What it does not do: widen what the program makes itself (float64.py).
"""

import contextlib
from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from ctk.compiler.fx.clone import is_freed
from ctk.repro_templates.numbers.float64 import wider
from ctk.repro_templates.program.program_state import tensors_of


@contextlib.contextmanager
def changed_data(
    roots: Sequence[object], change: Callable[[Tensor], Tensor]
) -> Generator[None, None, None]:
    """Give every tensor that a program keeps other data in the body, and its own back after it.

    Args:
        roots: The model, and the arguments of its calls by name. What functions among them name is
            the user's own, and cannot be copied. Inference tensors stay: they allow no other data.
        change: Returns the data of a tensor while the body runs.
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


def widened_data(data: Tensor) -> Tensor:
    """Return the data of a tensor in the float64 form of its dtype.

    Raises:
        PrecisionRefused: It means its rounding (float8), and has no such form.
    """
    return data.to(wider(data.dtype))


def neighbours(data: Tensor, towards: float) -> Tensor:
    """Return for every float its neighbour in its own dtype.

    What a program gives then is as good a result as its own: they differ by its rounding.

    Args:
        data: Of any dtype and layout.
        towards: Infinity, or minus infinity.
    """
    if data.dtype not in (torch.float32, torch.float64) or data.layout is not torch.strided:
        return data
    return torch.nextafter(data, torch.full_like(data, towards))


@contextlib.contextmanager
def widened_dtype(*, is_wide: bool) -> Generator[None, None, None]:
    """Make new floats float64 in the body, if that is wanted."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if is_wide else kept)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)
