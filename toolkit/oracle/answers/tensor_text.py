"""Describe a tensor in one line; tensors that could lead to different answers differ in it.

    Tensor False float32 (4,) (1,) 1/36 cpu in 0 8f2c...   `x = base[1:5]` of 9 elements
    the 0                                                  the same object once more

An oracle gets a copy of a case, or a saved and loaded one. The line holds all that these keep:
class, gradient, dtype, shape, strides, the offset in memory (so the alignment of the elements) and
the tensors that share the memory. It also holds the size of the memory, which no copy keeps,
because less memory counts as simpler (reduce/size.py). It leaves out the address, and the bytes
before, between and behind the elements.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.compiler.torch_compat.fake.fake_tensors import is_fake, sparse_parts
from ctk.repro_templates.numbers.plain_parts import plain_parts

Read = Callable[[Tensor], str]
"""Returns a digest of the values of a tensor."""


@dataclass(slots=True)
class TensorTexts:
    """Describes the tensors of one case, in the order in which a program meets them."""

    read: Read
    seen: dict[int, int] = field(default_factory=dict[int, int])
    memory: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, tensor: Tensor) -> str:
        """Return the line of a tensor; the second time only its number."""
        number = self.seen.setdefault(id(tensor), count := len(self.seen))
        if number != count:
            return f"the {number}"
        return f"{type(tensor).__name__} {tensor.requires_grad} {self._content(tensor)}"

    def _content(self, tensor: Tensor) -> str:
        if is_fake(tensor):
            return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}"
        if type(tensor) not in PLAIN_CLASSES:
            parts = plain_parts(tensor).items()
            return " ".join(f"{place} {self._content(part)}" for place, part in parts)
        if tensor.is_nested or tensor.layout != torch.strided:
            shape = "nested" if tensor.is_nested else tuple(tensor.shape)
            return f"{tensor.dtype} {shape} {tensor.layout} {tensor.device} {self.read(tensor)}"
        text = " ".join([self._place(tensor), *flags_of(tensor)])
        return text if tensor.is_meta else f"{text} {self.read(tensor)}"

    def _place(self, tensor: Tensor) -> str:
        """Return dtype, shape, and where in memory the elements lie."""
        storage = tensor.untyped_storage()
        address = 0 if tensor.is_meta else storage.data_ptr()
        number = self.memory.setdefault(address, len(self.memory)) if address else "none"
        offset = f"{tensor.storage_offset()}/{storage.nbytes()}"
        place = f"{tensor.stride()} {offset} {tensor.device} in {number}"
        return f"{tensor.dtype} {tuple(tensor.shape)} {place}"


def flags_of(tensor: Tensor) -> Iterator[str]:
    """Yield the other properties that change how the bytes of a strided tensor are read."""
    if tensor.is_conj():
        yield "conj"
    if tensor.is_neg():
        yield "neg"
    if tensor.is_inference():
        yield "inference"
    if tensor.is_quantized:
        yield str(tensor.qscheme())


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the strided tensors whose bytes are the values of a tensor of a plain class.

    1. Strided: itself. 2. Quantized: its integers, scales and zero points.
    3. Nested: each of those in it. 4. Sparse: indices and values. 5. Packed by a library: unpacked.
    """
    if tensor.is_nested:
        yield from tensor.unbind()
    elif tensor.layout != torch.strided:
        yield from sparse_parts(tensor) or (tensor.to_dense(),)
    elif tensor.is_quantized:
        yield tensor.int_repr()
        yield from scales_of(tensor)
    else:
        yield tensor.resolve_conj().resolve_neg()


def scales_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the scales and zero points of a quantized tensor: one of each, or one per channel."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float64, device="cpu")
        return (scale, torch.tensor(tensor.q_zero_point(), device="cpu"))
    axis = torch.tensor(tensor.q_per_channel_axis(), device="cpu")
    return (tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), axis)
