"""The builder of a program: buffers, what nodes are as arrays, and kernels made of arrays.

A lowering (`operators/`) gets a builder and the arguments of its node, tensors as arrays, and
returns the result as an array, or a tuple of them. What it returns is written to the memory that
eager would have: a dense tensor of the node's strides. So each view of it has eager's strides, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from ctk.compiler.lowering.arrays import Array, At, Shape, cast
from ctk.compiler.lowering.index import ONE, ZERO, Index, Var, of_atom, product
from ctk.compiler.lowering.ir import (
    Buffer,
    BufferRole,
    Dtype,
    Kernel,
    LibraryCall,
    Load,
    Local,
    Op,
    Reduce,
    ReduceKind,
    Scan,
    ScanKind,
    Statement,
    Store,
    StoreMode,
    Sweep,
    Value,
    View,
)
from ctk.compiler.lowering.sizes import NotLowered, sizes_of
from ctk.compiler.lowering.walk import Rewriting

_DTYPES = frozenset((
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
))  # fmt: skip


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
    """

    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    views: dict[str, View] = field(default_factory=dict[str, View])
    steps: list[Kernel | LibraryCall] = field(default_factory=list["Kernel | LibraryCall"])
    node: Node | None = None
    exact: bool = False
    accumulate: Dtype = torch.float32
    _names: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def current(self) -> Node:
        """The node that is being lowered."""
        assert self.node is not None
        return self.node

    @property
    def result(self) -> torch.Tensor:
        """The recorded (fake) tensor of the node; of the first result if it has several."""
        value = self.current.meta.get("val")
        first = value[0] if isinstance(value, (list, tuple)) else value
        if not isinstance(first, torch.Tensor):
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

    def read(self, name: str) -> Array:
        """Return the tensor value of a node as an array."""
        view = self.views[name]
        return Array(view.shape, view.dtype, lambda at: Load(view.buffer, view.at(at), view.dtype))

    def unique(self, name: str) -> str:
        """Return a name that begins with this one and is not taken."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"

    def add_tensor(self, name: str, tensor: torch.Tensor, role: BufferRole) -> None:
        """Add the memory of a tensor that the caller, the graph or the library makes."""
        check_type(tensor)
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        self.buffers[name] = Buffer(name, tensor.dtype, shape, strides, tensor.device, role)
        self.views[name] = View(name, tensor.dtype, shape, strides)

    def temporary(self, suffix: str, dtype: Dtype, shape: Shape) -> Buffer:
        """Return memory for a value within a node, dense in row-major order."""
        name = self.unique(f"{self.current.name}.{suffix}")
        strides = row_major(shape)
        buffer = Buffer(name, dtype, shape, strides, self.device, "kernel")
        self.buffers[name] = buffer
        return buffer

    def array_of(self, buffer: Buffer) -> Array:
        """Return what a buffer holds."""
        view = View(buffer.name, buffer.dtype, buffer.shape, buffer.strides)
        return Array(
            buffer.shape, buffer.dtype, lambda at: Load(buffer.name, view.at(at), buffer.dtype)
        )

    def realize(self, array: Array, suffix: str = "part") -> Array:
        """Compute an array once, into memory of its own."""
        buffer = self.temporary(suffix, array.dtype, array.shape)
        self.store(buffer, array)
        return self.array_of(buffer)

    def write_result(self, name: str, array: Array, tensor: torch.Tensor) -> None:
        """Compute a node's value into new memory of eager's strides."""
        check_type(tensor)
        shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
        if not is_dense(shape, strides):
            raise NotLowered(f"its result is not dense: strides {tuple(tensor.stride())}")
        buffer = Buffer(name, tensor.dtype, shape, strides, tensor.device, "kernel")
        self.buffers[name] = buffer
        self.views[name] = View(name, tensor.dtype, shape, strides)
        self.store(buffer, cast(array, tensor.dtype))

    def store(self, buffer: Buffer, array: Array, mode: StoreMode = "set") -> None:
        """Add the kernel that computes an array into a buffer of its shape."""
        axes = loop_axes(buffer.shape)
        view = View(buffer.name, buffer.dtype, buffer.shape, buffer.strides)
        at = tuple(map(of_atom, axes))
        order = memory_order(buffer.shape, buffer.strides)
        statement = Store(buffer.name, view.at(at), array.at(at), mode)
        self.emit(buffer.name, tuple(axes[axis] for axis in order), (Sweep((), (statement,)),))

    def scatter(
        self, buffer: Buffer, over: Shape, where: Callable[[At], Index], array: Array,
        mode: StoreMode = "set", guard: Array | None = None,
    ) -> None:  # fmt: skip
        """Add the kernel that stores each element of an array at a place that it computes."""
        axes = loop_axes(over)
        at = tuple(map(of_atom, axes))
        condition = None if guard is None else guard.at(at)
        statement = Store(buffer.name, where(at), array.at(at), mode, condition)
        self.emit(buffer.name, tuple(axes), (Sweep((), (statement,)),))

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
        stores = tuple(
            Store(b.name, View(b.name, b.dtype, b.shape, b.strides).at(at), Local(b.name, b.dtype))
            for b in buffers
        )
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
        view = View(name, buffer.dtype, buffer.shape, buffer.strides)
        store = Store(name, view.at(at), Local(name, array.dtype))
        self.emit(name, outer, (Sweep((loops[axis],), (scan, store)),))
        return self.array_of(buffer)

    def emit(self, name: str, outer: tuple[Var, ...], sweeps: tuple[Sweep, ...]) -> None:
        """Add a kernel; everything in it comes from the node that is being lowered."""
        origin = self.current.name
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


def loop_axes(shape: Shape, prefix: str = "i", chosen: Sequence[int] = ()) -> list[Var]:
    """Return a loop for each dimension; those that are chosen get a name with `prefix`."""
    names = [f"{prefix if axis in chosen else 'i'}{axis}" for axis in range(len(shape))]
    return [Var(name, size) for name, size in zip(names, shape, strict=True)]


def row_major(shape: Shape) -> tuple[Index, ...]:
    """Return the strides of a dense tensor, its last dimension innermost."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def memory_order(shape: Shape, strides: tuple[Index, ...]) -> list[int]:
    """Return the axes of a dense tensor, the innermost in memory last.

    Raises:
        NotLowered: It has gaps, or overlaps with itself.
    """
    if any(size == ZERO for size in shape):
        return list(range(len(shape)))
    left = [axis for axis in range(len(shape)) if shape[axis] != ONE]
    order: list[int] = []
    step = ONE
    while left:
        axis = next((each for each in reversed(left) if strides[each] == step), None)
        if axis is None:
            raise NotLowered("its memory is not dense")
        left.remove(axis)
        order.append(axis)
        step = step * shape[axis]
    single = [axis for axis in range(len(shape)) if shape[axis] == ONE]
    return [*single, *reversed(order)]


def is_dense(shape: Shape, strides: tuple[Index, ...]) -> bool:
    """Return whether a tensor has no gaps and no overlaps, in any order of its dimensions."""
    try:
        memory_order(shape, strides)
    except NotLowered:
        return False
    return True


def _result_types(kind: ReduceKind, dtype: Dtype) -> tuple[Dtype, ...]:
    if kind in ("argmax", "argmin"):
        return dtype, torch.int64
    if kind == "mean_m2":
        return dtype, dtype
    return (torch.bool,) if kind in ("any", "all") else (dtype,)


def _with_axes(array: Array, shape: Shape, axes: Sequence[int]) -> Array:
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    full = tuple(ONE if axis in axes else size for axis, size in enumerate(shape))
    return Array(full, array.dtype, lambda at: array.at([at[axis] for axis in kept]))


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
