"""Trace the guards of operators on the sizes of a case, each size being a symbol.

Every dimension above 1 of an input or constant, every number input and every literal above 1 gets a
symbol; sizes to which Dynamo gives one name (`Case.dynamic`) are one symbol. A node that refuses
symbols among its arguments is run with its own literals.
"""

import ast
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sympy
import torch

from ctk.compiler.fx.types import dense_strides
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fake.size_symbols import SizeSymbols, size_symbols
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.dimensions.propagation import Propagation
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.graph_changes import size_symbol


@dataclass(frozen=True, slots=True)
class Trace:
    """The result of one run with symbols.

    Attributes:
        symbols: The symbol (sympy) at each place, in the order of the program.
        hints: The current number of each symbol.
        asked: The guards of operators (sympy), each with its answer.
        empty: Values without elements before any change: path of the graph, name of the node.
        dynamic: Symbols of sizes that Dynamo keeps symbolic.
        computed: Symbols in the sizes of computed values.
        fixed: Symbols that an operator needed as numbers, and that no size of its result follows.
    """

    symbols: Mapping[SizePlace, Any]
    hints: Mapping[Any, int]
    asked: Mapping[Any, Any]
    empty: frozenset[tuple[str, str]]
    dynamic: frozenset[Any]
    computed: frozenset[Any]
    fixed: frozenset[Any]


def trace_sizes(case: Case) -> Trace:
    """Run a case once with symbols for its sizes.

    Raises:
        Exception: Fake tensors cannot run it even with its own sizes.
    """
    sizes = _Symbolic(size_symbols(), _names(case))
    run = Propagation(sizes)
    run.run(case)
    asked = dict(sizes.symbols.answers) | dict.fromkeys(_dynamo_equalities(case, sizes), sympy.true)
    return Trace(
        symbols={place: sizes.symbols.symbol(name) for place, name in sizes.named.items()},
        hints={symbol: int(hint) for symbol, hint in sizes.symbols.hints.items()},
        asked=asked,
        empty=frozenset(run.empty),
        dynamic=frozenset(sizes.symbols.symbol(f"dynamic_{name}") for name in sizes.plain()),
        computed=frozenset().union(
            *(fake.size_expression(s).free_symbols for s in run.seen.values())
        ),
        fixed=frozenset(sizes.fixed - sizes.linked),
    )


def _names(case: Case) -> dict[SizePlace, str]:
    """Return Dynamo's names of the sizes of inputs, by place; plain symbols only."""
    names: dict[SizePlace, str] = {}
    for name, sizes in case.dynamic.items():
        place = SizePlace("input", "", name)
        named = [(dim, size) for dim, size in enumerate(sizes) if size and size.isidentifier()]
        names |= {place.at(dim): f"dynamic_{size}" for dim, size in named}
    known = set(names.values())
    for node in placeholders(case.graph):
        if f"dynamic_{size_symbol(node)}" in known:
            names[SizePlace("number", "", node.name)] = f"dynamic_{size_symbol(node)}"
    return names


def _dynamo_equalities(case: Case, sizes: "_Symbolic") -> Iterator[Any]:
    """Yield the sizes that are expressions for Dynamo (`2*s77`), as equalities; else fix them."""
    named = {name: sizes.symbols.symbol(f"dynamic_{name}") for name in set(sizes.plain())}
    for name, expressions in case.dynamic.items():
        for dim, text in enumerate(expressions):
            symbol_name = sizes.named.get(SizePlace("input", "", name, (dim,)))
            if text and not text.isidentifier() and symbol_name is not None:
                symbol = sizes.symbols.symbol(symbol_name)
                known = size_expression_of(text, named)
                hint = sizes.symbols.hints[symbol]
                yield sympy.Eq(symbol, hint if known is None else known)


@dataclass(slots=True)
class _Symbolic:
    retries: ClassVar[bool] = True

    symbols: SizeSymbols
    dynamic: Mapping[SizePlace, str]
    named: dict[SizePlace, str] = field(default_factory=dict[SizePlace, str])
    linked: set[Any] = field(default_factory=set[Any])
    refused: set[Any] = field(default_factory=set[Any])

    def running(self) -> AbstractContextManager[None]:
        return self.symbols.running()

    def tensor(self, value: torch.Tensor, place: SizePlace) -> Any:
        if not _is_plain(value):
            return fake.to_fake(value, self.symbols.mode)
        sizes = [self.size(size, place.at(dim)) for dim, size in enumerate(value.shape)]
        return self.symbols.tensor(value, sizes, _strides(value, sizes))

    def size(self, value: int, place: SizePlace) -> Any:
        if value < 2:
            return value
        name = self.named.setdefault(place, self.dynamic.get(place, f"size_{len(self.named)}"))
        return self.symbols.size(name, value)

    def result(self, value: object, given: Any, *, refused: bool = False) -> object:
        if refused:
            literals = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.SymInt)]
            self.refused.update(fake.size_expression(literal) for literal in literals)
        return _link_sizes(value, given, self.symbols, self.fixed, self.linked)

    @property
    def fixed(self) -> set[Any]:
        """Symbols that had to be numbers."""
        return {answer for answer in self.symbols.answers if answer.is_Symbol} | self.refused

    def plain(self) -> Iterator[str]:
        """Yield Dynamo's names of sizes."""
        made = set(self.named.values())
        yield from (n.removeprefix("dynamic_") for n in self.dynamic.values() if n in made)


