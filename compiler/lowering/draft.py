"""A program while it is lowered: the additions of each node are kept as a whole, or undone.

mark = draft.mark()
...                        a lowering adds buffers, kernels and views
draft.settle(mark)         it worked: memory that became the node's value takes the node's name
draft.undo(mark)           it raised `NotLowered`: nothing of it stays, and the library runs it
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import torch

from ctk.compiler.lowering.ir import Buffer, BufferRole, Dtype, Kernel, Step, View
from ctk.compiler.lowering.layout import Shape
from ctk.compiler.lowering.walk import renamed
from ctk.compiler.sizes.index import ONE, Index, product
from ctk.compiler.sizes.size_guards import NotLowered, size_of, sizes_of

_DTYPES = frozenset((
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
))  # fmt: skip

Item = TypeVar("Item")


class Mark(NamedTuple):
    """The numbers of steps, buffers and views at one moment."""

    steps: int
    buffers: int
    views: int


@dataclass(slots=True)
class Draft:
    """A program while it is lowered."""

    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    views: dict[str, View] = field(default_factory=dict[str, View])
    steps: list[Step] = field(default_factory=list[Step])
    _names: dict[str, int] = field(default_factory=dict[str, int])
    _adopted: dict[str, Buffer] = field(default_factory=dict[str, Buffer])

    def mark(self) -> Mark:
        return Mark(len(self.steps), len(self.buffers), len(self.views))

    def undo(self, mark: Mark) -> None:
        """Remove all additions since a mark."""
        self._adopted.clear()
        del self.steps[mark.steps :]
        _pop(self.buffers, mark.buffers)
        _pop(self.views, mark.views)

    def settle(self, mark: Mark) -> None:
        """Rename memory adopted since a mark to the node whose value it is."""
        adopted, self._adopted = self._adopted, {}
        if not adopted:
            return
        names = {old: new.name for old, new in adopted.items()}
        for name, buffer in _pop(self.buffers, mark.buffers):
            self.buffers[names.get(name, name)] = adopted.get(name, buffer)
        for node, view in _pop(self.views, mark.views):
            self.views[node] = replace(view, buffer=names.get(view.buffer, view.buffer))
        for place in range(mark.steps, len(self.steps)):
            step = self.steps[place]
            if isinstance(step, Kernel):
                self.steps[place] = renamed(step, names)

    def unique(self, name: str) -> str:
        """Return a free name that begins with this one."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    def add_tensor(self, name: str, tensor: torch.Tensor, role: BufferRole, base: str = "") -> None:
        """Add the memory of a tensor that the caller, the graph or the library makes."""
        check_type(tensor)
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        self.buffers[name] = Buffer(
            name, tensor.dtype, shape, strides, tensor.device, role, base=base
        )
        self.views[name] = View(name, tensor.dtype, shape, strides)

    def add_memory(
        self, name: str, dtype: Dtype, shape: Shape, strides: Shape, device: torch.device
    ) -> Buffer:
        """Add memory for kernels to write."""
        buffer = Buffer(name, dtype, shape, strides, device, "kernel")
        self.buffers[name] = buffer
        return buffer

    def adopt(self, name: str, view: View, strides: Shape, device: torch.device) -> None:
        """Let memory made within a node become the node's value, under its name once settled."""
        self._adopted[view.buffer] = Buffer(name, view.dtype, view.shape, strides, device, "kernel")
        self.views[name] = replace(view, strides=strides)

    def is_adoptable(self, origin: str, view: View, strides: tuple[Index, ...]) -> bool:
        """Return whether a view is all of some memory made within a node, with these strides."""
        if not view.buffer.startswith(f"{origin}.") or view.buffer in self._adopted:
            return False
        triples = zip(view.shape, view.strides, strides, strict=True)
        same = all(size == ONE or own == wanted for size, own, wanted in triples)
        return same and product(view.shape) == product(self.buffers[view.buffer].shape)


def view_within(known: View, source: torch.Tensor, tensor: torch.Tensor) -> View:
    """Return a view of `source`, which is `known`, as a view of the same buffer.

    Raises:
        NotLowered: Index expressions do not have its sizes.
    """
    shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
    moved = size_of(tensor.storage_offset()) - size_of(source.storage_offset())
    return View(known.buffer, known.dtype, shape, strides, known.offset + moved)


def check_type(tensor: torch.Tensor) -> None:
    """Raise `NotLowered` for a tensor that kernels do not read or write."""
    if tensor.dtype not in _DTYPES:
        raise NotLowered(f"kernels do not have {tensor.dtype}")
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise NotLowered("it is sparse, or a lazy conjugate or negative")


def _pop(table: dict[str, Item], count: int) -> list[tuple[str, Item]]:
    return [table.popitem() for _ in range(len(table) - count)][::-1]
