"""Feed a value to somebody who wants another form: cast it, reshape it, or spread one element.

    have float32[2, 3, 8]   want float32[6, 8]      reshape(x, (6, 8))
    have float32[3, 1]      want float32[3, 5]      x.expand((3, 5))
    have float32[4]         want float16[2, 7]      amax(x.to(float16)).expand((2, 7))

`amax` keeps the dtype, NaN, the gradient and the range of indices; a sum would not.
"""

import torch

from ctk.compiler.fx.rebuild import Computed, SameAs, Substitute
from ctk.toolkit.reduce.eager_values import TensorInfo


def adapted(name: str, have: object, want: object) -> Substitute | None:
    """Return what stands for a value of one form where another is wanted.

    Args:
        name: The node whose value it is.
        have: Its form.
        want: The form that its reader takes.

    Returns:
        None where nothing fits: no tensors, another device, or no element to take.
    """
    if not isinstance(have, TensorInfo) or not isinstance(want, TensorInfo):
        return None
    if have.device != want.device or (want.numel and not have.numel):
        return None
    source: Substitute = SameAs(name)
    if have.dtype != want.dtype:
        source = Computed("to", (source, want.dtype))
    if have.shape == want.shape:
        return source
    if have.numel == want.numel:
        return Computed(torch.reshape, (source, want.shape))
    if not _expands(have.shape, want.shape):
        if want.dtype.is_complex:
            return None
        source = Computed(torch.amax, (source,))
    return Computed("expand", (source, want.shape)) if want.shape else source


def _expands(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    if len(have) > len(want):
        return False
    behind = want[len(want) - len(have) :]
    return all(mine in (1, other) for mine, other in zip(have, behind, strict=True))
