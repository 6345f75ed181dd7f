"""Compare the layout of results: strides, shared memory, `requires_grad`.

Two runs whose numbers agree may still differ for a program: a tensor is no longer a view of the
input (a later write is lost), or has become a view of it (a later write spoils it), one is
without a gradient, or has strides on which `view` fails.

    eager:    y = x.t();  return y, y[0]         out0 shares memory with in0, out1 with both
    compiled: y is a copy                        alias at out0: shares memory with in0 in eager only

Invisible differences do not count: strides of dimensions of size 1, of empty tensors, of
gradients (autograd accumulates them as it likes); tensors on one storage that have no element in
common; memory that two inputs shared before the call.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeGuard

import torch
from torch import Tensor

from ctk.compiler.fx.clone import extent, is_freed
from ctk.repro_templates.numbers.errors import Mismatch

LAYOUT = ("stride", "alias", "requires-grad")
"""Kinds of mismatch that are not in values."""

MARKED_ELEMENTS = 1 << 24
"""Limit of storages in which overlaps of two views are searched element by element."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the results of a run, by name.

    Attributes:
        shared: Pairs with an element in memory in common, one of them an output.
        differentiable: Outputs that require a gradient.
    """

    shared: frozenset[Pair] = frozenset()
    differentiable: frozenset[str] = frozenset()


NO_LAYOUT = Layout()


def layout_of(outputs: Mapping[str, object], others: Mapping[str, Tensor]) -> Layout:
    """Return the layout of results, before any of them is cloned.

    Args:
        others: Tensors that it could reach: its inputs, and the tensors that it holds.
    """
    plain = {name: value for name, value in outputs.items() if has_memory(value)}
    known = {**plain, **{n: other for n, other in others.items() if has_memory(other)}}
    storages: dict[tuple[object, int], list[str]] = {}
    for name, value in known.items():
        storages.setdefault((value.device, value.untyped_storage().data_ptr()), []).append(name)
    pairs = [pair for names in storages.values() for pair in combinations(names, 2)]
    shared = frozenset((a, b) for a, b in pairs if a in plain and share(known[a], known[b]))
    tensors = {name: out for name, out in outputs.items() if isinstance(out, Tensor)}
    return Layout(shared, frozenset(name for name, out in tensors.items() if out.requires_grad))


def layout_kinds(expected: str | None) -> tuple[str, ...]:
    """Return the kinds of layout mismatch that count.

    Args:
        expected: Kind of the failure that is searched for; None: any. Another failure must not hide
            it: without its cause the case passes, with any strides.
    """
    if expected is None:
        return LAYOUT
    return (expected,) if expected in LAYOUT else ()


def follows_fake(mismatch: Mismatch, compiled: Mapping[str, object], fake: object) -> bool:
    """Return whether a result has the strides of its fake tensor, which are not those of eager.

    Then the compiler kept to the metadata of an operator, and these are wrong.
    """
    value = compiled.get(mismatch.name)
    if not (isinstance(value, Tensor) and isinstance(fake, Tensor)) or value.shape != fake.shape:
        return False
    return visible_strides(value) == visible_strides(fake)


def describe_strides(mismatches: Sequence[Mismatch]) -> str:
    """Return the sentence about strides that differ and are not a failure."""
    names = [mismatch.name for mismatch in mismatches]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3])
    return f"strides of {listed}{more} differ, values agree; --strides treats it as a failure"


def compare_layouts(
    eager: Mapping[str, object],
    compiled: Mapping[str, object],
    layouts: tuple[Layout, Layout],
    kinds: Collection[str],
) -> tuple[Mismatch, ...]:
    """Return every mismatch of the given kinds between two runs."""
    found = (*_stride_mismatches(eager, compiled), *_other_mismatches(*layouts, eager, compiled))
    return tuple(mismatch for mismatch in found if mismatch.kind in kinds)


def visible_strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides that a program can observe: of dimensions longer than 1."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return ()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in pairs if size > 1)


def stride_mismatch(name: str, eager: object, compiled: object) -> Mismatch | None:
    """Return the mismatch of two tensors of one shape whose strides differ; else None."""
    if not (isinstance(eager, Tensor) and isinstance(compiled, Tensor)):
        return None
    if eager.shape != compiled.shape or visible_strides(eager) == visible_strides(compiled):
        return None
    detail = f"{tuple(compiled.stride())}, eager gives {tuple(eager.stride())}"
    return Mismatch(name, "stride", detail)


def _stride_mismatches(
    eager: Mapping[str, object], compiled: Mapping[str, object]
) -> Iterator[Mismatch]:
    for name, ours in eager.items():
        if name.startswith(("out", "in", "held_", "held.")) and (
            found := stride_mismatch(name, ours, compiled.get(name))
        ):
            yield found


def _other_mismatches(
    ours: Layout, theirs: Layout, eager: Mapping[str, object], compiled: Mapping[str, object]
) -> Iterator[Mismatch]:
    """Yield shared memory and gradients of results that both runs have."""
    known = compiled.keys() & eager.keys()
    for name, other in sorted(ours.shared ^ theirs.shared):
        if name in known and other in known:
            where = "in eager only" if (name, other) in ours.shared else "compiled only"
            yield Mismatch(name, "alias", f"shares memory with {other} {where}")
    for name in sorted((ours.differentiable ^ theirs.differentiable) & known):
        where = "in eager only" if name in ours.differentiable else "compiled only"
        yield Mismatch(name, "requires-grad", f"requires a gradient {where}")


def has_memory(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a plain tensor with elements in memory that still exists."""
    if not isinstance(value, Tensor) or type(value) not in (Tensor, torch.nn.Parameter):
        return False
    is_dense = value.layout is torch.strided and value.numel() > 0 and value.device.type != "meta"
    return is_dense and not is_freed(value)


def share(a: object, b: object) -> bool:
    """Return whether two tensors have an element in memory in common."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.device != b.device:
        return False
    storage = a.untyped_storage()
    if storage.data_ptr() != b.untyped_storage().data_ptr():
        return False
    (first, last), (start, end) = _span(a), _span(b)
    if last <= start or end <= first:
        return False
    if a.element_size() != b.element_size() or storage.nbytes() > MARKED_ELEMENTS:
        return True
    marks = torch.zeros(storage.nbytes() // a.element_size(), dtype=torch.bool, device="cpu")
    marks.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(marks.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def _span(tensor: Tensor) -> Sequence[int]:
    """Return the bytes of its storage between which a tensor lies."""
    first = tensor.storage_offset() * tensor.element_size()
    return int(first), int(first + extent(tensor.shape, tensor.stride()) * tensor.element_size())
