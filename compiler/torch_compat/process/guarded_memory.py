"""Surround tensors of a compiled program with memory of known contents.

    guard   tensor   guard      of inputs, and of buffers that generated code allocates on the CPU
    ff ff   1.0 2.0  ff ff      a kernel that reads past the end gets a NaN in every run
    ff ff   ff ff    ff ff      a fresh buffer

Memory outside of a tensor differs from run to run, so a kernel that reads it fails at random; with
a guard it fails always. The storage of a guarded tensor begins and ends with the tensor, as without
a guard, but it cannot be resized: see `is_resize_refused`.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import ctypes
import math
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GUARD_NBYTES = 1 << 16
_ALIGNMENT = 64
_ALLOCATOR = "_empty_strided_cpu"
_NAME_IN_MODULES = "empty_strided_cpu"


@dataclass(slots=True)
class GuardBytes:
    """The bytes that fill the memory around a tensor, and fresh memory.

    A change holds for the next allocations, also of code that was compiled before.
    """

    outside: int = 0xFF
    inside: int = 0xFF


def is_resize_refused(error: BaseException | None) -> bool:
    """Return whether a program has resized a guarded tensor."""
    texts = error.args if isinstance(error, RuntimeError) else ()
    return any("storage that is not resizable" in str(text) for text in texts)


def guard_inputs(values: Sequence[object], held: Iterable[Tensor], contents: GuardBytes) -> None:
    """Move the inputs of a program into guarded memory; inputs that share memory still share it.

    Tensors in lists, of other devices and of other classes are not moved, nor are inputs that share
    memory with such a tensor or with one of `held`.
    """
    others = [each for each in values if isinstance(each, (list, tuple))]
    fixed = [*held, *(leaf for each in others for leaf in each if isinstance(leaf, Tensor))]
    places = {_place(each) for each in fixed if _is_plain(each)}
    moved: dict[int, torch.UntypedStorage] = {}
    for value in values:
        if not (isinstance(value, Tensor) and _is_plain(value)) or _place(value) in places:
            continue
        old = value.untyped_storage()
        if not old.nbytes() or not old.resizable():
            continue
        if _place(value) not in moved:
            moved[_place(value)] = _guarded(old.nbytes(), contents).copy_(old)
        storage, base = moved[_place(value)], value._base
        if base is not None and _place(base) == _place(value):  # AOTAutograd writes to it
            _move(base, storage)
        _move(value, storage)


def _move(value: Tensor, storage: torch.UntypedStorage) -> None:
    new = torch.empty(0, dtype=value.dtype)
    new.set_(storage, value.storage_offset(), value.size(), value.stride())
    with torch.no_grad():
        value.data = new


def _is_plain(value: Tensor) -> bool:
    is_strided = value.layout is torch.strided and value.device.type == "cpu"
    is_bare = type(value) in (Tensor, torch.nn.Parameter) and not value.is_quantized
    return is_strided and is_bare and not (value.is_nested or value.is_conj() or value.is_neg())


def _place(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _guarded(nbytes: int, contents: GuardBytes) -> torch.UntypedStorage:
    """Return fresh memory with a guard before and behind it."""
    memory = (ctypes.c_ubyte * (nbytes + 2 * GUARD_NBYTES + _ALIGNMENT))()
    start = ctypes.addressof(memory)
    ctypes.memset(start, contents.outside, len(memory))
    offset = GUARD_NBYTES + -start % _ALIGNMENT
    ctypes.memset(start + offset, contents.inside, nbytes)
    whole = torch.frombuffer(memory, dtype=torch.uint8, count=nbytes, offset=offset)
    return whole.untyped_storage()


@contextmanager
def guarded_allocations(contents: GuardBytes) -> Generator[None]:
    """Guard the buffers that generated code allocates on the CPU; compile and call inside."""
    guards = torch._C._dynamo.guards
    original: Callable[..., Tensor] = getattr(guards, _ALLOCATOR)

    def allocate(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        extent = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if not math.prod(size):
            return original(size, stride, dtype)
        made = torch.empty(0, dtype=dtype)
        return made.set_(_guarded(extent * made.element_size(), contents), 0, size, stride)

    _replace(original, allocate)
    setattr(guards, _ALLOCATOR, allocate)
    try:
        yield
    finally:
        setattr(guards, _ALLOCATOR, original)
        _replace(allocate, original)


def guarded(inputs: Sequence[object]) -> AbstractContextManager[None]:
    """Move inputs into guarded memory, and return the context that guards buffers."""
    contents = GuardBytes()
    guard_inputs(inputs, (), contents)
    return guarded_allocations(contents)


def _replace(old: object, new: object) -> None:
    """Replace the allocator in the modules that Inductor has generated."""
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    for module in [] if codecache is None else list(codecache.PyCodeCache.modules):
        if vars(module).get(_NAME_IN_MODULES) is old:
            vars(module)[_NAME_IN_MODULES] = new
