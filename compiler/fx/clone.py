"""Clone values exactly: strides, offsets, shared storage, identity, leaves, parameters.

`Tensor.clone` gives up expanded and overlapping strides and separates tensors that share storage; a
program that writes into one of its inputs would then compute other values.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Generator, ScriptObject, Tensor
from torch.nn import Parameter

from ctk.compiler.errors import NotHeld
from ctk.compiler.fx.tensor_parts import parts_of

_BEFORE_NBYTES = 1 << 16
"""Bytes before the first tensor of a storage that a clone has as well."""

Convert = Callable[[torch.dtype], torch.dtype]
"""Gives the dtype of a clone for the dtype of the original."""


def clone_value(value: object) -> object:
    """Return a detached clone of a tensor with its strides, also overlapping ones.

    The clone has memory of its own: tensors that shared memory no longer do. Lists and tuples are
    cloned element by element; other values are returned as they are.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(clone_value(each) for each in value)
    if not isinstance(value, Tensor):
        return value
    source = value.detach()
    if source.is_conj():
        return cast("Tensor", clone_value(source.conj())).conj()
    copied = source.clone()
    if source.layout != torch.strided or source.is_nested or not source.numel():
        return copied
    if copied.stride() == source.stride():
        return copied
    memory = source.as_strided((extent(value.size(), value.stride()),), (1,)).clone()
    return memory.as_strided(value.size(), value.stride())


def is_freed(tensor: Tensor) -> bool:
    """Return whether a tensor's memory was freed (`resize_(0)`), so that reading it would crash."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return False
    if type(tensor) not in (Tensor, Parameter):
        return False  # a subclass may have no memory of its own
    if not tensor.numel():
        return False
    end = tensor.storage_offset() + extent(tensor.size(), tensor.stride())
    return tensor.untyped_storage().nbytes() < end * tensor.element_size()


def clone_values(values: Sequence[object]) -> tuple[object, ...]:
    """Return `clone_value` of each."""
    return tuple(clone_value(value) for value in values)


def layout(value: object) -> tuple[object, ...]:
    """Return the layout that a result must keep: type, dtype, shape, strides, device."""
    if isinstance(value, (list, tuple)):
        return tuple(layout(each) for each in value)
    if not isinstance(value, Tensor):
        return (type(value),)
    strides = tuple(value.stride()) if value.layout == torch.strided else None
    return (Tensor, value.dtype, tuple(value.size()), strides, value.device, value.layout)


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of memory elements from the first to the last that a view covers."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether two indices may share an element; not exact: strides (2, 3) count as well."""
    reach = 0
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two strided tensors have one dtype, shape and device, and hold the same bits.

    Two meta tensors hold none and are the same. `same_numbers` of `repro_templates/numbers` lets
    every NaN equal every other.
    """
    if (a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device):
        return False
    one, other = (each.detach().resolve_conj().resolve_neg() for each in (a, b))
    return a.is_meta or torch.equal(raw_bytes(one), raw_bytes(other))


def raw_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a strided tensor's elements, in order; memory is shared if it can be."""
    flat = tensor.detach().reshape(-1)
    if flat.stride() != (1,):  # one element with any stride counts as contiguous
        flat = torch.empty(flat.shape, dtype=flat.dtype, device=flat.device).copy_(flat)
    return flat.view(torch.uint8)


def clone_inputs(inputs: Sequence[object], *, convert: Convert | None = None) -> tuple[object, ...]:
    """Return clones of a program's inputs, as new leaves.

    1. Shape, stride and storage offset stay, also expanded and overlapping strides.
    2. The same object twice gives the same clone twice; tensors on one storage share one again, and
       views of one tensor are views of one again where nothing requires a gradient.
    3. `requires_grad` stays, an `nn.Parameter` stays one, gradients are left behind.
    4. Lists, tuples and dicts that hold state (5) are copied around the clones.
    5. State is a tensor, a generator or a TorchScript object. A generator gives a new one in the
       same state; torch's default generators are not copied.
    6. All other values are returned unchanged.

    Args:
        inputs: One value per placeholder; only read.
        convert: Gives the clones other dtypes; None keeps them.

    Raises:
        CaseError: A TorchScript object cannot be copied.
    """
    states = {id(state): state for value in inputs for state in state_in(value)}
    tensors = {key: state for key, state in states.items() if isinstance(state, Tensor)}
    with torch.inference_mode(False), torch.no_grad():
        clones: dict[int, object] = {**_clone_all(tensors, convert)}
    for key, state in states.items():
        if not isinstance(state, Tensor):
            clones[key] = _clone_object(state)
    return tuple(_rebuild(value, clones) for value in inputs)


