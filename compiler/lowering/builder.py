"""The builder of a program: buffers, what nodes are as arrays, and kernels made of arrays.

A lowering (`operators/`) gets a builder and the arguments of its node, tensors as arrays, and
returns the result as an array, or a tuple of them. What it returns is written to the memory that
eager would have: a dense tensor of the node's strides. So each view of it has eager's strides, too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch.fx import Node

from ctk.compiler.lowering.arrays import Array, At, cast, constant
from ctk.compiler.lowering.atomics import require_atomic
from ctk.compiler.lowering.ir import (
    POSITIONS,
    Buffer,
    BufferRole,
    Dtype,
    Kernel,
    Load,
    Local,
    Op,
    Reduce,
    ReduceKind,
    Scan,
    ScanKind,
    Statement,
    Step,
    Store,
    StoreMode,
    Sweep,
    Value,
    View,
)
from ctk.compiler.lowering.layout import Shape, is_dense, loop_axes, memory_order, row_major, whole
from ctk.compiler.lowering.walk import Rewriting, renamed
from ctk.compiler.sizes.index import ONE, Index, IndexLike, Var, of_atom, product
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

_DTYPES = frozenset((
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
))  # fmt: skip

Item = TypeVar("Item")


@dataclass(slots=True)
class Builder:
    """What is known while a graph is lowered.

    Attributes:
        buffers: By name.
        views: The tensor values of nodes.
        steps: What has been made so far.
        node: The node that is being lowered.
        exact: Only kernels whose bits are those of eager are made.
        accumulate: The type of sums of floats of 32 bits and less.
        origin: Name of the graph's node that is being lowered.
        target: What a call in place writes to: its values, and where they are.
        part: The recorded result of the part of it that is being lowered, if it was taken apart.
    """

    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    views: dict[str, View] = field(default_factory=dict[str, View])
    steps: list[Step] = field(default_factory=list[Step])
    node: Node | None = None
    exact: bool = False
    accumulate: Dtype = torch.float32
    origin: str = ""
    part: object = None
    target: tuple[Array, View] | None = None
    _names: dict[str, int] = field(default_factory=dict[str, int])
    _given: dict[str, Buffer] = field(default_factory=dict[str, Buffer])

    @property
    def current(self) -> Node:
        """The node that is being lowered."""
        assert self.node is not None
        return self.node

    @property
    def result(self) -> torch.Tensor:
        """The recorded (fake) tensor of the node; of the first result if it has several."""
        value: object = self.current.meta.get("val") if self.part is None else self.part
        results = tuple(value) if isinstance(value, (list, tuple)) else (value,)  # type: ignore[misc]  # of unknown items
        first = next((each for each in results if isinstance(each, torch.Tensor)), None)
        if first is None:
            raise NotLowered("its result is no tensor")
        return first

    @property
    def device(self) -> torch.device:
        return self.result.device

    def accumulator(self, dtype: Dtype) -> Dtype:
        """Return the type in which values of a type are summed up."""
        if not dtype.is_floating_point:
            return dtype
        return dtype if dtype == torch.float64 else self.accumulate

    def read(self, view: View) -> Array:
        """Return the elements of a view as an array."""
        buffer = self.buffers[view.buffer]
        is_whole = view == whole(buffer) and view.strides == row_major(view.shape)

        def element(at: At) -> Value:
            return Load(view.buffer, view.at(at), view.dtype)

        return Array(view.shape, view.dtype, element, buffer.name if is_whole else "")

    def unique(self, name: str) -> str:
        """Return a name that begins with this one and is not taken."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    def forget(self, steps: int, buffers: int, views: int) -> None:
        """Take back what was added since there were so many of each."""
        self._given.clear()
        del self.steps[steps:]
        while len(self.buffers) > buffers:
            self.buffers.popitem()
        while len(self.views) > views:
            self.views.popitem()

    def add_tensor(self, name: str, tensor: torch.Tensor, role: BufferRole, base: str = "") -> None:
        """Add the memory of a tensor that the caller, the graph or the library makes."""
        check_type(tensor)
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        buffer = Buffer(name, tensor.dtype, shape, strides, tensor.device, role, base=base)
        self.buffers[name] = buffer
        self.views[name] = View(name, tensor.dtype, shape, strides)

    def temporary(self, suffix: str, dtype: Dtype, shape: Shape) -> Buffer:
        """Return memory for a value within a node, dense in row-major order."""
        name = self.unique(f"{self.origin}.{suffix}")
        strides = row_major(shape)
        buffer = Buffer(name, dtype, shape, strides, self.device, "kernel")
        self.buffers[name] = buffer
        return buffer

    def array_of(self, buffer: Buffer) -> Array:
        """Return what a buffer holds."""
        return self.read(whole(buffer))

    def realize(self, array: Array, suffix: str = "part") -> Array:
        """Compute an array once, into memory of its own."""
        buffer = self.temporary(suffix, array.dtype, array.shape)
        self.store(buffer, array)
        return self.array_of(buffer)

    def write_result(self, name: str, array: Array, tensor: torch.Tensor) -> None:
        """Compute a node's value into memory of eager's strides.

        Memory that was made for it within the node, and is just that, becomes it.
        """
        self.keep_result(name, self.place(name, array, tensor), tensor)

    def place(
        self, name: str, array: Array, tensor: torch.Tensor, dtype: Dtype | None = None
    ) -> View:
        """Return where a value is, computed into new memory if need be.

        Args:
            name: Of the memory, if it is new.
            array: The value.
            tensor: Its recorded value, which has eager's strides.
            dtype: Of its elements; that of eager by default.
        """
        check_type(tensor)
        dtype = dtype or tensor.dtype
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        if array.buffer and array.dtype == dtype and array.shape == shape:
            view = View(array.buffer, dtype, shape, row_major(shape))
            if self._is_made(view, strides):
                return view
        if not is_dense(shape, strides):
            raise NotLowered(f"its result is not dense: strides {tuple(tensor.stride())}")
        buffer = Buffer(name, dtype, shape, strides, tensor.device, "kernel")
        self.buffers[name] = buffer
        self.store(buffer, cast(array, dtype))
        return whole(buffer)

    def keep_result(self, name: str, view: View, tensor: torch.Tensor) -> None:
        """Let memory that was made within the node be its value, or copy what is there."""
        strides = sizes_of(tensor.stride())
        if view.buffer == name:
            self.views[name] = view
        elif view.dtype == tensor.dtype and self._is_made(view, strides):
            made = Buffer(name, view.dtype, view.shape, strides, tensor.device, "kernel")
            self._given[view.buffer] = made
            self.views[name] = replace(view, strides=strides)
        else:
            self.write_result(name, self.read(view), tensor)

    def settle(self, steps: int, buffers: int, views: int) -> None:
        """Call memory that has become a result by the name of its node.

        Args:
            steps: How many steps there were before the node; so too `buffers` and `views`.
        """
        given, self._given = self._given, {}
        if not given:
            return
        names = {old: new.name for old, new in given.items()}
        for name, buffer in _taken(self.buffers, buffers):
            self.buffers[names.get(name, name)] = given.get(name, buffer)
        for node, view in _taken(self.views, views):
            self.views[node] = replace(view, buffer=names.get(view.buffer, view.buffer))
        for place in range(steps, len(self.steps)):
            step = self.steps[place]
            if isinstance(step, Kernel):
                self.steps[place] = renamed(step, names)

    def _is_made(self, view: View, strides: tuple[Index, ...]) -> bool:
        """Return whether a view is all of some memory of this node, with these strides."""
        if not view.buffer.startswith(f"{self.origin}.") or view.buffer in self._given:
            return False
        pairs = zip(view.shape, view.strides, strides, strict=True)
        same = all(size == ONE or own == wanted for size, own, wanted in pairs)
        return same and product(view.shape) == product(self.buffers[view.buffer].shape)

    def write(self, view: View, array: Array) -> None:
        """Add the kernel that computes an array into memory that exists, the shapes being equal."""
        axes = loop_axes(view.shape)
        at = tuple(map(of_atom, axes))
        statement = Store(view.buffer, view.at(at), cast(array, view.dtype).at(at))
        dense = is_dense(view.shape, view.strides)
        order = memory_order(view.shape, view.strides) if dense else range(len(axes))
        loops = tuple(axes[axis] for axis in order)
        self.emit(self.unique(f"{self.origin}.written"), loops, (Sweep((), (statement,)),))

    def store(self, buffer: Buffer, array: Array, mode: StoreMode = "set") -> None:
        """Add the kernel that computes an array into a buffer of its shape."""
        axes = loop_axes(buffer.shape)
        at = tuple(map(of_atom, axes))
        order = memory_order(buffer.shape, buffer.strides)
        statement = Store(buffer.name, whole(buffer).at(at), array.at(at), mode)
        self.emit(buffer.name, tuple(axes[axis] for axis in order), (Sweep((), (statement,)),))

    def scatter(
        self, start: Array, array: Array, where: Callable[[At], Sequence[IndexLike]],
        mode: StoreMode = "set", guard: Array | None = None,
    ) -> Array:  # fmt: skip
        """Return an array with each element of another one stored at a place that it computes.

        Args:
            start: What is there before.
            array: What is stored, of the same type.
            where: Gives the position in `start` for one in `array`.
            mode: How elements that meet are combined.
            guard: Which are stored, of the shape of `array`; None for all.
        """
        require_atomic(self.device, mode, array.dtype)
        in_place = self.target is not None and start is self.target[0]
        view = self._scatter_memory(start)
        axes = loop_axes(array.shape)
        at = tuple(map(of_atom, axes))
        condition = None if guard is None else guard.at(at)
        place = view.at(tuple(where(at)))
        statement = Store(view.buffer, place, array.at(at), mode, condition)
        self.emit(self.unique(f"{self.origin}.scattered"), tuple(axes), (Sweep((), (statement,)),))
        return start if in_place else self.read(view)

    @contextmanager
    def writing(self, array: Array, view: View) -> Generator[None]:
        """Let scatters into an array write into the memory where it is; they return the array."""
        self.target = array, view
        try:
            yield
        finally:
            self.target = None

    def _scatter_memory(self, start: Array) -> View:
        """Return the memory that a scatter writes: the target of a call in place, or a copy."""
        if self.target is not None and start is self.target[0]:
            return self.target[1]
        buffer = self.temporary("scatter", start.dtype, start.shape)
        self.store(buffer, start)
        return whole(buffer)

    def reduce(
        self,
        kind: ReduceKind,
        array: Array,
        axes: Sequence[int],
        *,
        keepdim: bool = False,
        dtypes: tuple[Dtype, ...] | None = None,
    ) -> tuple[Array, ...]:
        """Return the results of a reduction over some axes: one array, or two for some kinds.

        Args:
            kind: What is computed.
            array: Of the type of the accumulator.
            axes: Not negative, each once.
            keepdim: Leave the axes there, with size 1.
            dtypes: Of the results; by default that of the array for each.
        """
        if not axes:
            return _of_one(kind, array, dtypes)
        loops = loop_axes(array.shape, prefix="r", chosen=axes)
        outer = tuple(each for axis, each in enumerate(loops) if axis not in axes)
        inner = tuple(each for axis, each in enumerate(loops) if axis in axes)
        types = dtypes or _result_types(kind, array.dtype)
        shape = tuple(each.size for each in outer)
        buffers = [self.temporary(kind, dtype, shape) for dtype in types]
        names = tuple(buffer.name for buffer in buffers)
        value = array.at(tuple(map(of_atom, loops)))
        reduction = Reduce(names, kind, value, types)
        at = tuple(map(of_atom, outer))
        stores = tuple(Store(b.name, whole(b).at(at), Local(b.name, b.dtype)) for b in buffers)
        self.emit(names[0], outer, (Sweep(inner, (reduction,)), Sweep((), stores)))
        results = [self.array_of(buffer) for buffer in buffers]
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
        return self.array_of(buffer)

    def emit(self, name: str, outer: tuple[Var, ...], sweeps: tuple[Sweep, ...]) -> None:
        """Add a kernel; everything in it comes from the node that is being lowered."""
        origin = self.origin
        marking = Rewriting(change=lambda value: _marked(value, origin))
        made: list[Sweep] = []
        for sweep in sweeps:
            statements = (_from(marking.statement(each), origin) for each in sweep.statements)
            made.append(Sweep(_counted(sweep.inner), tuple(statements)))
        loops = tuple(each for each in outer if each.size != ONE)
        self.steps.append(Kernel(name, loops, tuple(made), (origin,), self.device))


