"""The parts of a pattern: calls of operators, variables, sizes and dimensions.

    x = Var("x")
    inner = Op(aten.mul.Tensor, (x, 2))
    Op(aten.add.Tensor, (inner, inner))     # matches add(m, m) of one node m = mul(x, 2)

An `Op` object stands for one node: if it is used twice, the graph must use one node twice. So a
pattern is an acyclic graph. A pattern with several results is a tuple of `Op`s. `solve.py` matches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten

SWAPPABLE: Mapping[object, tuple[int, int]] = {
    aten.add.Tensor: (0, 1),
    aten.mul.Tensor: (0, 1),
    aten.maximum.default: (0, 1),
    aten.minimum.default: (0, 1),
}
"""The two arguments of an operator that may be swapped without changing a bit of the values.

The strides of the result may change: they follow the first operand. `add` is symmetric only where
its `alpha` is 1, which an `Op` that does not name it asks for.
"""


@dataclass(frozen=True, slots=True)
class Var:
    """Matches anything; the same name must match the same thing everywhere in the pattern."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """Matches a size, a number or a symbol, by its text; None matches any argument."""

    text: str | None = None


ANY = Size()
"""Matches any argument, and binds nothing."""


@dataclass(frozen=True, slots=True)
class Dim:
    """Matches a dimension counted from the end, however the call counts it: 3 of 4 is -1."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """Matches a call of `target` with these arguments, as its schema names and fills them.

    Attributes:
        args: Positional arguments: parts of a pattern, constants, and lists of these.
        kwargs: Arguments by name; pattern and graph may differ in passing an argument by name or by
            position.
        operands: All arguments in the order of the schema, with defaults.
        swaps: The positions of two operands that may be swapped; equal positions if none may.
        counts_dims: Whether a dimension is counted from the end.
    """

    target: object
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])
    operands: tuple[object, ...] = field(init=False)
    swaps: tuple[int, int] = field(init=False)
    counts_dims: bool = field(init=False)

    def __post_init__(self) -> None:
        operands = arguments.full_arguments(self.target, self.args, self.kwargs)
        if operands is None:
            raise TypeError(f"{self.target} takes no {self.args} {self.kwargs or ''}".rstrip())
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "swaps", _swaps(self.target, operands))
        object.__setattr__(self, "counts_dims", any(map(_has_dims, operands)))


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(Op):
    """Matches `view(x, sizes)`, and `_unsafe_view(clone(x), sizes)`: which one depends on strides.

    Its target is `aten.view.default`, its arguments are the operand and the sizes.
    """


def _swaps(target: object, operands: Sequence[object]) -> tuple[int, int]:
    """Return the swappable positions; also the dimensions of `transpose` if they are `Dim`s."""
    if target is aten.transpose.int and isinstance(operands[1], Dim):
        return (1, 2)
    return SWAPPABLE.get(target, (0, 0))


def _has_dims(part: object) -> bool:
    if isinstance(part, (list, tuple)):
        return any(map(_has_dims, cast("Sequence[object]", part)))
    return isinstance(part, Dim)


Pattern = Op | tuple[Op, ...]


def roots_of(pattern: Pattern) -> tuple[Op, ...]:
    """Return the calls whose results a pattern describes; the first is found first."""
    return pattern if isinstance(pattern, tuple) else (pattern,)


def ops_of(*roots: object) -> Iterator[Op]:
    """Yield each `Op` of a pattern once, operands first."""
    seen: set[Op] = set()
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        part, is_done = todo.pop()
        if isinstance(part, (list, tuple)):
            todo += [(each, False) for each in reversed(part)]
        elif isinstance(part, Op) and is_done:
            yield part
        elif isinstance(part, Op) and part not in seen:
            seen.add(part)
            todo.append((part, True))
            todo += [(operand, False) for operand in reversed(part.operands)]


def with_target(pattern: tuple[Op, ...], old: object, new: object) -> tuple[Op, ...]:
    """Return a pattern that calls `new` wherever another one calls `old`."""
    made: dict[Op, Op] = {}

    def copy(part: Any) -> Any:
        if isinstance(part, (list, tuple)):
            return type(part)(map(copy, cast("Sequence[object]", part)))
        return made[part] if isinstance(part, Op) else part

    for part in ops_of(*pattern):
        made[part] = type(part)(new if part.target is old else part.target, copy(part.operands))
    return copy(pattern)


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a pattern.

    Attributes:
        root: The node whose value the pattern describes; the first, if there are several.
        inner: The other nodes that the pattern covers, without its results: a node before its
            operands, in the order of the pattern.
        bound: The value of each variable: nodes, or constants.
        outputs: The nodes of all results, in the order of the pattern.
        notes: Values that a guard computes for the replacement.
    """

    root: Node
    inner: tuple[Node, ...]
    bound: Mapping[str, object]
    outputs: tuple[Node, ...] = ()
    notes: dict[str, object] = field(default_factory=dict[str, object])

    def node(self, name: str) -> Node:
        """Return the node that a variable stands for; guards have made sure that it is one."""
        value = self.bound[name]
        assert isinstance(value, Node)
        return value

    @property
    def covered(self) -> tuple[Node, ...]:
        """Every node of the match."""
        return (*dict.fromkeys((self.root, *self.outputs)), *self.inner)


@dataclass(frozen=True, slots=True)
class PatternMismatch:
    """A part of a pattern that does not match a value, `depth` matched nodes from the root."""

    part: object
    value: object
    depth: int

    def __str__(self) -> str:
        if isinstance(self.part, Op) and isinstance(self.value, Node):
            if self.value.target is self.part.target:
                return (
                    f"{self.value} is a {self.part.target} with other arguments: "
                    f"{self.value.args} {self.value.kwargs or ''}".rstrip()
                )
            kind = self.value.target if self.value.op == "call_function" else self.value.op
            return f"{self.value} is a {kind}, not a {self.part.target}"
        if isinstance(self.part, Used):
            return f"no {self.part.target} uses {self.value}"
        return f"an operand is {self.value}, not {_text(self.part)}"


@dataclass(frozen=True, slots=True)
class Used:
    """A further result of a pattern: a matched node needs a user that is this call."""

    target: object


def _text(part: object) -> str:
    match part:
        case Var():
            return f"what {part.name!r} stands for"
        case Size():
            return f"the size {part.text}"
        case Dim():
            return f"the dimension {part.index}"
        case Op():
            return f"a {part.target}"
        case _:
            return str(part)
