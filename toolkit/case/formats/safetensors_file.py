"""Values of tensors in safetensors files: every dtype of torch, bit for bit, without pickle."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ctk.compiler.errors import CaseError, StorageError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.files import new_file
from ctk.toolkit.case.formats.limits import DIMENSIONS, HEADER_NBYTES, INT64, TENSORS, check_at_most
from ctk.toolkit.case.formats.plain_text import one_line, quote_value
from ctk.toolkit.case.formats.strict_json import expect, items, parse_json

NATIVE = frozenset((
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
))  # fmt: skip
"""Dtypes that every version of safetensors writes; the others are written as bytes."""


def to_array(values: Tensor) -> Tensor:
    """Return values as a contiguous CPU tensor that shares no memory, of a dtype of safetensors."""
    values = torch.view_as_real(values) if values.is_complex() else values
    # not clone: that keeps a stride of 0 in a dimension of size 1, and then bytes cannot be viewed
    plain = torch.empty(values.shape, dtype=values.dtype, device="cpu").copy_(values.detach())
    return plain if plain.dtype in NATIVE else plain.reshape(-1).view(torch.uint8)


def from_array(array: Tensor, dtype: torch.dtype, numel: int, where: str) -> Tensor:
    """Return an array as flat values; raise `CaseError` if its dtype or size is not the index's."""
    real = dtype.to_real() if dtype.is_complex else dtype
    wanted = real if real in NATIVE else torch.uint8
    factor = (2 if dtype.is_complex else 1) * (real.itemsize if wanted is not real else 1)
    if array.dtype != wanted or array.numel() != numel * factor:
        raise CaseError(
            f"{where}: the file holds {array.numel()} elements of {array.dtype}, expected "
            f"{numel * factor} of {wanted}; the case was changed by hand or mixed with another"
        )
    flat = array.reshape(-1).view(real) if wanted is not real else array.reshape(-1)
    return torch.view_as_complex(flat.reshape(-1, 2)) if dtype.is_complex else flat


def save_arrays(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write arrays of `to_array` to a new file; raise `StorageError` if it fails (a full disk)."""
    new_file(path)  # private before it has content
    try:
        save_file(dict(arrays), path)
    except (OSError, SafetensorError) as error:
        path.unlink(missing_ok=True)
        raise StorageError(
            f"{path} cannot be written: {error}; next: free some space, or save without "
            "values (CTK_INPUTS=recipe)"
        ) from error


def check_header(path: Path) -> None:
    """Check the header of a file before safetensors and torch read it.

    8 bytes of length, then JSON: `{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}`.
    The offsets must cover the rest of the file, without gap or overlap.

    Raises:
        CaseError: The header is not one of ctk.
    """
    nbytes = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        check_at_most(length, min(HEADER_NBYTES, max(0, nbytes - 8)), f"{path.name}: header bytes")
        header = parse_json(file.read(length), where=f"{path.name}: header")
    check_at_most(len(header), TENSORS, f"{path.name}: tensors")
    header.pop("__metadata__", None)
    spans = sorted(_span(name, entry, path.name) for name, entry in header.items())
    ends = [0, *(end for _, end in spans)]
    if [start for start, _ in spans] != ends[:-1] or ends[-1] != nbytes - 8 - length:
        raise CaseError(f"{path.name}: tensors overlap, leave gaps or end outside of the file")


def _span(name: str, entry: object, where: str) -> tuple[int, int]:
    place = f"{where}: tensor {quote_value(name)}"
    known = expect(entry, dict, place)
    shape = items(known, "shape", int, place)
    offsets = items(known, "data_offsets", int, place)
    if len(shape) > DIMENSIONS or any(size not in INT64 or size < 0 for size in shape):
        raise CaseError(f"{place}: {quote_value(shape)} is not a shape")
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1]:
        raise CaseError(f"{place}: {quote_value(offsets)} are not offsets")
    return offsets[0], offsets[1]


def load_arrays(path: Path) -> dict[str, Tensor]:
    """Read the arrays of a file; raise `CaseError` if it is cut short, or not one of ctk."""
    try:
        check_header(path)
        return load_file(path)
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, AttributeError) as error:
        reason = one_line(first_line(error), 300)
        raise CaseError(
            f"{path.name} in {path.parent} is not a valid safetensors file ({reason}); "
            "the folder is damaged: copy it again or capture again"
        ) from error