def check_type(tensor: torch.Tensor) -> None:
    """Raise `NotLowered` for a tensor that kernels do not read or write."""
    if tensor.dtype not in _DTYPES:
        raise NotLowered(f"kernels do not have {tensor.dtype}")
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise NotLowered("it is sparse, or a lazy conjugate or negative")


def _result_types(kind: ReduceKind, dtype: Dtype) -> tuple[Dtype, ...]:
    if kind in POSITIONS:
        return dtype, torch.int64
    if kind == "mean_m2":
        return dtype, dtype
    return (torch.bool,) if kind in ("any", "all") else (dtype,)


def _of_one(kind: ReduceKind, array: Array, dtypes: tuple[Dtype, ...] | None) -> tuple[Array, ...]:
    """Return the results of a reduction over no axes: each element by itself."""
    types = dtypes or _result_types(kind, array.dtype)
    if kind == "mean_m2":  # of infinities the rest is NaN
        return cast(array, types[0]), cast(array - array, types[1])
    return cast(array, types[0]), *(constant(0, dtype, array.shape) for dtype in types[1:])


def _with_axes(array: Array, shape: Shape, axes: Sequence[int]) -> Array:
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    full = tuple(ONE if axis in axes else size for axis, size in enumerate(shape))
    return Array(full, array.dtype, lambda at: array.at([at[axis] for axis in kept]), array.buffer)


def _marked(value: Value, origin: str) -> Value | None:
    if isinstance(value, Op) and not value.origin:
        return Op(value.name, value.args, value.dtype, origin)
    return None


def _from(statement: Statement, origin: str) -> Statement:
    return replace(statement, origin=statement.origin or origin)


def _counted(loops: tuple[Var, ...]) -> tuple[Var, ...]:
    """Leave out loops of one iteration, but for one: a sweep with loops keeps its kind."""
    counted = tuple(each for each in loops if each.size != ONE)
    return counted or loops[:1]


def _taken(table: dict[str, Item], count: int) -> list[tuple[str, Item]]:
    """Take the entries out of a table that came after the first so many."""
    items = [table.popitem() for _ in range(len(table) - count)]
    return items[::-1]
