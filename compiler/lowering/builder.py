"""The builder: makes kernels from the arrays of lowerings.

A lowering (`operators/`) gets a builder and the arguments of its node, tensors as arrays, and
returns the result as an array, or a tuple of arrays. The builder writes the result to memory of
eager's strides, so that each view of it has eager's strides as well. `draft.py` holds the program
that grows.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from ctk.compiler.lowering.arrays import Array, At, cast, constant
from ctk.compiler.lowering.draft import Draft, check_type
from ctk.compiler.lowering.ir import (
    POSITIONS,
    Buffer,
    Dtype,
    Kernel,
    Load,
    Local,
    Op,
    Reduce,
    ReduceKind,
    Scan,
    ScanKind,
    Store,
    StoreMode,
    Sweep,
    Value,
    View,
)
from ctk.compiler.lowering.layout import Shape, loop_axes, memory_order, row_major, whole
from ctk.compiler.lowering.walk import Rewriting
from ctk.compiler.sizes.index import ONE, IndexLike, Var, of_atom
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

_ATOMIC = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))
_ATOMIC_SUMS = _ATOMIC | {torch.float16, torch.bfloat16}
"""Types that a GPU combines atomically: by `max` and `min`, and by `add`."""


@dataclass(slots=True)
class Builder:
    """Makes the kernels of one node after the other.

    Attributes:
        exact: Make only kernels with the bits of eager.
        attention_gradients: Make kernels of the gradient of attention.
        part: The recorded result of one operator of the node's decomposition, while it is lowered.
        target: The target of a call in place: its values, and their memory.
    """

    draft: Draft = field(default_factory=Draft)
    node: Node | None = None
    exact: bool = False
    accumulate: Dtype = torch.float32
    attention_gradients: bool = True
    origin: str = ""
    part: object = None
    target: tuple[Array, View] | None = None

    @property
    def current(self) -> Node:
        """The node that is being lowered."""
        assert self.node is not None
        return self.node

    @property
    def result(self) -> torch.Tensor:
        """The recorded (fake) tensor of the node; of its first result if it has several."""
        value: object = self.current.meta.get("val") if self.part is None else self.part
        results = tuple(value) if isinstance(value, (list, tuple)) else (value,)  # type: ignore[misc]  # of unknown items
        first = next((each for each in results if isinstance(each, torch.Tensor)), None)
        if first is None:
            raise NotLowered("its result is not a tensor")
        return first

    @property
    def device(self) -> torch.device:
        return self.result.device

    def accumulated(self, array: Array) -> Array:
        """Return an array in the type that it is summed up in."""
        if not array.dtype.is_floating_point or array.dtype == torch.float64:
            return array
        return cast(array, self.accumulate)

    def read(self, view: View) -> Array:
        """Return the elements of a view as an array."""
        buffer = self.draft.buffers[view.buffer]
        is_whole = view == whole(buffer) and view.strides == row_major(view.shape)

        def element(at: At) -> Value:
            return Load(view.buffer, view.at(at), view.dtype)

        return Array(view.shape, view.dtype, element, buffer.name if is_whole else "")

    def temporary(self, suffix: str, dtype: Dtype, shape: Shape) -> Buffer:
        """Add memory for a value within the node, dense in row-major order."""
        name = self.draft.unique(f"{self.origin}.{suffix}")
        return self.draft.add_memory(name, dtype, shape, row_major(shape), self.device)

    def realize(self, array: Array, suffix: str = "part") -> View:
        """Compute an array once, into memory of its own."""
        buffer = self.temporary(suffix, array.dtype, array.shape)
        self.write(whole(buffer), array, buffer.name)
        return whole(buffer)

    def write_result(self, name: str, array: Array, tensor: torch.Tensor) -> None:
        """Compute a node's value into memory of eager's strides.

        Memory made within the node is adopted if it holds exactly this value.
        """
        self.keep_result(name, self.place(name, array, tensor), tensor)

    def place(
        self, name: str, array: Array, tensor: torch.Tensor, dtype: Dtype | None = None
    ) -> View:
        """Return the memory of a value, computed into new memory, called `name`, if it has none.

        `tensor` is its recorded value, with eager's strides, and its type unless `dtype` is given.
        """
        check_type(tensor)
        dtype = dtype or tensor.dtype
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        if array.buffer and array.dtype == dtype and array.shape == shape:
            view = View(array.buffer, dtype, shape, row_major(shape))
            if self.draft.is_adoptable(self.origin, view, strides):
                return view
        if memory_order(shape, strides) is None:
            raise NotLowered(f"its result is not dense: strides {tuple(tensor.stride())}")
        buffer = self.draft.add_memory(name, dtype, shape, strides, tensor.device)
        self.write(whole(buffer), array, name)
        return whole(buffer)

    def keep_result(self, name: str, view: View, tensor: torch.Tensor) -> None:
        """Adopt memory made within the node as its value, or else copy its contents."""
        strides = sizes_of(tensor.stride())
        if view.buffer == name:
            self.draft.views[name] = view
        elif view.dtype == tensor.dtype and self.draft.is_adoptable(self.origin, view, strides):
            self.draft.adopt(name, view, strides, tensor.device)
        else:
            self.write_result(name, self.read(view), tensor)

    def write(self, view: View, array: Array, name: str = "") -> None:
        """Add the kernel, called `name`, that computes an array into memory of its shape."""
        axes = loop_axes(view.shape)
        at = tuple(map(of_atom, axes))
        statement = Store(view.buffer, view.at(at), cast(array, view.dtype).at(at))
        order = memory_order(view.shape, view.strides) or range(len(axes))
        loops = tuple(axes[axis] for axis in order)
        name = name or self.draft.unique(f"{self.origin}.written")
        self.emit(name, loops, (Sweep((), (statement,)),))

    def scatter(
        self, start: Array, array: Array, where: Callable[[At], Sequence[IndexLike]],
        mode: StoreMode = "set", guard: Array | None = None,
    ) -> Array:  # fmt: skip
        """Return `start` with each element of `array` stored at a computed position.

        Args:
            where: Maps a position of `array` to one of `start`.
            guard: Which elements are stored, of the shape of `array`; None for all.
        """
        require_atomic(self.device, mode, array.dtype)
        target = self.target if self.target is not None and start is self.target[0] else None
        view = self.realize(start, "scatter") if target is None else target[1]
        axes = loop_axes(array.shape)
        at = tuple(map(of_atom, axes))
        condition = None if guard is None else guard.at(at)
        place = view.at(tuple(where(at)))
        statement = Store(view.buffer, place, array.at(at), mode, condition)
        self.emit(
            self.draft.unique(f"{self.origin}.scattered"), tuple(axes), (Sweep((), (statement,)),)
        )
        return self.read(view) if target is None else start

    @contextmanager
    def writing(self, array: Array, view: View) -> Generator[None]:
        """Let scatters into an array write to its own memory and return the array."""
        self.target = array, view
        try:
            yield
        finally:
            self.target = None

    def reduce(
        self, kind: ReduceKind, array: Array, axes: Sequence[int], *, keepdim: bool = False
    ) -> tuple[Array, ...]:
        """Return the results of a reduction over some axes: one array, or two for some kinds.

        Args:
            array: Of the type of the accumulator.
            axes: Not negative, each once.
        """
        if not axes:
            return _of_one(kind, array)
        loops = loop_axes(array.shape, prefix="r", chosen=axes)
        outer = tuple(each for axis, each in enumerate(loops) if axis not in axes)
        inner = tuple(each for axis, each in enumerate(loops) if axis in axes)
        types = _result_types(kind, array.dtype)
        shape = tuple(each.size for each in outer)
        buffers = [self.temporary(kind, dtype, shape) for dtype in types]
        names = tuple(buffer.name for buffer in buffers)
        value = array.at(tuple(map(of_atom, loops)))
        reduction = Reduce(names, kind, value, types)
        at = tuple(map(of_atom, outer))
        stores = tuple(Store(b.name, whole(b).at(at), Local(b.name, b.dtype)) for b in buffers)
        self.emit(names[0], outer, (Sweep(inner, (reduction,)), Sweep((), stores)))
        results = [self.read(whole(buffer)) for buffer in buffers]
        if keepdim:
            results = [_with_axes(result, array.shape, axes) for result in results]
        return tuple(results)

    def scan(self, kind: ScanKind, array: Array, axis: int) -> Array:
        """Return the running result along an axis."""
        buffer = self.temporary("scan", array.dtype, array.shape)
        loops = loop_axes(array.shape, prefix="r", chosen=(axis,))
        at = tuple(map(of_atom, loops))
        outer = tuple(each for position, each in enumerate(loops) if position != axis)
        name = buffer.name
        scan = Scan(name, kind, array.at(at), array.dtype)
        store = Store(name, whole(buffer).at(at), Local(name, array.dtype))
        self.emit(name, outer, (Sweep((loops[axis],), (scan, store)),))
        return self.read(whole(buffer))

    def emit(self, name: str, outer: tuple[Var, ...], sweeps: tuple[Sweep, ...]) -> None:
        """Add a kernel, all of whose statements originate from the node that is lowered."""
        origin = self.origin
        marking = Rewriting(change=lambda value: _marked(value, origin))
        made: list[Sweep] = []
        for sweep in sweeps:
            statements = (
                replace(marking.statement(statement), origin=origin)
                for statement in sweep.statements
            )
            made.append(Sweep(_counted(sweep.inner), tuple(statements)))
        loops = tuple(each for each in outer if each.size != ONE)
        self.draft.steps.append(Kernel(name, loops, tuple(made), (origin,), self.device))


def _result_types(kind: ReduceKind, dtype: Dtype) -> tuple[Dtype, ...]:
    if kind in POSITIONS:
        return dtype, torch.int64
    if kind == "mean_m2":
        return dtype, dtype
    return (torch.bool,) if kind in ("any", "all") else (dtype,)


def _of_one(kind: ReduceKind, array: Array) -> tuple[Array, ...]:
    """Return the results of a reduction over no axes: each element by itself."""
    types = _result_types(kind, array.dtype)
    if kind == "mean_m2":  # of infinities the rest is NaN
        return array, array - array
    if kind == "sum" and array.dtype.is_floating_point:
        return (array + 0,)  # a sum begins with 0.0: never -0.0
    return cast(array, types[0]), *(constant(0, dtype, array.shape) for dtype in types[1:])


def _with_axes(array: Array, shape: Shape, axes: Sequence[int]) -> Array:
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    full = tuple(ONE if axis in axes else size for axis, size in enumerate(shape))
    return Array(full, array.dtype, lambda at: array.at([at[axis] for axis in kept]), array.buffer)


def _marked(value: Value, origin: str) -> Value | None:
    if isinstance(value, Op) and not value.origin:
        return Op(value.name, value.args, value.dtype, origin)
    return None


def _counted(loops: tuple[Var, ...]) -> tuple[Var, ...]:
    """Drop loops of one iteration; keep one if all are, because a reduction needs a loop."""
    counted = tuple(loop for loop in loops if loop.size != ONE)
    return counted or loops[:1]


def is_atomic(mode: StoreMode, dtype: Dtype) -> bool:
    """Return whether a GPU combines values of a type at one place in one step."""
    return dtype in _ATOMIC_SUMS if mode == "add" else mode in ("max", "min") and dtype in _ATOMIC


def require_atomic(device: torch.device, mode: StoreMode, dtype: Dtype) -> None:
    """Refuse a scatter that a GPU cannot do, or cannot do in the deterministic order asked for.

    Raises:
        NotLowered: One of the two.
    """
    if mode == "set" or device.type == "cpu":
        return
    if not is_atomic(mode, dtype):
        raise NotLowered(f"a GPU has no atomic {mode} of {dtype}")
    if dtype.is_floating_point and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("the order of atomic sums differs, and algorithms are to be deterministic")
