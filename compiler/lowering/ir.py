"""The loop IR, between ATen graphs and generated code.

    Program   buffers, and steps in order: kernels, and library calls
    Kernel    loops over `outer`, and within them sweeps, one after the other
    Sweep     statements, for each value of its `inner` loops; without inner loops, once
    Store     writes a value to a buffer
    Reduce    one value of all the inner iterations; later sweeps read it
    Scan      one value for each iteration, of those up to it
    Value     an expression: a constant, a load, a position, an operation on values

A layer norm over rows, as one kernel:

    kernel out(i0 < 32) of [native_layer_norm]:
      for r0 < 768:
        mean, m2 = mean_m2(float(x[i0*768 + r0]))
      for r0 < 768:
        out[i0*768 + r0] = half((float(x[i0*768 + r0]) - mean) * rsqrt(m2 / 768 + 1e-05))

The outer iterations are independent of each other, and so are the inner ones of a sweep but for
reductions, scans and stores that add. Values are compared by identity: equal values are
one only if they are one object, or when a printer numbers them (`walk.Numbers`).

Source: the loop-level IR of Inductor (`torch/_inductor/ir.py`, `loop_body.py`) with its operator
vocabulary (`ops_handler.py`), and tinygrad's reductions. This one is data, no closures: it prints,
it can be interpreted, and a fused kernel is a value like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import torch
from torch.fx import Node

from ctk.compiler.sizes.index import ZERO, Index, IndexLike, Indirect, Symbol, Var

Dtype: TypeAlias = torch.dtype

ReduceKind = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean_m2"]
"""`max` and `min` give NaN if there is one. `argmax` and `argmin` give the first position, of the
first NaN if there is one; their two results are (value, position). `mean_m2` has two: the mean, and
the sum of squared deviations from it.
"""

POSITIONS: frozenset[ReduceKind] = frozenset(("argmax", "argmin"))
"""Reductions whose second result is a position: the number of an iteration in row-major order."""

ScanKind = Literal["sum", "prod", "max", "min", "logsumexp"]

StoreMode = Literal["set", "add", "max", "min", "prod"]
"""`set` writes. Others combine with the old element, at positions that may coincide (a scatter)."""


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A number."""

    value: float | int | bool
    dtype: Dtype


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """An element of a buffer. `index` counts elements from the buffer's first."""

    buffer: str
    index: Index
    dtype: Dtype


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """An index expression as a value."""

    index: Index
    dtype: Dtype = torch.int64


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operation of `vocabulary.py` on values.

    Arithmetic is done in `dtype`; `vocabulary.py` names the only implicit conversions.
    """

    name: str
    args: tuple[Value, ...]
    dtype: Dtype
    origin: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """A value that is computed, and whose loads are made, only where a condition holds.

    `other` is the result elsewhere, and is computed everywhere.
    """

    condition: Value
    value: Value
    other: Value
    origin: str = ""

    @property
    def dtype(self) -> Dtype:
        return self.other.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """The result of a reduction of an earlier sweep, or of a scan earlier in this one."""

    name: str
    dtype: Dtype


Value: TypeAlias = Const | Load | Position | Op | Guarded | Local


def indirect_value(atom: Indirect) -> Value:
    """Return the value that an index expression uses as a position."""
    return cast("Value", atom.value)


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write a value to a buffer, where the guard holds if there is one. `index` counts elements.

    Elements that a store of a part (`parts.py`) writes are written by no other store.
    """

    buffer: str
    index: Index
    value: Value
    mode: StoreMode = "set"
    guard: Value | None = None
    origin: str = ""
    is_part: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """One value (or more) of all the inner iterations of a sweep.

    Attributes:
        names: The names of the results in later sweeps: one, or two for kinds with two.
        kind: How values are combined; never in an order that depends on threads.
        dtypes: Of the results and the accumulators.
    """

    names: tuple[str, ...]
    kind: ReduceKind
    value: Value
    dtypes: tuple[Dtype, ...]
    origin: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """One value for each inner iteration, of those up to it; there is one inner loop."""

    name: str
    kind: ScanKind
    value: Value
    dtype: Dtype
    origin: str = ""


