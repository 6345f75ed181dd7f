"""Which sizes of a graph may be chosen, and what the others are then."""

import dataclasses

import sympy
import torch
import torch.nn.functional as F

from ctk.toolkit.reduce.dimensions.relations import Relations, assignments, solve_relations
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, map_literals
from ctk.toolkit.reduce.dimensions.size_trace import size_expression_of, trace_sizes
from tests.helpers.reduce_graphs import captured


def relations(function, *inputs, dynamic=False) -> Relations:
    return solve_relations(trace_sizes(captured(function, *inputs, dynamic=dynamic)))


def classes(found: Relations) -> list[set[str]]:
    """Return the groups of places that have one size."""
    groups: dict[object, set[str]] = {}
    for place, symbol in found.trace.symbols.items():
        groups.setdefault(found.formula(symbol), set()).add(str(place))
    return list(groups.values())


def test_contracted_dimensions_are_one():
    found = relations(lambda x, w: x @ w, torch.randn(3, 5), torch.randn(5, 7))
    assert {"dimension 1 of l_x_", "dimension 0 of l_w_"} in classes(found)
    assert {"dimension 0 of l_x_"} in classes(found)
    assert len(found.roots) == 3


def test_equal_sizes_that_never_meet_are_not_one():
    found = relations(lambda x, w: x @ w, torch.randn(4, 4), torch.randn(4, 4))
    assert len(found.roots) == 3


def test_a_product_follows_its_factors():
    found = relations(lambda x: x.view(2, 3, 4, 5).transpose(1, 2), torch.randn(2, 3, 20))
    width = found.trace.symbols[SizePlace("input", "", "l_x_", (2,))]
    heads, size = (found.trace.symbols[SizePlace("literal", "", "view", (n,))] for n in (3, 4))
    assert found.formula(width) == heads * size


def test_a_sum_follows_its_terms():
    def parts(x, y):
        a, b = torch.split(torch.cat([x, y], 1), [3, 7], 1)
        return a.sum() + b.sum()

    found = relations(parts, torch.randn(2, 4), torch.randn(2, 6))
    assert {"dimension 0 of l_x_", "dimension 0 of l_y_"} in classes(found)
    sums = [each for each in found.formulas.values() if each.is_Add]
    assert sums or found.equalities


def test_dimensions_as_arguments_are_fixed():
    found = relations(lambda x: x.transpose(2, 3), torch.randn(2, 2, 4, 5))
    literals = {s for place, s in found.trace.symbols.items() if place.kind == "literal"}
    assert literals <= found.trace.fixed


def test_sizes_that_dynamo_calls_alike_are_one():
    found = relations(lambda x, y: x + y.sum(), torch.randn(4, 6), torch.randn(4), dynamic=True)
    assert len(found.trace.dynamic) == len(found.roots)


def test_an_operator_without_symbolic_form_keeps_its_relations():
    def run(x, w):
        return F.linear(F.interpolate(x, size=(16, 16), mode="bilinear").flatten(1), w)

    found = relations(run, torch.randn(2, 3, 8, 8), torch.randn(4, 768))
    width = found.formula(found.trace.symbols[SizePlace("input", "", "l_w_", (1,))])
    assert len(width.free_symbols) == 3  # channels and both sizes


def test_wanted_sizes_make_others_give_way():
    found = relations(lambda x: x.reshape(8, 3) * 2, torch.randn(6, 4))
    first = found.trace.symbols[SizePlace("input", "", "l_x_", (0,))]
    sizes = next(iter(assignments(found, {first: 2})))
    rows, columns = (sizes[SizePlace("input", "", "l_x_", (dim,))] for dim in (0, 1))
    new = [sizes[place] for place in sizes if place.kind == "literal" and place.name == "reshape"]
    assert rows == 2
    assert rows * columns == new[0] * new[1]


def test_an_index_stays_below_the_size_that_it_points_into():
    found = relations(lambda x: x[:, 2:5].relu(), torch.randn(3, 8))
    width = found.trace.symbols[SizePlace("input", "", "l_x_", (1,))]
    last = list(assignments(found, {width: 2}))[-1]
    start, stop = (size for place, size in last.items() if place.kind == "literal")
    assert start <= stop <= 2


def test_literals_are_found_in_slices_and_replaced():
    arguments = {0: None, 1: (slice(None, 5), 3, True, -2, 1), "size": [7]}
    seen: dict[object, int] = {}

    def replace(number, where):
        seen[where] = number
        return 9

    assert map_literals(arguments, replace) == {
        0: None, 1: (slice(None, 9), 9, True, -2, 1), "size": [9],
    }  # fmt: skip
    assert seen == {(1, 0, 1): 5, (1, 1): 3, ("size", 0): 7}


def test_texts_of_sizes_are_read_and_never_run():
    s = sympy.Symbol("s77")
    assert size_expression_of("2*s77 + 1", {"s77": s}) == 2 * s + 1
    assert size_expression_of("s77 // 2", {"s77": s}) is None
    assert size_expression_of("__import__('os')", {"s77": s}) is None
    assert size_expression_of("s1", {"s77": s}) is None
    assert size_expression_of("s77 -", {"s77": s}) is None


def test_what_is_put_into_a_part_has_the_size_of_the_part():
    """Fake tensors do not ask that; eager refuses another size."""
    found = relations(
        lambda x, part: torch.slice_scatter(x, part, dim=1, start=2, end=6),
        torch.randn(3, 8, 5), torch.randn(3, 4, 5),
    )  # fmt: skip
    for dim in (0, 2):
        assert {f"dimension {dim} of l_x_", f"dimension {dim} of l_part_"} in classes(found)
    found = relations(
        lambda x, part: torch.select_scatter(x, part, 1, 2), torch.randn(3, 8), torch.randn(3)
    )
    assert {"dimension 0 of l_x_", "dimension 0 of l_part_"} in classes(found)


def test_a_condition_without_a_value_does_not_hold():
    """0/0 is NaN for sympy, and a comparison with NaN raises TypeError."""
    found = relations(lambda x, y: (x.sum(), y.sum()), torch.randn(4), torch.randn(6))
    one, other = found.roots[:2]
    quotient = dataclasses.replace(found, inequalities=(sympy.Gt((one - 1) / (other - 1), 2),))
    assert list(assignments(quotient, {one: 1, other: 1}))
    assert len(list(assignments(quotient, {one: 1, other: 1}))) == 1  # the third level has none
