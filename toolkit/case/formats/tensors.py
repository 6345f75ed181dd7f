"""Tensors as safetensors plus JSON, and back: strides, aliasing, dtypes and parameters are kept.

A *storage* is a piece of memory; an *entry* is a tensor on it (offset, shape, strides). Layouts of
a storage:

1. `dense`: it has one tensor, without overlaps (except in expanded dimensions). Its values are kept
   in row-major order; memory between its elements is not kept.
2. `raw`: it has several tensors, or a tensor that overlaps itself. The memory that they span is
   kept as it is, so that they alias after loading as before.

Values are `stored`, `written` (few different numbers: an exact recipe) or `synthetic` (a recipe of
similar values). Sparse, quantized, nested and subclassed tensors are refused (`CaseError`); every
tensor is loaded as a leaf, without autograd history.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError, NotHeld
from ctk.compiler.fx.clone import extent, overlaps
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fake import fake_tensors as torch_fake
from ctk.toolkit.case.formats.fillings import core_of
from ctk.toolkit.case.formats.limits import DIMENSIONS, INT64, TENSORS, check_at_most, memory_nbytes
from ctk.toolkit.case.formats.plain_text import one_line, quote_value
from ctk.toolkit.case.formats.recipes import (
    Recipe,
    Uniform,
    WrittenRecipe,
    default_recipe,
    find_written_recipe,
    measure_recipe,
    synthesize,
)
from ctk.toolkit.case.formats.safetensors_file import from_array, to_array
from ctk.toolkit.case.formats.scalars import (
    device_from_name,
    dtype_from_name,
    dtype_name,
    size_hint,
)
from ctk.toolkit.case.formats.strict_json import look_up
from ctk.toolkit.case.formats.tensor_index import Storage, TensorEntry, TensorIndex

Keep = Callable[[str, Tensor, int], bool]
"""Whether to keep the values of a tensor: gets its name, the tensor, and its number of values."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Tensors prepared for saving.

    Attributes:
        arrays: For each stored storage by key: a contiguous CPU tensor, for safetensors; with
            `in_place` the values where they are.
    """

    index: TensorIndex
    arrays: dict[str, Tensor]


def keep_all(_name: str, _tensor: Tensor, _count: int) -> bool:
    """Store every value."""
    return True


def pack_tensors(
    named: Mapping[str, Tensor], *, keep: Keep, measure: bool = True, in_place: bool = False
) -> Packed:
    """Split tensors into an index and arrays; they are only read.

    Args:
        named: Tensors by unique name. A tensor may occur twice, and tensors may share memory.
        keep: Which values to store. A storage is stored if `keep` accepts all its tensors.
        measure: Record the statistics of values that are not stored.
        in_place: Neither copy values nor search for exact recipes.

    Raises:
        CaseError: A tensor is sparse, quantized, nested, on `meta`, or of a user's class.
    """
    groups: dict[object, dict[str, Tensor]] = {}
    first_name: dict[int, str] = {}
    same: dict[str, str] = {}
    for name, tensor in named.items():
        check_supported(name, tensor)
        first = first_name.setdefault(id(tensor), name)
        if first == name:
            groups.setdefault(_storage_key(name, tensor), {})[name] = tensor
        else:
            same[name] = first
    entries: dict[str, TensorEntry] = {}
    storages: dict[str, Storage] = {}
    arrays: dict[str, Tensor] = {}
    for group in groups.values():
        name, tensor = next(iter(group.items()))
        is_dense = len(group) == 1 and (torch_fake.is_fake(tensor) or not _overlaps(tensor))
        key = name if is_dense else f"{name}:storage"
        entries |= {each: _entry(value, key) for each, value in group.items()}
        memory = tensor if is_dense else _raw(group.values())
        written = None if in_place else find_written_recipe
        storages[key], values = _pack_group(group, memory, written, keep=keep, measure=measure)
        if values is not None:
            arrays[key] = values if in_place else to_array(values)
    return Packed(TensorIndex(entries, same, storages), arrays)


def check_supported(name: str, tensor: Tensor) -> None:
    """Raise `CaseError` if a tensor cannot be kept in a case."""
    fake = torch_fake.is_fake(tensor)
    has_values = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type != "meta"
    if (fake or has_values) and tensor.layout == torch.strided and not tensor.is_quantized:
        return
    raise NotHeld(
        f"tensor {name!r} is a {type(tensor).__name__} of layout {tensor.layout} on "
        f"{tensor.device}; a case holds plain strided tensors only: convert it in the program, or "
        "capture a smaller part that does not take it as an input"
    )


def _storage_key(name: str, tensor: Tensor) -> object:
    """Tensors with the same key share memory. Lazily negated ones are resolved, so on their own."""
    if torch_fake.is_fake(tensor) or tensor.numel() == 0 or tensor.is_neg():
        return name
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _pack_group(
    group: Mapping[str, Tensor],
    memory: Tensor,
    find_written: Callable[[Tensor], WrittenRecipe | None] | None,
    *,
    keep: Keep,
    measure: bool,
) -> tuple[Storage, Tensor | None]:
    """Return the storage of the tensors on some memory, and its values if they are stored."""
    name, tensor = next(iter(group.items()))
    seed, storage = crc32(name.encode()), _geometry(memory)
    if torch_fake.is_fake(memory):
        recipe = default_recipe(memory.dtype, seed)
        return replace(storage, values="synthetic", recipe=recipe), None
    values = _logical(memory)
    storage = replace(storage, inference=tensor.is_inference())
    written = find_written(values) if find_written else None
    count = values.numel() if written is None else len(written.pieces)
    if not all(keep(each, value, count) for each, value in group.items()):
        recipe = _recipe(group, values, seed, measure=measure)
        return replace(storage, values="synthetic", recipe=recipe), None
    if written is None:
        return storage, values
    return replace(storage, values="written", recipe=written), None


def _recipe(group: Mapping[str, Tensor], values: Tensor, seed: int, *, measure: bool) -> Recipe:
    dtypes = {value.dtype for value in group.values()}
    if len(dtypes) == 1:
        return measure_recipe(values, seed) if measure else default_recipe(values.dtype, seed)
    # bytes that are finite in every dtype: exponents of 0x3f are small, and True is 1
    return Uniform(seed, low=0, high=1 if torch.bool in dtypes else 0x3F)


def _geometry(tensor: Tensor) -> Storage:
    shape, stride = _sizes(tensor)
    # an expanded dimension (stride 0) holds one value
    shape = tuple(size if step else min(size, 1) for size, step in zip(shape, stride, strict=True))
    return Storage(dtype_name(tensor.dtype), size_hint(tensor.storage_offset()), shape, stride)


def _raw(tensors: Collection[Tensor]) -> Tensor:
    """Return the memory that tensors of one storage span, in their dtype or (mixed) as bytes."""
    dtypes = {tensor.dtype for tensor in tensors}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    starts = (size_hint(each.storage_offset()) * each.itemsize for each in tensors)
    ends = (_end(each) * each.itemsize for each in tensors)
    first, end = min(starts) // dtype.itemsize, max(ends) // dtype.itemsize
    storage = next(iter(tensors)).untyped_storage()
    flat = torch.empty(0, dtype=dtype, device=storage.device)
    return flat.set_(storage, first, (end - first,), (1,))


def _entry(tensor: Tensor, key: str) -> TensorEntry:
    shape, stride = _sizes(tensor)
    return TensorEntry(
        storage=key,
        offset=size_hint(tensor.storage_offset()),
        shape=shape,
        stride=stride,
        dtype=dtype_name(tensor.dtype),
        device=str(tensor.device),
        requires_grad=tensor.requires_grad,
        parameter=isinstance(tensor, torch.nn.Parameter),
        conj=tensor.is_conj(),
    )


def _end(tensor: Tensor) -> int:
    return size_hint(tensor.storage_offset()) + extent(*_sizes(tensor))


def _sizes(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides; symbolic ones of a fake tensor become their hints."""
    return tuple(map(size_hint, tensor.shape)), tuple(map(size_hint, tensor.stride()))


