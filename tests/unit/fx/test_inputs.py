"""Graphs whose inputs are lists and dicts: compiled, cached, checked and saved as flat ones."""

import operator
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

import ctk
from ctk.compiler.errors import ProgramError
from ctk.compiler.fx.inputs import flatten_inputs
from ctk.compiler.fx.walk import input_names
from ctk.compiler.pipeline import compile_fx

Pair = namedtuple("Pair", "left right")
X, Y, Z = torch.arange(3.0), torch.tensor([5.0, -1.0, 0.5]), torch.tensor(2.0)


def graph_of(build: Callable[..., Any], *names: str) -> GraphModule:
    graph = Graph()
    graph.output(build(graph, *(graph.placeholder(name) for name in names)))
    return GraphModule({}, graph)


def read(graph: Graph, value: Any, *keys: object) -> Any:
    for key in keys:
        value = graph.call_function(operator.getitem, (value, key))
    return value


def elements(graph: Graph, values: Any, scale: Any) -> Any:
    both = graph.call_function(torch.add, (read(graph, values, 0), read(graph, values, -1)))
    return (graph.call_function(torch.mul, (both, scale)),)


def whole(graph: Graph, values: Any) -> Any:
    return graph.call_function(torch.cat, (values,))


def nested(graph: Graph, values: Any) -> Any:
    inner = read(graph, values, "b")
    product = graph.call_function(torch.mul, (read(graph, values, "a"), read(graph, inner, 1)))
    return {"product": product, "stacked": [graph.call_function(torch.stack, (inner,))]}


def parts(graph: Graph, values: Any) -> Any:
    return graph.call_function(torch.stack, (read(graph, values, slice(1, None)),))


def items(graph: Graph, values: Any) -> Any:
    keys = graph.call_method("values", (values,))
    return graph.call_function(torch.stack, (graph.call_function(tuple, (keys,)),))


def numbers(graph: Graph, values: Any) -> Any:
    return (graph.call_function(torch.mul, (read(graph, values, 0), read(graph, values, 1))),)


PROGRAMS = [
    pytest.param(elements, ([X, Y], Z), id="elements"),
    pytest.param(elements, ((X, Y, X), Z), id="one tensor twice"),
    pytest.param(elements, (Pair(X, Y), Z), id="named tuple"),
    pytest.param(whole, ([X, Y, X],), id="whole list"),
    pytest.param(nested, ({"a": X, "b": [Y, X]},), id="dict of lists"),
    pytest.param(parts, ([X, Y, X],), id="slice"),
    pytest.param(items, ({"b": X, "a": Y},), id="values of a dict"),
    pytest.param(numbers, ([X, 3],), id="number"),
    pytest.param(numbers, ([X, 3], []), id="empty list"),
]


def names_of(inputs: tuple[Any, ...]) -> list[str]:
    return [f"in{place}" for place in range(len(inputs))]


def traced(build: Any, inputs: tuple[Any, ...]) -> GraphModule:
    count = build.__code__.co_argcount - 1
    used = names_of(inputs)

    def with_rest(graph: Graph, *values: Any) -> Any:
        return build(graph, *values[:count])

    return graph_of(with_rest, *used)


