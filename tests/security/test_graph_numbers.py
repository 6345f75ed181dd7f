"""Python's numbers and lists of a stranger's graph are bounded however the operator is called."""

import pytest

from ctk.compiler.errors import CaseError
from tests.helpers.hostile_graphs import Json, calling, graph, load, node, ref

HUGE = 10**9


def after(value: Json) -> Json:
    """Return a graph that takes ten to the power of a node's value."""
    return graph(value, node("call_function", "q", "operator.pow", 10, ref("value")))


@pytest.mark.parametrize(
    "data",
    [
        calling("builtins.pow", 10, kwargs={"exp": HUGE}),
        calling("builtins.pow", kwargs={"base": 10, "exp": HUGE}),
        calling("builtins.pow", kwargs={"exp": HUGE, "base": 10}),
        after(node("call_function", "value", "builtins.int", "1000000000")),
        after(node("call_function", "value", "builtins.int", 1e9)),
        after(node("call_function", "value", "builtins.len", ref("x"))),
        graph(
            node("call_function", "n", "builtins.len", ref("x")),
            node("call_method", "q", "__pow__", ref("n"), HUGE),
        ),
        graph(
            node("call_function", "n", "builtins.len", ref("x")),
            node("call_method", "q", "__rpow__", ref("n"), 10),
        ),
        graph(node("call_method", "q", "__mul__", "a", HUGE)),
        graph(node("call_method", "q", "__mul__", [1], HUGE)),
        calling("builtins.range", 10**12),
        calling("builtins.range", 0, -(10**12), -1),
    ],
)
def test_a_number_that_fills_the_memory_or_takes_for_ever_is_refused(data: Json) -> None:
    with pytest.raises(CaseError, match="more than"):
        load(data)


def test_powers_of_tensors_and_small_ranges_are_taken() -> None:
    load(graph(node("call_method", "q", "__pow__", ref("x"), 3)))
    load(calling("operator.pow", 2, ref("x")))
    load(calling("builtins.range", 8))