def state_in(value: object) -> Iterator[Tensor | Generator | ScriptObject]:
    """Yield the tensors, generators (not torch's defaults) and script objects nested in a value."""
    if isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from state_in(item)
    elif isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            yield from state_in(item)
    elif isinstance(value, (Tensor, Generator, ScriptObject)) and not _is_default(value):
        yield value


def _is_default(generator: object) -> bool:
    defaults = (torch.default_generator, *torch.cuda.default_generators)
    return any(generator is default for default in defaults)


def _clone_object(state: Generator | ScriptObject) -> object:
    if isinstance(state, Generator):
        return state.clone_state()
    try:
        return copy.deepcopy(state)
    except Exception as error:
        raise NotHeld(
            f"a TorchScript object of type {state._type()} cannot be copied: {error}\n"  # type: ignore[attr-defined]  # stubs leave it out
            "next: give its class `def_pickle`, or keep it out of the compiled function"
        ) from error


def _rebuild(value: object, clones: dict[int, object]) -> object:
    """Return a value with the clones in place of its state; itself if it holds none."""
    if id(value) in clones:
        return clones[id(value)]
    if next(state_in(value), None) is None:
        return value
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {key: _rebuild(item, clones) for key, item in items}
    items = [_rebuild(item, clones) for item in cast("Sequence[object]", value)]
    kind = cast("Any", type(value))
    return kind(*items) if hasattr(kind, "_fields") else kind(items)  # a named tuple, or not


def _clone_all(tensors: dict[int, Tensor], convert: Convert | None) -> dict[int, Tensor]:
    groups: dict[object, list[tuple[int, Tensor]]] = {}
    for key, tensor in tensors.items():
        storage = _storage_key(key, tensor, by_dtype=convert is not None)
        groups.setdefault(storage, []).append((key, tensor))
    clones: dict[int, Tensor] = {}
    for members in groups.values():
        plain = _is_plain(members[0][1])
        group = [tensor for _, tensor in members]
        to = convert or _own
        made = _clone_group(group, to) if plain else [_clone_odd(group[0], to)]
        for (key, tensor), new in zip(members, made, strict=True):
            clones[key] = _as_leaf(new, tensor)
    return clones


def put_back(tensors: Sequence[object], clones: Sequence[object]) -> None:
    """Write clones over their original tensors.

    Version counters stay, because the tensors have the values again that autograd may have saved.
    Values other than tensors are ignored.
    """
    with torch.inference_mode(), torch.no_grad():
        for tensor, clone in zip(tensors, clones, strict=True):
            if isinstance(tensor, Tensor) and isinstance(clone, Tensor):
                _put_back(tensor, clone)


def _put_back(tensor: Tensor, clone: Tensor) -> None:
    if not (_is_plain(tensor) and _is_plain(clone)):
        tensor.copy_(clone)  # other kinds (sparse, without memory) have no bytes to compare
        return
    memory, saved = _memory(tensor), _memory(clone)
    if not torch.equal(memory, saved):  # memory that did not change may be read-only
        memory.copy_(saved)


def _memory(tensor: Tensor) -> Tensor:
    """Return the bytes that a plain tensor covers, with a version counter of its own."""
    shape = (extent(tensor.shape, tensor.stride()),)
    flat = tensor.data.as_strided(shape, (1,), tensor.storage_offset())
    return flat.view(torch.uint8)