@pytest.mark.parametrize(("build", "inputs"), PROGRAMS)
@pytest.mark.parametrize("is_cached", [False, True])
def test_nested_inputs_compile(
    build: Any, inputs: tuple[Any, ...], is_cached: bool, cache: Path
) -> None:
    gm = traced(build, inputs)
    for _ in range(2):
        compiled = compile_fx(gm, inputs, {"cache": is_cached})
        torch.testing.assert_close(compiled(*inputs), gm(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize(("build", "inputs"), PROGRAMS)
def test_a_flat_graph_has_one_placeholder_for_each_leaf(
    build: Any, inputs: tuple[Any, ...]
) -> None:
    gm = traced(build, inputs)
    flat = flatten_inputs(gm, inputs)
    assert flat is not None
    assert len(input_names(flat.graph)) == len(flat.inputs)
    torch.testing.assert_close(flat.call(flat.graph)(*inputs), gm(*inputs), rtol=0, atol=0)
    assert flatten_inputs(flat.graph, flat.inputs) is None


@pytest.mark.parametrize("target", ["ctk", "aot_eager", "torchscript", "inductor"])
def test_every_target_takes_them(target: str) -> None:
    def product(graph: Graph, values: Any) -> Any:
        return (nested(graph, values)["product"],)

    values = {"a": X, "b": [Y, X]}
    report = ctk.check(traced(product, (values,)), [values], target=target)
    assert str(report).startswith("no failure")


def test_gradients_reach_the_elements() -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    gm = traced(nested, ({"a": x, "b": [y, x]},))
    result: Any = compile_fx(gm, [{"a": x, "b": [y, x]}])({"a": x, "b": [y, x]})
    (result["product"].sum() + result["stacked"][0].pow(2).sum()).backward()
    torch.testing.assert_close(x.grad, X + X + 2 * X)
    torch.testing.assert_close(y.grad, 2 * Y)


class Exported(torch.nn.Module):
    def forward(self, named: dict[str, torch.Tensor], pair: list[torch.Tensor]) -> Any:
        return {"sum": named["a"] + pair[0], "rest": [named["b"] * pair[1]]}


def test_a_graph_with_a_convention_of_its_own() -> None:
    inputs = ({"a": X, "b": Y}, [Y.clone(), X.clone()])
    gm: Any = torch.export.export(Exported(), inputs).module()
    torch.testing.assert_close(compile_fx(gm, inputs)(*inputs), Exported()(*inputs))


def test_a_list_that_the_graph_owns_is_emptied() -> None:
    gm = traced(whole, ([X, Y],))
    next(iter(gm.graph.nodes)).meta["steal_arg"] = True
    compiled, values = compile_fx(gm, [[X, Y]]), [X, Y]
    torch.testing.assert_close(compiled(values), torch.cat([X, Y]))
    assert values == []


def test_a_graph_that_changes_the_list_is_refused() -> None:
    def append(graph: Graph, values: Any) -> Any:
        graph.call_method("append", (values, read(graph, values, 0)))
        return graph.call_function(torch.cat, (values,))

    def update(graph: Graph, values: Any) -> Any:
        changed = graph.call_function(operator.ior, (values, {"b": read(graph, values, "a")}))
        return (read(graph, changed, "b"),)

    for build, value in ((append, [X]), (update, {"a": X})):
        with pytest.raises(ProgramError, match="changes its input in0, a list or dict, at the no"):
            compile_fx(traced(build, (value,)), [value])


def test_a_call_may_have_another_order_of_keys() -> None:
    gm = traced(nested, ({"a": X, "b": [Y, X]},))
    compiled = compile_fx(gm, [{"a": X, "b": [Y, X]}])
    torch.testing.assert_close(compiled({"b": [Y, X], "a": X}), gm({"b": [Y, X], "a": X}))


@pytest.mark.parametrize(
    "other",
    [
        {"a": X, "c": [Y, X]},
        {"a": X, "b": [Y]},
        {"a": X},
        [X, [Y, X]],
        {"a": {"x": X}, "b": [Y, X]},
    ],
)
def test_a_call_with_other_nesting_is_refused(other: Any) -> None:
    compiled = compile_fx(traced(nested, ({"a": X, "b": [Y, X]},)), [{"a": X, "b": [Y, X]}])
    with pytest.raises(TypeError, match="takes inputs with the nesting of its compile"):
        compiled(other)


def test_an_input_may_be_called_as_an_element() -> None:
    def build(graph: Graph, values: Any, other: Any) -> Any:
        return (graph.call_function(torch.sub, (read(graph, values, 0), other)),)

    gm = graph_of(build, "x", "x_0")
    torch.testing.assert_close(compile_fx(gm, [[X], Y])([X], Y), gm([X], Y))
