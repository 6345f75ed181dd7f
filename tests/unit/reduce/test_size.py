"""The order on cases: what counts before what, and that every step can go down it."""

import dataclasses
import logging
from collections.abc import Sequence

import pytest
import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.fx.walk import input_names, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.python_source import graph_to_python
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.graph_changes import with_inputs
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset
from ctk.toolkit.reduce.size import is_smaller
from ctk.toolkit.reduce.steps import STEPS
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops
from tests.helpers.reduce_steps import X, edits, proposals, traced


def with_input(value: object) -> Case:
    return traced(lambda x: x.sin(), value)


def scaled_by(factor: object, *more: object, **keywords: object) -> Case:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, factor, *more), keywords),))
    return Case(GraphModule({}, graph), (X,), target="fake")


WIDE = X.repeat(1, 2)

DESCENDING = {
    "calls before dtypes": [
        traced(lambda x: x.sin().cos(), X), with_input(X.double()), with_input(X),
    ],
    "elements before dtypes": [with_input(WIDE), with_input(X.double())],
    "dtypes": [with_input(X.to(d)) for d in (torch.float16, torch.bfloat16, torch.float64)],
    "the usual dtype before a small one": [with_input(X.half()), with_input(X)],
    "dtypes before layouts": [with_input(X.double()), with_input(X.t())],
    "layouts": [with_input(WIDE[:, ::2]), with_input(X.t()), with_input(X.clone())],
    "a large storage": [with_input(WIDE[:2]), with_input(WIDE[:2].clone())],
    "layouts before arguments": [with_input(X.t()), with_input(X.clone())],
    "numbers": [scaled_by(n) for n in (0.1234567, 2.0, 3, 1, 0)],
    "negative numbers": [scaled_by(-1), scaled_by(1)],
    "keywords": [scaled_by(1, alpha=2), scaled_by(1, alpha=1), scaled_by(1)],
    "arguments before values": [scaled_by(1), dataclasses.replace(scaled_by(0), inputs=(X + 9,))],
    "values": [with_input(X.exp()), with_input(torch.ones(4, 4)), with_input(torch.zeros(4, 4))],
}  # fmt: skip


@pytest.mark.parametrize("name", DESCENDING)
def test_each_case_is_smaller_than_those_before_it(name: str):
    cases = DESCENDING[name]
    for position, case in enumerate(cases):
        assert not is_smaller(case, case)
        for larger in cases[:position]:
            assert is_smaller(case, larger) and not is_smaller(larger, case)


# --- a step from outside --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ToFloat32:
    """The edit of a stranger's step: float64 inputs become float32."""

    names: tuple[str, ...]

    def says(self):
        return f"float32 for {self.names}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        given = dict(zip(input_names(case.graph), case.inputs, strict=True))
        tensors = {name: given[name] for name in self.names}
        return with_inputs(case, {n: v.float() for n, v in tensors.items()})


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    pairs = zip(placeholders(case.graph), case.inputs, strict=True)
    names = tuple(n.name for n, v in pairs if getattr(v, "dtype", None) is torch.float64)
    return [Subset(ToFloat32, names)] if names else []


STRANGE = Step("to_float32", propose)


def test_a_step_that_changes_a_dtype_is_asked_about():
    case = traced(lambda x, y: (x.sin(), y.cos()), X.double(), X.double())
    assert edits(proposals(STRANGE, case)[0]) == [ToFloat32(("x",)), ToFloat32(("y",))]

    def needs_double_cosine(case: Case) -> bool:
        values = dict(zip([n.name for n in placeholders(case.graph)], case.inputs, strict=True))
        kept = values.get("y", X)
        return has_ops("sin", "cos")(case) and kept.dtype is torch.float64

    best = minimize(Problem(case, FakeOracle(needs_double_cosine)), (*STEPS, STRANGE)).best
    assert [value.dtype for value in best.inputs] == [torch.float32, torch.float64]


def test_what_the_graph_has_on_record_goes_with_a_changed_dtype():
    case = captured(lambda x: x.sin(), X.double())
    assert "float64" in graph_to_python(case.graph)
    assert "float64" in graph_to_python(with_inputs(case, {"l_x_": X.double() + 1}).graph)
    assert "float64" not in graph_to_python(with_inputs(case, {"l_x_": X}).graph)
    assert "float64" in graph_to_python(case.graph)


def test_parameters_and_buffers_stay_what_they_are():
    model = torch.nn.BatchNorm1d(3).double()
    case = captured(model, torch.ones(4, 3).double())
    nodes = placeholders(case.graph)
    values = {n.name: v.float() for n, v in zip(nodes, case.inputs, strict=True) if v.dim()}
    changed = with_inputs(case, values)
    assert changed.roles == case.roles
    assert {role.kind for role in case.roles.values()} == {"buffer", "parameter"}
    assert [type(value) for value in changed.inputs] == [type(value) for value in case.inputs]
    assert torch.nn.Parameter in {type(value) for value in changed.inputs}


@dataclasses.dataclass(frozen=True, slots=True)
class Rename:
    """An edit that the order cannot see."""

    names: tuple[str, ...]

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return dataclasses.replace(case, name="other")


def test_a_step_that_the_order_does_not_see_is_named(caplog: pytest.LogCaptureFixture):
    blind = Step("rename", lambda case, facts: [Subset(Rename, ("x",))])
    with caplog.at_level(logging.DEBUG, logger="ctk"):
        result = minimize(
            Problem(traced(lambda x: x.sin(), X), FakeOracle(has_ops("sin"))), (blind,)
        )
    assert result.statistics["rename"].not_smaller > 0
    assert result.statistics["rename"].questions == 0
    assert "step rename changed cases, but never to a smaller one" in caplog.text
    told = [each for each in caplog.records if "never to a smaller" in each.getMessage()]
    assert {each.levelno for each in told} == {logging.DEBUG}, "users cannot do anything about it"


def test_a_cast_by_a_method_names_a_dtype():
    halves, usual = (
        traced(f, X) for f in (lambda x: x.bfloat16().sin(), lambda x: x.float().sin())
    )
    assert is_smaller(usual, halves) and not is_smaller(halves, usual)


def test_casts_that_are_needed_are_asked_about(caplog: pytest.LogCaptureFixture):
    case = traced(lambda x: x.bfloat16().sin(), X)
    with caplog.at_level(logging.DEBUG, logger="ctk"):
        result = minimize(Problem(case, FakeOracle(has_ops("bfloat16"))))
    assert result.statistics["simplify_dtypes"].questions
    assert "never to a smaller one" not in caplog.text


def test_our_own_steps_are_not_named(caplog: pytest.LogCaptureFixture):
    case = traced(lambda x, y: (x.sin() + y.cos()).tanh(), X, X.clone())
    with caplog.at_level(logging.DEBUG, logger="ctk"):
        minimize(Problem(case, FakeOracle(has_ops("tanh"))))
    assert "never to a smaller one" not in caplog.text


def test_a_smaller_number_of_as_many_bits_is_smaller():
    two, three = traced(lambda x: x.new_ones(2, 2), X), traced(lambda x: x.new_ones(3, 2), X)
    assert is_smaller(two, three)
    assert not is_smaller(three, two)
