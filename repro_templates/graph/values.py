"""Values of a repro's inputs: its `inputs()` calls these functions, and the toolkit tries them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch


def randn(size: Sequence[int], *, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normal values that depend on the seed only."""
    generator = torch.Generator("cpu").manual_seed(seed)
    values = torch.randn(tuple(size), generator=generator, dtype=torch.float32, device="cpu")
    return values.to(dtype)


def placed(
    values: torch.Tensor, numbers: Mapping[tuple[int, ...] | range, complex]
) -> torch.Tensor:
    """Put numbers into a tensor: at one element's index, or at a range of all elements in order."""
    for place, number in numbers.items():
        one = torch.tensor(number, dtype=values.dtype, device=values.device)
        if isinstance(place, range):
            values.view(-1)[place.start : place.stop] = one
        else:
            values[place] = one
    return values


def strided(values: torch.Tensor, stride: Sequence[int], offset: int = 0) -> torch.Tensor:
    """Return the same values with other strides, from an offset on in a memory of zeros."""
    pairs = zip(values.size(), stride, strict=True)
    last = sum(max(size - 1, 0) * step for size, step in pairs)
    memory = torch.zeros(offset + last + 1, dtype=values.dtype, device=values.device)
    return memory.as_strided(values.size(), stride, offset).copy_(values)


def inference(build: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return an inference tensor."""
    with torch.inference_mode():
        return build()


def stored(path: Path, name: str, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Read a tensor from a data file (safetensors: length of the header, header, raw bytes).

    Its memory is torch's own: it may be resized, and it can be guarded.
    """
    raw = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8:start])[name]["data_offsets"]
    flat = torch.frombuffer(raw[start + begin : start + end], dtype=torch.uint8)
    return flat.view(dtype).reshape(tuple(size)).clone()
