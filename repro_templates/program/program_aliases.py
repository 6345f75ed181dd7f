"""Arguments of further calls in other memory: shared, overlapping, or laid out in another way.

    f(x: [1, 2, 3], y: [4, 5, 6])      x and y in memory of their own
    overlaps    [1, 4, 5, 6]           x begins at the first element, y at the second
    twins       [4, 5, 6]              x and y are two tensors on the same elements
    same        [1, 2, 3]              x and y are one tensor
    buffers     [7, 8, 9]              x is a view of a buffer of the model
    offsets     [_, 1, 2, 3]           each tensor begins at the second element of its memory
    strides     [1, _, 2, _, 3, _]     each tensor has other strides

A compiled graph that writes to an argument is right for the memory of the call that it was compiled
for. Without a guard on that memory a later call gets a wrong result, so these calls are made if the
program writes to an argument or returns its memory (`Played.touches`). Shapes stay, and numbers
change only where tensors come to overlap. Integers keep memory of their own on accelerators, where
a wrong index makes the device unusable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ctk.compiler.fx.clone import extent
from ctk.repro_templates.program.program_arguments import (
    Arguments,
    are_apart,
    change_tensors,
    tensors_in,
)

Pairs = Iterable[tuple[Tensor, Tensor]]
"""Tensors with their replacements."""


def alias_arguments(kind: str, arguments: Arguments, model: object) -> list[Arguments]:
    """Return the arguments of one more call with other memory; none if the inputs allow none.

    Args:
        kind: A key of `ALIASES`.
        arguments: Of the last call.
    """
    tensors = tensors_in(arguments)
    if not tensors or not are_apart(tensors):
        return []
    made = {id(old): new for old, new in ALIASES[kind](tensors, model)}
    return [change_tensors(arguments, lambda old: made.get(id(old), old))] if made else []


def _overlap(tensors: Sequence[Tensor], model: object) -> Pairs:
    return _share(tensors, shift=1)


def _twin(tensors: Sequence[Tensor], model: object) -> Pairs:
    return _share(tensors, shift=0)


def _share(tensors: Sequence[Tensor], *, shift: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield views of one memory, each beginning `shift` elements after the one before.

    Zeros, as of a result that is passed in, are written first: they would hide a wrong read.
    """
    for group in _groups(tensors):
        size = max(number * shift + each.numel() for number, each in enumerate(group))
        room = torch.zeros(size, dtype=group[0].dtype, device=group[0].device)
        order = sorted(enumerate(group), key=lambda item: int(item[1].count_nonzero()))
        for number, each in order:
            yield each, _place(each, room, each.stride(), number * shift)


def _merge(tensors: Sequence[Tensor], model: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each tensor the first one of its form."""
    for group in _groups(tensors):
        forms: dict[object, list[Tensor]] = {}
        for each in group:
            forms.setdefault((each.shape, each.stride(), each.requires_grad), []).append(each)
        for members in forms.values():
            if len(members) > 1:
                one = _spread(members[0], members[0].stride(), 0)
                yield from ((each, one) for each in members)


def _view_buffers(tensors: Sequence[Tensor], model: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield views of the largest buffer of the model with the same dtype."""
    buffers = [*model.buffers()] if isinstance(model, torch.nn.Module) else []
    for each in tensors:
        fitting = [b for b in buffers if _is_alike(b, each) and b.numel() >= each.numel()]
        if _is_dense(each) and fitting and not each.requires_grad:
            largest = max(fitting, key=Tensor.numel)
            yield each, largest.detach().as_strided(each.shape, each.stride())


def _move(tensors: Sequence[Tensor], model: object) -> Iterator[tuple[Tensor, Tensor]]:
    return ((each, _spread(each, each.stride(), 1)) for each in tensors if _is_dense(each))


def _stride(tensors: Sequence[Tensor], model: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tensors with the last two dimensions exchanged in memory; vectors with gaps."""
    for each in tensors:
        if each.dim() == 1:
            yield each, _spread(each, (2,), 0)
        elif each.dim() > 1 and _is_dense(each):
            other = each.mT.contiguous().mT.stride()
            yield each, _spread(each, other, 0)


ALIASES: Mapping[str, Callable[[Sequence[Tensor], object], Pairs]] = {
    "overlaps": _overlap,
    "twins": _twin,
    "buffers": _view_buffers,
    "offsets": _move,
    "same": _merge,
    "strides": _stride,
}
"""The changes of memory; from `same` on, torch's own guards ask for another compile."""


def _groups(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors that can share memory, at least two in a group."""
    groups: dict[object, list[Tensor]] = {}
    for each in tensors:
        is_number = each.is_floating_point() or each.is_complex()
        if _is_dense(each) and (is_number or each.device.type == "cpu"):
            groups.setdefault((each.dtype, each.device), []).append(each)
    return [group for group in groups.values() if len(group) > 1]


def _is_alike(buffer: Tensor, tensor: Tensor) -> bool:
    is_same = (buffer.dtype, buffer.device) == (tensor.dtype, tensor.device)
    return is_same and type(buffer) is Tensor and _is_dense(buffer)


def _is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor has elements, and fills the memory between first and last."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    return extent(tensor.shape, tensor.stride()) == tensor.numel()


def _spread(tensor: Tensor, stride: Sequence[int], offset: int) -> Tensor:
    """Return a copy of a tensor with other strides, at an offset in memory of its own."""
    size = offset + extent(tensor.shape, stride)
    room = torch.zeros(size, dtype=tensor.dtype, device=tensor.device)
    return _place(tensor, room, stride, offset)


def _place(tensor: Tensor, room: Tensor, stride: Sequence[int], offset: int) -> Tensor:
    """Copy a tensor into some memory, and return the view of that memory."""
    view = room.as_strided(tensor.shape, stride, offset)
    view.copy_(tensor.detach())
    return view.detach().requires_grad_() if tensor.requires_grad else view