def _is_plain(value: torch.Tensor) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return False
    return not (value.is_nested or value.is_quantized or value.is_conj() or value.is_neg())


def _strides(value: torch.Tensor, sizes: list[Any]) -> list[Any]:
    """Return dense strides in the memory order of a tensor; expanded dimensions stay expanded."""
    is_expanded = [stride == 0 for stride in value.stride()]
    own = [1 if expanded else size for expanded, size in zip(is_expanded, sizes, strict=True)]
    dense = enumerate(_dense_strides_like(value, own))
    return [0 if is_expanded[dim] and value.shape[dim] > 1 else stride for dim, stride in dense]


def _link_sizes(
    value: object, given: Any, symbols: SizeSymbols, asked: set[Any], linked: set[Any]
) -> object:
    """Return a node's value with symbols in place of numbers, if its operator has no symbolic form.

        interpolate(x[s0, s1, s2, s3], size=(s4, s5))  ->  [2, 3, 16, 16], numbers only
        link_sizes                                         [s0, s1, s4, s5]

    In this order a number is taken for the size of an operand in the same dimension, a literal, a
    multiple of the size of an operand in the same dimension, any size of an operand. It is a guess,
    wrong if two of these are equal by chance.

    Args:
        value: Tensors in it are changed; other values are returned as they are.
        linked: Extended by the symbols that were put in.
    """
    leaves = tree_leaves(given)
    operands = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    literals = [leaf for leaf in leaves if isinstance(leaf, torch.SymInt)]
    if not asked or not operands:
        return value

    def of_tensor(tensor: object) -> object:
        if not isinstance(tensor, torch.Tensor) or any(tensor is operand for operand in operands):
            return tensor
        if tensor.layout != torch.strided or not any(_is_number(s) for s in tensor.shape):
            return tensor
        left = [literal for literal in literals if fake.size_expression(literal) in asked]
        sizes = [
            _link(dim, size, operands, left, asked) if _is_number(size) else size
            for dim, size in enumerate(tensor.shape)
        ]
        used = [size for size, old in zip(sizes, tensor.shape, strict=True) if size is not old]
        if not used:
            return tensor
        linked.update(*(fake.size_expression(size).free_symbols for size in used))
        return symbols.tensor(tensor, sizes, _dense_strides_like(tensor, sizes))

    return tree_map(of_tensor, value)


def _is_number(size: object) -> bool:
    return type(size) is int and size > 1


def _link(
    dim: int, size: int, operands: list[torch.Tensor], literals: list[Any], asked: set[Any]
) -> Any:
    same = [s for s in _sizes(operands, dim) if fake.size_expression(s) in asked]
    for each in same:
        if _hint(each) == size:
            return each
    for literal in literals:
        if _hint(literal) == size:
            literals.remove(literal)
            return literal
    for each in same:
        if size % _hint(each) == 0:
            return each * (size // _hint(each))
    others = [s for s in _sizes(operands) if fake.size_expression(s) in asked and _hint(s) == size]
    return others[0] if others else size


def _sizes(operands: list[torch.Tensor], dim: int | None = None) -> Iterator[Any]:
    for operand in operands:
        dims = range(operand.dim()) if dim is None else (dim,)
        sizes = [operand.shape[d] for d in dims if d < operand.dim()]
        yield from (size for size in sizes if fake.is_symbolic(size))


def _hint(size: Any) -> int:
    return int(fake.symbol_and_hint(size)[1] or 0)


def _dense_strides_like(tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
    """Return dense strides in the memory order of the tensor's dimensions."""
    order = list(range(tensor.dim()))
    if all(type(stride) is int for stride in tensor.stride()):
        order.sort(key=lambda dim: (-tensor.stride(dim), dim))
    strides: list[Any] = [0] * tensor.dim()
    for dim, stride in zip(order, dense_strides([sizes[d] for d in order]), strict=True):
        strides[dim] = stride
    return strides


def size_expression_of(text: str, symbols: Mapping[str, Any]) -> Any | None:
    """Return the sympy expression of a text; None if it holds more than + - *.

    sympy's own reader would execute the text as Python, and texts come with cases of strangers.
    """
    try:
        return _expression(ast.parse(text, mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _expression(tree: ast.expr, symbols: Mapping[str, Any]) -> Any:
    match tree:
        case ast.Name(name) if name in symbols:
            return symbols[name]
        case ast.Constant(int(number)):
            return sympy.Integer(number)
        case ast.BinOp(left, ast.Add(), right):
            return _expression(left, symbols) + _expression(right, symbols)
        case ast.BinOp(left, ast.Sub(), right):
            return _expression(left, symbols) - _expression(right, symbols)
        case ast.BinOp(left, ast.Mult(), right):
            return _expression(left, symbols) * _expression(right, symbols)
        case _:
            raise ValueError(f"no size: {ast.dump(tree)[:60]}")