def _own(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor is ordinary memory: shape, stride and offset over one storage."""
    is_own = type(tensor) in (Tensor, Parameter)
    ordinary = is_own and tensor.layout is torch.strided and not tensor.is_nested
    lazy = ordinary and (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)
    return ordinary and not lazy and tensor.device.type != "meta"


def _storage_key(key: int, tensor: Tensor, *, by_dtype: bool) -> object:
    if not _is_plain(tensor) or not tensor.untyped_storage().data_ptr():
        return key
    shared = (tensor.device, tensor.untyped_storage().data_ptr())
    # Views of one storage in two dtypes cannot stay views when each gets another item size.
    return (*shared, tensor.dtype) if by_dtype else shared


def _clone_group(tensors: Sequence[Tensor], convert: Convert) -> list[Tensor]:
    """Clone tensors on one storage onto a new one: the bytes that they cover, and those before.

    A wrong program that reads before the start of an input then reads the same in every run.
    """
    bases = _bases(tensors)
    spans = [_span(tensor) for tensor in (*tensors, *bases.values())]
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    low = max(0, low - _BEFORE_NBYTES)
    dtypes = {tensor.dtype for tensor in tensors}
    unit = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    start, stop = low // unit.itemsize, high // unit.itemsize
    device, storage = tensors[0].device, tensors[0].untyped_storage()
    source = torch.empty(0, dtype=unit, device=device).set_(storage, start, (stop - start,), (1,))
    room = torch.empty(stop, dtype=convert(unit), device=device)
    room[start:].copy_(source)
    made = {key: _view(room, base, convert(base.dtype)) for key, base in bases.items()}
    again = [_again(tensor, made) for tensor in tensors]
    return [
        _view(room, tensor, convert(tensor.dtype)) if clone is None else clone
        for tensor, clone in zip(tensors, again, strict=True)
    ]


def _bases(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return the bases of views by id, if a program can depend on them.

    AOTAutograd compiles views of one base, one of which is written to, for that base: its code
    fails for tensors that share memory without a base. A single view does not need its base, which
    may be far larger; and a view of a tensor that requires a gradient cannot be a leaf.
    """
    views = [tensor for tensor in tensors if _has_base(tensor)]
    bases = [base for tensor in views if (base := tensor._base) is not None]
    used = Counter([id(tensor) for tensor in tensors] + [id(base) for base in bases])
    return {id(base): base for base in bases if used[id(base)] > 1}


def _has_base(tensor: Tensor) -> bool:
    """Return whether `as_strided` of a tensor's base reproduces the tensor."""
    base = None if tensor.is_inference() else tensor._base
    if base is None or not _is_plain(base) or base.dtype != tensor.dtype:
        return False
    return not (tensor.requires_grad or base.requires_grad)


def _again(tensor: Tensor, made: dict[int, Tensor]) -> Tensor | None:
    """Return the clone of a base, or of a view as a view of the clone of its base."""
    if id(tensor) in made:
        return made[id(tensor)]
    base = made.get(id(tensor._base)) if _has_base(tensor) else None
    if base is None:
        return None
    with torch.enable_grad():  # without grad mode, autograd would refuse some writes to the view
        return base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of the tensor in its storage, and the byte after its last."""
    first, size = int(tensor.storage_offset()), tensor.dtype.itemsize
    elements = extent(tensor.shape, tensor.stride())
    return (first * size, (first + elements) * size) if elements else (0, 0)


def _view(room: Tensor, like: Tensor, dtype: torch.dtype) -> Tensor:
    storage, empty = room.untyped_storage(), torch.empty(0, dtype=dtype, device=room.device)
    offset = like.storage_offset() if like.numel() else 0
    return empty.set_(storage, offset, like.size(), like.stride())


def _clone_odd(tensor: Tensor, convert: Convert) -> Tensor:
    """Clone a tensor of other than ordinary memory (sparse, quantized, conjugated, a subclass).

    A conjugation stays pending; a negation does not.

    Weights that MKL has packed, each in one column, are shared: they depend on their address, so
    that operators read other numbers from a clone, and no operator writes to them.
    """
    if tensor.is_conj():
        return _clone_odd(tensor.detach().conj(), convert).conj()
    is_packed = tensor.is_mkldnn and tensor.dim() == 2 and tensor.shape[1] == 1
    if is_packed and convert(tensor.dtype) == tensor.dtype:
        return tensor.detach()
    clone = tensor.detach().clone()
    parts = parts_of(tensor)
    if parts.inner is not None and type(clone) is not type(tensor):  # the class has no `clone`
        plain = [part for _, part in parts.plain()]
        return cast(
            "Tensor", parts.rebuild(iter(cast("Any", clone_inputs(plain, convert=convert))))
        )
    return clone.to(convert(tensor.dtype))


def _as_leaf(new: Tensor, like: Tensor) -> Tensor:
    if isinstance(like, Parameter):
        return Parameter(new, requires_grad=like.requires_grad)
    return new.requires_grad_(like.requires_grad)
