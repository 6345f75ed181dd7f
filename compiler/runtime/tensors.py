"""Tensors as blobs: each memory once, even if tensors share it.

    table, blobs = store_tensors({"w": w, "w_t": w.t()})       one blob, two rows of the table
    tensors = tensors_of(table, blobs)                         no copy on the CPU

A tensor on the CPU is the blob's own memory: if that is a private mapping of a file, pages are read
when they are touched, and writes stay in the process.
"""

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.records import Json, torch_word
from ctk.compiler.runtime.values import value_of


def store_tensors(
    tensors: Mapping[str, Tensor], prefix: str
) -> tuple[Json, dict[str, bytes | memoryview]]:
    """Return a table of tensors, and their memory as blobs.

    Raises:
        ArtifactError: One is sparse, quantized, a subclass, or has no memory.
    """
    table: dict[str, Json] = {}
    blobs: dict[str, bytes | memoryview] = {}
    known: dict[tuple[str, int], tuple[str, Any]] = {}
    for name, given in tensors.items():
        tensor = _plain(given, name)
        memory = tensor.untyped_storage()
        key = str(tensor.device), memory.data_ptr()
        if key not in known:
            known[key] = f"{prefix}{len(known)}", memory  # kept: its address is its name here
            blobs[known[key][0]] = _bytes_of(memory)
        table[name] = {
            "blob": known[key][0],
            "dtype": torch_word(tensor.dtype),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "device": str(tensor.device),
        }
    return table, blobs


def tensors_of(table: Json, blobs: Mapping[str, bytes | memoryview]) -> dict[str, Tensor]:
    """Return the tensors of a table, by name.

    Raises:
        ArtifactError: The table is malformed, or does not fit the blobs; or a device is missing.
    """
    memories: dict[tuple[str, str], Tensor] = {}
    found: dict[str, Tensor] = {}
    for name, row in table.items():
        try:
            key = str(row["blob"]), str(row["device"])
            if key not in memories:
                memories[key] = _memory_of(blobs[key[0]]).to(key[1])
            memory, dtype = memories[key], value_of({"dtype": row["dtype"]})
            whole = memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
            shape, strides, offset = row["shape"], row["strides"], int(row["offset"])
            found[name] = whole.as_strided(shape, strides, offset)
        except (ArtifactError, RuntimeError, AssertionError, *MALFORMED) as error:
            raise ArtifactError(f"the stored tensor {name} cannot be made: {error}") from error
    return found


def _plain(tensor: Tensor, name: str) -> Tensor:
    plain = tensor.detach()
    is_plain = type(plain) is Tensor and plain.layout is torch.strided and not plain.is_quantized
    if not is_plain or plain.is_meta:
        kind = f"a {type(tensor).__name__} of layout {tensor.layout} on {tensor.device}"
        raise ArtifactError(f"the tensor {name} is {kind}: only strided ones can be stored")
    return plain.resolve_conj().resolve_neg()


def _bytes_of(memory: Any) -> bytes | memoryview:
    """Return the memory of a tensor; a view of it, which keeps it alive, on the CPU."""
    kept = memory.cpu() if memory.device.type != "cpu" else memory
    if kept.nbytes() == 0:
        return b""
    array = (ctypes.c_char * kept.nbytes()).from_address(kept.data_ptr())
    array.ctk_memory = kept
    return memoryview(array).cast("B")


def _memory_of(blob: bytes | memoryview) -> Tensor:
    if len(blob) == 0:
        return torch.empty(0, dtype=torch.uint8)
    writable = blob if isinstance(blob, memoryview) and not blob.readonly else bytearray(blob)
    return torch.frombuffer(writable, dtype=torch.uint8)