def _overlaps(tensor: Tensor) -> bool:
    """Return whether elements share memory, other than those of an expanded dimension."""
    core = core_of(tensor)
    return overlaps(core.shape, core.stride())


def _logical(tensor: Tensor) -> Tensor:
    """Return the values in memory (not conjugated), one per expanded dimension."""
    tensor = tensor.detach().resolve_neg()
    return core_of(tensor.conj() if tensor.is_conj() else tensor)


def unpack_tensors(
    index: TensorIndex,
    arrays: Mapping[str, Tensor],
    *,
    device: str | None = None,
    where: str = "tensors",
) -> dict[str, Tensor]:
    """Rebuild tensors.

    Args:
        device: Put all tensors there instead of on the recorded device.

    Raises:
        CaseError: An array is missing, or a tensor does not fit in memory.
    """
    _check_index(index, where)
    memory: dict[str, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    for name, entry in index.entries.items():
        place = f"{where}: {one_line(name, 100)}"
        try:
            tensors[name] = _unpack_one(entry, index, arrays, memory, device=device, where=place)
        except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
            text = first_line(error)
            raise CaseError(
                f"{place} cannot be made on this machine: {text} (device {entry.device}; to "
                "load the case elsewhere: load_case(folder, device='cpu'))"
            ) from error
    for name, same in index.same.items():
        problem = f"{where}: {one_line(name, 100)}: no tensor {quote_value(same)}"
        tensors[name] = look_up(tensors, same, problem)
    return tensors


def _check_index(index: TensorIndex, where: str) -> None:
    """Check every number of an index, and the total size, before any tensor is built."""
    counts = {"tensors": len(index.entries) + len(index.same), "storages": len(index.storages)}
    for what, count in counts.items():
        check_at_most(count, TENSORS, f"{where}: {what}")
    limit, total = memory_nbytes(), 0
    for key, storage in index.storages.items():
        place = f"{where}: storage {quote_value(key)}"
        total += _nbytes(storage.shape, storage.stride, storage.first, storage.dtype, place)
        check_at_most(total, limit, f"{place}: bytes, with those before it")
    for name, entry in index.entries.items():
        place = f"{where}: {quote_value(name)}"
        _nbytes(entry.shape, entry.stride, entry.offset, entry.dtype, place)
        itemsize = dtype_from_name(entry.dtype, place).itemsize
        check_at_most(math.prod(entry.shape) * itemsize, limit, f"{place}: bytes of all elements")


def _nbytes(shape: Sequence[int], stride: Sequence[int], first: int, dtype: str, where: str) -> int:
    """Return the bytes up to the last element; a recipe needs 8 bytes per element."""
    _check_geometry(shape, stride, first, where)
    return max(
        (first + extent(shape, stride)) * dtype_from_name(dtype, where).itemsize,
        8 * math.prod(shape),
    )


def _unpack_one(
    entry: TensorEntry,
    index: TensorIndex,
    arrays: Mapping[str, Tensor],
    memory: dict[str, Tensor],
    *,
    device: str | None,
    where: str,
) -> Tensor:
    key = entry.storage
    storage = look_up(index.storages, key, f"{where}: no storage {quote_value(key)}")
    place = device_from_name(device or entry.device, where)
    if place.type == "meta":
        raise CaseError(f"{where}: a case holds no tensors without memory (device meta)")
    with torch.inference_mode(storage.inference), torch.no_grad():
        if key not in memory:
            memory[key] = _fill(storage, arrays.get(key), where).to(place)
        tensor = _view(memory[key], entry, where)
        tensor = tensor.conj() if entry.conj else tensor
    if entry.parameter:
        return torch.nn.Parameter(tensor, requires_grad=entry.requires_grad)
    return tensor.requires_grad_() if entry.requires_grad else tensor


def _fill(storage: Storage, array: Tensor | None, where: str) -> Tensor:
    """Return the memory of a storage as a flat CPU tensor; gaps between values are zero."""
    dtype = dtype_from_name(storage.dtype, where)
    shape, stride, first = storage.shape, storage.stride, storage.first
    _check_geometry(shape, stride, first, where)
    numel = math.prod(shape)
    is_written = isinstance(storage.recipe, WrittenRecipe)
    if storage.recipe is not None and storage.values == ("written" if is_written else "synthetic"):
        values = synthesize(storage.recipe, numel, dtype, f"{where}: recipe")
    elif storage.values == "stored" and array is not None:
        values = from_array(array, dtype, numel, where)
    else:
        raise CaseError(f"{where}: its values are {storage.values}, but nothing holds them")
    flat = torch.zeros(first + extent(shape, stride), dtype=dtype, device="cpu")
    flat.as_strided(shape, stride, first).copy_(values.reshape(shape))
    return flat


def _check_geometry(shape: Sequence[int], stride: Sequence[int], first: int, where: str) -> None:
    numbers = [first, *shape, *stride]
    is_sane = len(shape) == len(stride) <= DIMENSIONS and min(numbers) >= 0
    if is_sane and max(numbers) in INT64 and first + extent(shape, stride) in INT64:
        return
    shown = f"shape {quote_value(shape)}, stride {quote_value(stride)}, offset {quote_value(first)}"
    raise CaseError(f"{where}: {shown} do not fit together, or into 64 bits")


def _view(flat: Tensor, entry: TensorEntry, where: str) -> Tensor:
    shape, stride, offset = entry.shape, entry.stride, entry.offset
    _check_geometry(shape, stride, offset, where)
    dtype = dtype_from_name(entry.dtype, where)
    storage = flat.untyped_storage()
    end = offset + extent(shape, stride)
    if 0 not in shape and end * dtype.itemsize > storage.nbytes():
        raise CaseError(
            f"{where}: shape {quote_value(shape)} with stride {quote_value(stride)} "
            "leaves its storage"
        )
    return torch.empty(0, dtype=dtype, device=flat.device).set_(storage, offset, shape, stride)
