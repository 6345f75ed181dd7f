"""The parts of a pattern: calls of operators, variables, sizes and dimensions.

    x = Var("x")
    inner = Op(aten.mul.Tensor, (x, 2))
    Op(aten.add.Tensor, (inner, inner))     # matches add(m, m) of one node m = mul(x, 2)

An `Op` object stands for one node: if it is used twice, the graph must use one node twice. So a
pattern is an acyclic graph. A pattern with several results is a tuple of `Op`s. `solve.py` matches.

    split = Op(torch.split, (x, ANY), {"dim": Var("dim")})
    item = Op(operator.getitem, (split, Var("i")))
    Op((torch.cat, torch.stack), (ListOf(item, same=(split,)), ANY))    # any number of items
    Repeated(Op((torch.squeeze, "squeeze"), (item, ANY)), of=split)     # each use of each item
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.errors import RuleError
from ctk.compiler.fx.torch_calls import fill_arguments, misfit_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat.fx import arguments
from ctk.compiler.torch_compat.fx.operator_types import OpOverload

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
        target: An operator or function; the name of a method (`"view"`); a class of modules
            (`nn.ReLU`); or a tuple of these, any of which may be called. `root.target` has it.
        args: Positional arguments: parts of a pattern, constants, and lists of these.
        kwargs: Arguments by name; pattern and graph may differ in passing an argument by name or by
            position, if torch declares the arguments.
        may_stay: Nodes outside the match may use its value, which then stays in the graph.
        targets: The targets as a tuple.
        fill: Returns all arguments of a call of one of them, in one order.
        operands: All arguments in the order of the schema (of the first target), with defaults.
        swaps: The positions of two operands that may be swapped; equal positions if none may.
        counts_dims: Whether a dimension is counted from the end.
    """

    target: object
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])
    may_stay: bool = field(default=False, kw_only=True)
    targets: tuple[object, ...] = field(init=False)
    fill: Callable[..., tuple[object, ...] | None] = field(init=False)
    operands: tuple[object, ...] = field(init=False)
    swaps: tuple[int, int] = field(init=False)
    counts_dims: bool = field(init=False)

    def __post_init__(self) -> None:
        targets = self.target if isinstance(self.target, tuple) else (self.target,)
        for target in targets:
            _check_call(target, self.args, self.kwargs)
        is_declared = all(isinstance(target, OpOverload) for target in targets)
        fill = arguments.full_arguments if is_declared else whole_arguments
        object.__setattr__(self, "fill", fill)
        forms = [self.operands_of(target) for target in cast("tuple[object, ...]", targets)]
        if not forms:
            raise TypeError("an Op needs a target; () is none")
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "operands", forms[0])
        object.__setattr__(
            self, "swaps", _swaps(targets[0], forms[0]) if len(forms) < 2 else (0, 0)
        )
        object.__setattr__(self, "counts_dims", any(map(_has_dims, forms[0])))

    def operands_of(self, target: object) -> tuple[object, ...]:
        """Return all arguments as the schema of one of the targets orders them.

        Raises:
            TypeError: The target does not take these arguments.
        """
        operands = self.fill(target, self.args, self.kwargs)
        if operands is None:
            raise TypeError(f"{target} takes no {self.args} {self.kwargs or ''}".rstrip())
        return operands


def _check_call(target: object, args: object, kwargs: Mapping[str, object]) -> None:
    """Raise `TypeError` for a target that cannot be called, or that never has these arguments."""
    if not callable(target) and not isinstance(target, str):
        raise TypeError(
            f"{target!r} is not the target of an Op: give an operator, a function, the name of a "
            "method or a class of modules"
        )
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"the arguments of an Op are a tuple: write ({args!r},) for {args!r}")
    misfit = misfit_of(target, tuple(cast("Sequence[object]", args)), kwargs)
    if misfit is not None:
        name = getattr(target, "__name__", target)
        raise TypeError(f"an Op of {name} could never match: {name} {misfit}")


