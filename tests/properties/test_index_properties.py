"""Index expressions: simplified or not, they have the same values for all values of their parts."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from ctk.compiler.lowering.layout import flatten, unflatten
from ctk.compiler.sizes.index import (
    Atom,
    Extreme,
    Index,
    Quotient,
    Symbol,
    Var,
    as_index,
    is_less,
    is_nonnegative,
    larger,
    largest,
    of_atom,
    smaller,
)

SETTINGS = settings(derandomize=True, deadline=None)
HOW_MANY = pytest.mark.parametrize("count", [50, pytest.param(5000, marks=pytest.mark.slow)])
SYMBOLS = {"s": Symbol("s", 2), "t": Symbol("t", 1)}
SYMBOL_VALUES = {"s": (2, 3, 5), "t": (1, 4)}

Tree: TypeAlias = "tuple[object, ...]"
Values: TypeAlias = Mapping[str, int]


def leaves(sizes: st.SearchStrategy[object]) -> st.SearchStrategy[Tree]:
    """Loop variables, some of a symbol's size, and numbers and sizes."""
    variables = st.tuples(st.just("var"), st.integers(0, 2), sizes)
    return st.one_of(variables, variables, st.tuples(st.just("number"), st.integers(-3, 12)), SIZES)


SIZES = st.one_of(
    st.tuples(st.just("number"), st.integers(1, 12)),
    st.tuples(st.just("symbol"), st.sampled_from("st")),
    st.tuples(st.just("mul"), st.just(("symbol", "s")), st.just(("number", 4))),
    st.tuples(st.just("mul"), st.just(("symbol", "s")), st.just(("symbol", "t"))),
)

SIZE_SUMS = SIZES.flatmap(lambda x: SIZES.map(lambda y: ("sub", x, y)))


def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    ring = st.tuples(st.sampled_from(("add", "sub", "mul")), inner, inner)
    divided = st.tuples(st.sampled_from(("floordiv", "mod")), inner, SIZES)
    whole = inner.flatmap(lambda x: SIZES.map(lambda d: both_parts(x, d)))
    extreme = st.tuples(st.sampled_from(("max", "min")), SIZE_SUMS, SIZES)
    return st.one_of(ring, divided, divided, whole, extreme)


def both_parts(x: Tree, divisor: Tree) -> Tree:
    """Return `x`, written as quotient and remainder."""
    return "add", ("mul", ("floordiv", x, divisor), divisor), ("mod", x, divisor)


TREES = st.recursive(leaves(SIZES), grown, max_leaves=6)
BINARY: Mapping[str, Callable[..., object]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": larger,
    "min": smaller,
}
NUMBERS = {**BINARY, "max": max, "min": min}


def built(tree: Tree) -> Index:
    """Return the expression of a tree, simplified as it is built."""
    kind, *parts = tree
    if kind == "number":
        return as_index(parts[0])
    if kind == "symbol":
        return of_atom(SYMBOLS[str(parts[0])])
    if kind == "var":
        size = built(parts[1])
        return of_atom(Var(f"i{parts[0]}<{size}", size))
    return BINARY[str(kind)](*map(built, parts))


def evaluated(tree: Tree, values: Values) -> int:
    """Return the value of a tree, nothing simplified."""
    kind, *parts = tree
    if kind == "number":
        return int(parts[0])
    if kind == "symbol":
        return values[str(parts[0])]
    if kind == "var":
        return values.get(f"i{parts[0]}<{built(parts[1])}", 0)
    return NUMBERS[str(kind)](*(evaluated(part, values) for part in parts))


def value_of(index: Index, values: Values) -> int:
    """Return the value of an expression."""
    total = 0
    for monomial, factor in index.terms:
        for atom in monomial:
            factor *= value_of_atom(atom, values)
        total += factor
    return total


def value_of_atom(atom: Atom, values: Values) -> int:
    if isinstance(atom, (Symbol, Var)):
        return values[atom.name]
    if isinstance(atom, Extreme):
        pair = value_of(atom.left, values), value_of(atom.right, values)
        return max(pair) if atom.kind == "max" else min(pair)
    divide = operator.floordiv if isinstance(atom, Quotient) else operator.mod
    return divide(value_of(atom.value, values), value_of(atom.divisor, values))


def variables(tree: Tree) -> set[Var]:
    kind, *parts = tree
    if kind == "var":
        size = built(parts[1])
        return {Var(f"i{parts[0]}<{size}", size)}
    return set[Var]().union(*(variables(part) for part in parts if isinstance(part, tuple)))


def all_values(*trees: Tree) -> Iterator[Values]:
    """Yield values of symbols and variables: all of symbols, and the ends and some of loops."""
    loops = sorted(set[Var]().union(*map(variables, trees)), key=str)
    for chosen in itertools.product(*SYMBOL_VALUES.values()):
        sizes = dict(zip(SYMBOL_VALUES, chosen, strict=True))
        ends = [value_of(loop.size, sizes) for loop in loops]
        runs = [range(end) if end < 8 else (0, 1, 3, end // 2, end - 2, end - 1) for end in ends]
        for at in itertools.product(*runs):
            yield {**sizes, **{loop.name: n for loop, n in zip(loops, at, strict=True)}}


@HOW_MANY
def test_simplified_expressions_have_the_same_values(count: int) -> None:
    @settings(SETTINGS, max_examples=count)
    @given(TREES)
    def check(tree: Tree) -> None:
        index = built(tree)
        note(str(index))
        for values in all_values(tree):
            assert value_of(index, values) == evaluated(tree, values), values

    check()


@HOW_MANY
def test_what_is_known_of_ranges_is_true(count: int) -> None:
    @settings(SETTINGS, max_examples=count)
    @given(TREES, TREES)
    def check(left: Tree, right: Tree) -> None:
        a, b = built(left), built(right)
        note(f"{a}; {b}")
        top, positive, less = largest(a), is_nonnegative(a), is_less(a, b)
        upper, lower = larger(a, b), smaller(a, b)
        for values in all_values(left, right):
            x, y = value_of(a, values), value_of(b, values)
            assert top is None or x <= value_of(top, values), values
            assert x >= 0 or not positive, values
            assert x < y or not less, values
            assert (value_of(upper, values), value_of(lower, values)) == (max(x, y), min(x, y))

    check()


@HOW_MANY
def test_growth_and_substitution(count: int) -> None:
    @settings(SETTINGS, max_examples=count)
    @given(TREES, TREES)
    def check(tree: Tree, other: Tree) -> None:
        index, new = built(tree), built(other)
        note(f"{index}; {new}")
        for loop in variables(tree) & {atom for atom in index.atoms if isinstance(atom, Var)}:
            growth = index.factor_of(loop)
            changed = index.substitute({loop: new})
            for values in all_values(tree, other):
                if growth is not None:
                    step = {**values, loop.name: values[loop.name] + 1}
                    found = value_of(index, step) - value_of(index, values)
                    assert found == value_of(growth, values), (loop, values)
                inside = {**values, loop.name: value_of(new, values)}
                if 0 <= inside[loop.name] < value_of(loop.size, values):
                    assert value_of(changed, values) == value_of(index, inside), (loop, values)

    check()


@HOW_MANY
def test_a_position_comes_back_from_its_number(count: int) -> None:
    @settings(SETTINGS, max_examples=count)
    @given(st.lists(SIZES, min_size=1, max_size=4))
    def check(sizes: list[Tree]) -> None:
        shape = tuple(map(built, sizes))
        at = tuple(of_atom(Var(f"i{axis}", size)) for axis, size in enumerate(shape))
        assert unflatten(flatten(at, shape), shape) == at

    check()
