"""Input values that a script can build without a data file, simplest first."""

from collections.abc import Callable
from typing import cast

import torch

from ctk.compiler.fx.clone import clone_inputs
from ctk.repro_templates.graph.values import randn

RECIPE_SEEDS = range(16)
"""Seeds with which a float tensor is compared with `torch.randn`."""

FILLINGS = ("zeros", "ones", "arange", *(f"randn:{seed}" for seed in RECIPE_SEEDS))
"""Names of fillings, the simplest first. `randn:3` is normal with seed 3."""


def fill_tensor(value: object, filling: str) -> object:
    """Return a tensor with other values and the same layout (`rewrite_tensor`).

    Args:
        value: Only read; anything but a tensor is returned as it is.
        filling: One of `FILLINGS`, possible for its dtype (`is_possible`).
    """
    if not isinstance(value, torch.Tensor):
        return value
    return rewrite_tensor(value, lambda core: make_filling(filling, tuple(core.shape), core.dtype))


def rewrite_tensor(
    tensor: torch.Tensor, write: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return a leaf with other values; layout and place in its storage stay.

    Args:
        tensor: Only read. Strided.
        write: Gets the values, expanded dimensions once; returns the new ones.
    """
    clone = cast("torch.Tensor", clone_inputs([tensor])[0])
    with torch.no_grad():
        core = core_of(clone.detach())
        core.copy_(write(core))
    return clone


def is_possible(value: torch.Tensor, filling: str) -> bool:
    """Return whether a filling suits a tensor's dtype and, for integers, the range of its values.

    Integers may be indices, so that they must stay between the least and the largest value seen;
    0 is valid where any index is.
    """
    kind = filling.partition(":")[0]
    if not value.numel() or value.is_sparse or value.is_quantized:
        return False
    if value.is_floating_point():
        return True
    if value.dtype == torch.bool or value.is_complex():
        return kind in ("zeros", "ones")
    least, largest = _bounds(value)
    wanted = {"zeros": (0, 0), "ones": (1, 1), "arange": (0, value.numel() - 1)}.get(kind)
    return wanted is not None and min(0, least) <= wanted[0] and wanted[1] <= max(0, largest)


def _bounds(value: torch.Tensor) -> tuple[int, int]:
    """Return the least and the largest whole number of a tensor."""
    if value.dtype in (torch.uint16, torch.uint32, torch.uint64):  # without `min` and `max`
        value = value.to(torch.float64)
    return int(value.min()), int(value.max())


def core_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view without the repetitions of expanded dimensions."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def make_filling(filling: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a contiguous CPU tensor with a filling."""
    kind, _, seed = filling.partition(":")
    if kind == "randn":
        return randn(shape, seed=int(seed), dtype=dtype)
    if kind == "arange":
        count = torch.Size(shape).numel()
        return torch.arange(count, dtype=torch.int64, device="cpu").to(dtype).reshape(shape)
    return torch.full(shape, kind == "ones", dtype=dtype, device="cpu")