def whole_arguments(
    target: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[object, ...] | None:
    """Return all arguments of a call in one order; of a function that torch does not declare, as
    given.
    """
    filled = fill_arguments(target, tuple(args), kwargs)
    return filled if filled is not None else arguments.full_arguments(target, args, kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class ListOf:
    """Matches a list of any number of items that each match a part, in the first way found.

    A variable of the part stands for a tuple, with a value for each item, and a call for a node of
    its own in each.

    Attributes:
        part: The pattern of one item.
        same: Variables and calls of the part that stand for one thing in all items: also parts that
            the pattern has outside of the list.
        partial: Items may differ, but not all; the variables stand for None there.
    """

    part: object
    same: tuple["Var | Op", ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """A whole pattern: each use, on the way of `part`, of the results of one node.

    Its results are the nodes that match the part, in the order of the graph. It matches at the
    first of them, and only if all the uses match. Variables and calls are as in a `ListOf`.

    Attributes:
        part: The pattern of one use; it leads to `of` by some of its operands.
        of: The one node, a part of `part`.
    """

    part: Op
    of: Op

    def __post_init__(self) -> None:
        if self.of is self.part or self.of not in {*ops_of(self.part)}:
            raise ValueError(f"{_text(self.of)} is not an operand of the repeated part")


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


Pattern = Op | tuple[Op, ...] | Repeated


def roots_of(pattern: Pattern) -> tuple[Op, ...]:
    """Return the calls whose results a pattern describes; the first is found first."""
    if isinstance(pattern, Repeated):
        return (pattern.part,)
    return pattern if isinstance(pattern, tuple) else (pattern,)


def ops_of(*roots: object) -> Iterator[Op]:
    """Yield each `Op` of a pattern once, operands first."""
    seen: set[Op] = set()
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        part, is_done = todo.pop()
        if isinstance(part, (list, tuple)):
            todo += [(each, False) for each in reversed(part)]
        elif isinstance(part, ListOf):
            todo.append((part.part, False))
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
        target = new if part.target is old else part.target
        made[part] = type(part)(target, copy(part.operands), may_stay=part.may_stay)
    return copy(pattern)


class Bindings(dict[str, object]):
    """The value of each variable of a match."""

    def __missing__(self, name: str) -> object:
        raise RuleError(
            f"asks for the variable {name!r}, which its pattern lacks",
            f"name one of the pattern: {', '.join(map(repr, self)) or 'it has none'}",
        )


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a pattern.

    Attributes:
        root: The node whose value the pattern describes; the first, if there are several.
        inner: The other nodes that the pattern covers, without its results: a node before its
            operands, in the order of the pattern.
        bound: The value of each variable: nodes, or constants.
        outputs: The nodes of all results, in the order of the pattern.
        staying: Inner nodes that others may use (`Op.may_stay`).
        notes: Values that a guard computes for the replacement.
    """

    root: Node
    inner: tuple[Node, ...]
    bound: Mapping[str, object]
    outputs: tuple[Node, ...] = ()
    staying: frozenset[Node] = frozenset()
    notes: dict[str, object] = field(default_factory=dict[str, object])

    def node(self, name: str) -> Node:
        """Return the node that a variable stands for; the guard has made sure that it is one.

        Raises:
            RuleError: It is a constant, or the pattern has no such variable.
        """
        value = self.bound[name]
        if not isinstance(value, Node):
            raise RuleError(
                f"asks for the node of the variable {name!r}, which is {value!r}",
                f"let a guard refuse it, or read match.bound[{name!r}]",
            )
        return value

    @property
    def covered(self) -> tuple[Node, ...]:
        """Every node of the match."""
        return (*dict.fromkeys((self.root, *self.outputs)), *self.inner)


@dataclass(frozen=True, slots=True)
class PatternMismatch:
    """A part of a pattern that does not match a value, `depth` matched nodes from the root.

    `item` is the number of the item of a list that does not match, counted from 0.
    """

    part: object
    value: object
    depth: int
    item: int | None = None

    def __str__(self) -> str:
        return self.reason if self.item is None else f"item {self.item} of the list: {self.reason}"

    @property
    def reason(self) -> str:
        if isinstance(self.part, Op) and isinstance(self.value, Node):
            if self.value.target in self.part.targets:
                return (
                    f"{self.value} is a {self.value.target} with other arguments: "
                    f"{self.value.args} {self.value.kwargs or ''}".rstrip()
                )
            kind = call_text(self.value)
            return f"{self.value} is a {kind}, not a {target_text(self.part)}"
        if isinstance(self.part, Used):
            return f"no {self.part.target} uses {self.value}"
        if isinstance(self.part, Repeated):
            return f"{self.value} is found first, with the other uses"
        return f"an operand is {self.value}, not {_text(self.part)}"


def call_text(node: Node) -> str:
    """Return the callee of a node, or the kind of a node that calls nothing."""
    if node.op == "call_module":
        return type(fetch(node.graph.owning_module, node.target)).__name__
    return str(node.target) if node.op in ("call_function", "call_method") else node.op


def target_text(part: Op) -> str:
    """Return the targets of a call: `relu or ReLU`."""
    return " or ".join(t.__name__ if isinstance(t, type) else str(t) for t in part.targets)


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
            return f"a {target_text(part)}"
        case ListOf():
            return f"a list of {_text(part.part)}"
        case _:
            return str(part)