Statement: TypeAlias = Store | Reduce | Scan


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Statements for each value of some inner loops, the last of which is the innermost."""

    inner: tuple[Var, ...]
    statements: tuple[Statement, ...]

    @property
    def is_ordered(self) -> bool:
        """Whether the order of its iterations counts: a scan, or the place of an extreme."""
        return any(
            isinstance(statement, Scan)
            or (isinstance(statement, Reduce) and statement.kind in POSITIONS)
            for statement in self.statements
        )


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Loops over independent outer iterations, the last innermost; in each, sweeps in order.

    Attributes:
        name: Unique in the program; the name of a buffer that it stores.
        nodes: In the order of the graph.
        found_values, found_loads, found_symbols: The results of `walk.values`, `walk.loads` and
            `walk.symbols`, memoised.
    """

    name: str
    outer: tuple[Var, ...]
    sweeps: tuple[Sweep, ...]
    nodes: tuple[str, ...]
    device: torch.device
    found_values: list[tuple[Value, ...]] = field(
        default_factory=list["tuple[Value, ...]"], init=False, repr=False
    )
    found_loads: list[tuple[Load, ...]] = field(
        default_factory=list["tuple[Load, ...]"], init=False, repr=False
    )
    found_symbols: list[tuple[Symbol, ...]] = field(
        default_factory=list["tuple[Symbol, ...]"], init=False, repr=False
    )

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(statement for sweep in self.sweeps for statement in sweep.statements)

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple(statement for statement in self.statements if isinstance(statement, Store))


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """A node of the graph that runs as it is: an operator of ATen, or arithmetic of sizes."""

    node: Node = field(repr=False)
    why: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node.name,)


Step: TypeAlias = Kernel | LibraryCall

Allow: TypeAlias = Callable[[str, Sequence[str]], bool]
"""Is asked before a rewrite: its rule, and the names of the graph's nodes in it."""

BufferRole = Literal["input", "constant", "kernel", "library"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of one tensor.

    Attributes:
        name: Name of the node whose value it holds; `node.part` for memory within a node.
        strides: In elements; dense, in any order, if a kernel makes the buffer.
        role: Its maker: the caller, the graph, a kernel or the library.
        memory: Name of the buffer whose memory it uses; its own, if empty. A kernel that reads one
            and writes the other touches each element of both at the same time.
        base: The node whose memory it is, if the library made it as a view (`order.py`).
    """

    name: str
    dtype: Dtype
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    device: torch.device
    role: BufferRole
    memory: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor value of a node: some elements of a buffer. Strides and offset count elements."""

    buffer: str
    dtype: Dtype
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index = ZERO

    def at(self, position: tuple[IndexLike, ...] | list[IndexLike]) -> Index:
        """Return where an element is; dimensions of size 1 do not matter."""
        pairs = zip(position, self.strides, strict=True)
        return sum((stride * where for where, stride in pairs), self.offset)


@dataclass(slots=True)
class Program:
    """A lowered graph.

    Attributes:
        buffers: By name. Those of inputs and constants are named as their nodes.
        views: The tensor values of nodes that kernels read or make, by the node's name.
        outputs: The buffers that must exist besides the kernels: the library or the caller reads
            them.
        results: The buffers that the graph returns, or a view of them.
    """

    buffers: dict[str, Buffer]
    steps: list[Step]
    views: dict[str, View]
    outputs: frozenset[str]
    results: frozenset[str] = frozenset()


def is_temporary(program: Program, buffer: str) -> bool:
    """Return whether a buffer only passes values between the kernels of one node."""
    return "." in buffer and buffer in program.buffers
