"""Exact minima, and budgets of oracle questions: with Inductor, one costs seconds."""

import contextlib
import dataclasses
import io

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import minifier

from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.size import call_nodes, is_smaller
from ctk.toolkit.reduce.steps import STEPS
from tests.helpers.reduce_graphs import (
    FakeOracle,
    captured,
    chain,
    feeds,
    has_ops,
    op_names,
    transformer,
    tree,
    unread_operand,
)
from tests.helpers.reduce_steps import traced

ADJACENT, SPREAD = {200: torch.relu, 201: F.gelu}, {20: torch.relu, 251: F.gelu}
THREE = {20: torch.relu, 151: F.gelu, 280: F.softplus}


def branchy(layers: int, guilty: int) -> Case:
    """Return blocks of three branches that are split, summed and concatenated again."""

    def run(x):
        for index in range(layers):
            a, b = x.split(2, dim=0)
            a, b = a.sin() + b, torch.where(a > 0, b, a.cos())
            mixed = torch.cat((a, b)) * x.sigmoid()
            if index == guilty:
                mixed = F.softplus(F.elu(mixed))
            values, _ = torch.topk(mixed, 4)
            x = x + mixed.t().t() * values
        return x, x.sum(0), x.max()

    return captured(run, torch.linspace(-1, 1, 16).reshape(4, 4))


SCENARIOS = {
    "chain, one op": (lambda: chain(300, {150: torch.relu}), has_ops("relu"), ["relu"], 24),
    "chain, adjacent": (
        lambda: chain(300, ADJACENT), feeds("relu", "gelu"), ["relu", "gelu"], 26,
    ),
    "chain, spread": (lambda: chain(300, SPREAD), has_ops("relu", "gelu"), ["relu", "gelu"], 30),
    "chain, three": (
        lambda: chain(300, THREE),
        has_ops("relu", "gelu", "softplus"), ["relu", "gelu", "softplus"], 60,
    ),
    "encoder, first layer": (
        lambda: transformer(6, 0), feeds("gelu", "hardtanh"), ["gelu", "hardtanh"], 30,
    ),
    "encoder, last layer": (
        lambda: transformer(12, 11), feeds("gelu", "hardtanh"), ["gelu", "hardtanh"], 30,
    ),
    "tree": (lambda: tree(7), feeds("relu", "gelu"), ["relu", "gelu"], 26),
    "branches": (lambda: branchy(12, 7), feeds("elu", "softplus"), ["elu", "softplus"], 30),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_exact_minimum_within_the_budget_and_without_a_repeated_question(name: str):
    build, predicate, expected, budget = SCENARIOS[name]
    case = build()
    assert call_nodes(case) >= 140
    oracle = FakeOracle(predicate)
    result = minimize(Problem(case, oracle))
    assert op_names(result.best) == expected
    assert result.finished
    assert result.questions == len(oracle.asked) <= budget
    assert len({fingerprint(each) for each in oracle.asked}) == len(oracle.asked)
    assert len(result.best.inputs) <= len(expected)


@pytest.mark.parametrize("position", [0, 1, 2, 99, 148, 149])
def test_the_place_of_the_failure_does_not_matter(position: int):
    oracle = FakeOracle(has_ops("relu"))
    result = minimize(Problem(chain(150, {position: torch.relu}), oracle))
    assert op_names(result.best) == ["relu"]
    assert result.questions <= 24


def test_a_failure_that_needs_a_long_connection_keeps_only_its_ends():
    """`gelu` must depend on `relu`: nodes between them can be bypassed, not cut."""

    def depends(case: Case) -> bool:
        reached = set()
        for node in case.graph.graph.nodes:
            is_relu = node.op != "placeholder" and getattr(node.target, "__name__", "") == "relu"
            if is_relu or any(source in reached for source in node.all_input_nodes):
                reached.add(node)
                if getattr(node.target, "__name__", "") == "gelu":
                    return True
        return False

    result = minimize(Problem(chain(300, SPREAD), FakeOracle(depends)))
    assert op_names(result.best) == ["relu", "gelu"]
    assert result.questions <= 36


def test_a_failure_that_needs_many_nodes_stays_within_a_linear_number_of_questions():
    def has_ten_sines(case: Case) -> bool:
        return op_names(case).count("sin") >= 10

    result = minimize(Problem(chain(160, {}), FakeOracle(has_ten_sines)))
    assert op_names(result.best) == ["sin"] * 10
    assert result.questions <= 160


def test_a_failure_of_the_backward_graph_keeps_something_to_differentiate():
    def run(x, w):
        for _ in range(40):
            x = torch.tanh(x @ w) + x.cos()
        return F.softplus(x).sum()

    case = captured(run, torch.randn(4, 4), torch.randn(4, 4).requires_grad_())
    modes = dataclasses.replace(case.modes, backward=True)
    oracle = FakeOracle(lambda case: case.modes.backward and has_ops("softplus")(case))
    result = minimize(Problem(dataclasses.replace(case, modes=modes), oracle))
    assert op_names(result.best) == ["softplus"]
    assert [value.requires_grad for value in result.best.inputs] == [True]
    for asked in oracle.asked:
        assert any(isinstance(v, torch.Tensor) and v.requires_grad for v in asked.inputs)


def test_values_become_what_a_script_can_build():
    result = minimize(Problem(chain(30, {10: torch.relu}), FakeOracle(has_ops("relu"))))
    assert torch.equal(result.best.inputs[0], torch.zeros(1, 1))

    def needs_negative(case: Case) -> bool:
        return "relu" in op_names(case) and bool((case.inputs[0] < 0).any())

    result = minimize(Problem(chain(30, {10: torch.relu}), FakeOracle(needs_negative)))
    assert result.best.inputs[0].flatten().tolist() == [-1]


@pytest.mark.parametrize("name", ["chain, one op", "encoder, first layer"])
def test_fewer_questions_than_torchs_minifier_and_no_larger_a_result(name: str):
    build, predicate, _, _ = SCENARIOS[name]
    case = build()
    ours, theirs = FakeOracle(predicate), FakeOracle(predicate)
    best = minimize(Problem(case, ours)).best

    def fails(gm, inputs):
        other = dataclasses.replace(case, graph=gm, inputs=tuple(inputs))
        return theirs(other).verdict.value == "reproduces"

    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        gm, _ = minifier(case.graph, list(case.inputs), fails, lambda gm, inputs: None)
    assert call_nodes(best) <= call_nodes(dataclasses.replace(case, graph=gm))
    assert 1.5 * len(ours.asked) < len(theirs.asked)


# --- every step is needed -------------------------------------------------------------------------

X = torch.linspace(-1, 1, 16).reshape(4, 4)


def switched(x):
    with torch.no_grad():
        return x.relu()


def conditional(p, x):
    return torch.cond(p, lambda a: a.relu().neg(), torch.cos, (x,))


def is_connected(case: Case) -> bool:
    """Return whether the last call is `gelu` and depends on the first, `relu`."""
    names = op_names(case)
    nodes = {node.name: node for node in case.graph.graph.nodes}
    last = next(iter(reversed([n for n in nodes.values() if n.op.startswith("call")])))
    todo, reached = [last], set()
    while todo:
        reached.add(node := todo.pop())
        todo.extend(node.all_input_nodes)
    return names[-1] == "gelu" and any(getattr(n.target, "__name__", "") == "relu" for n in reached)


def calls_inside(name: str):
    """Return the predicate that a graph or one of its sub-graphs calls an op."""

    def holds(case: Case) -> bool:
        modules = [m for m in case.graph.modules() if isinstance(m, torch.fx.GraphModule)]
        return any(name == str(n.target) for m in modules for n in m.graph.nodes)

    return holds


def inside_cond(case: Case) -> bool:
    return calls_inside("cond")(case) and calls_inside("relu")(case)


def has_large_input(case: Case) -> bool:
    """Say that a case fails if it has `relu`, and a `gelu` that reads large values."""
    seen: list[float] = []

    class Look(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if getattr(target, "__name__", "") == "gelu":
                seen.append(float(args[0].abs().max()))
            return super().call_function(target, args, kwargs)

    Look(case.graph).run(*case.inputs)
    return has_ops("relu", "gelu")(case) and max(seen) > 1e3


def depends_on_relu(case: Case) -> bool:
    """Say that a case fails if a product depends on a `relu`."""
    reached = set()
    for node in case.graph.graph.nodes:
        name = getattr(node.target, "__name__", "")
        if name == "relu" or any(source in reached for source in node.all_input_nodes):
            reached.add(node)
            if name == "mm":
                return True
    return False


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.relu()
    return y, y


def many_passed_on(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return torch.relu(a), F.gelu(b), a, b, c, d


NEEDED = {
    "drop_unused": (lambda: traced(lambda x, y: x.relu(), X, X), has_ops("relu"), ["relu"]),
    "drop_outputs": (lambda: traced(twice, X), has_ops("relu"), ["relu"]),
    "cut": (
        lambda: traced(lambda x: F.gelu((torch.relu(x) + 9).exp()), X), has_large_input,
        ["relu", "gelu"],
    ),
    "shortcut": (
        lambda: traced(lambda x: F.gelu(torch.relu(x) + x.cos()), X),
        lambda case: is_connected(case) and "cos" in op_names(case), ["relu", "cos", "gelu"],
    ),
    "reform_inputs": (
        lambda: traced(
            lambda x, w: torch.mm(torch.relu(x).sin().reshape(4, 4), w), X.flatten(), X
        ),
        depends_on_relu, ["relu", "mm"],
    ),
    "drop_effects": (lambda: captured(switched, X), has_ops("relu"), ["relu"]),
    "inline_subgraph": (
        lambda: captured(conditional, torch.tensor(True), X), calls_inside("relu"), ["relu"],
    ),
    "reduce_subgraphs": (
        lambda: captured(conditional, torch.tensor(True), X), inside_cond, ["cond"],
    ),
    "drop_operands": (
        unread_operand, calls_inside("cond"), ["cond"],
    ),
    "fold_numbers": (lambda: traced(lambda x, n: x * n, X, 3), has_ops("mul"), ["mul"]),
    "shrink_dimensions": (lambda: traced(lambda x: x.relu(), X), has_ops("relu"), ["relu"]),
    "merge_inputs": (
        lambda: traced(lambda x, y: x * y, torch.zeros(2), torch.zeros(2)), has_ops("mul"), ["mul"],
    ),
    "simplify_dtypes": (
        lambda: traced(lambda x: x.relu(), torch.zeros(2).double()), has_ops("relu"), ["relu"],
    ),
    "drop_gradients": (
        lambda: traced(lambda x: x.relu(), torch.zeros(2).requires_grad_()), has_ops("relu"),
        ["relu"],
    ),
    "simplify_layouts": (
        lambda: traced(lambda x: x.relu(), torch.zeros(4, 4).t()),
        lambda case: case.inputs[0].shape == (4, 4) and has_ops("relu")(case), ["relu"],
    ),
    "simplify_arguments": (
        lambda: traced(lambda x: F.leaky_relu(x, 0.3), X), has_ops("leaky_relu"), ["leaky_relu"],
    ),
    "simplify_values": (lambda: traced(lambda x: x.relu(), X), has_ops("relu"), ["relu"]),
    "fewest_nonzeros": (
        lambda: traced(lambda x: x.relu(), X),
        lambda case: case.inputs[0].shape == (4, 4) and case.inputs[0][2, 1] != 0, ["relu"],
    ),
    "move_elements": (
        lambda: traced(lambda x: x.relu(), X + 1),
        lambda case: case.inputs[0].shape == (4, 4) and case.inputs[0].any(), ["relu"],
    ),
    "simplify_numbers": (
        lambda: traced(lambda x: x.relu(), X * 9), lambda case: case.inputs[0].max() > 4, ["relu"],
    ),
}  # fmt: skip


CHEAPER = {
    "plain_inputs": (lambda: traced(lambda x: x.relu(), X.double().t()), has_ops("relu")),
    "halve": (lambda: chain(300, {40: torch.relu}), has_ops("relu")),
    "drop_suffix": (lambda: chain(300, SPREAD), has_ops("relu", "gelu")),
    "drop_prefix": (lambda: traced(lambda x: x.sin().cos().sum(0).relu(), X), has_ops("relu")),
    "remove": (lambda: chain(300, SPREAD), has_ops("relu", "gelu")),
    "drop_passed_on": (lambda: traced(many_passed_on, *[X] * 4), has_ops("relu", "gelu")),
}


AROUND = ("forward_only", "drop_modes", "drop_options", "leave_out_passes", "move_to_cpu")
"""Steps that leave the graph alone: tests/unit/reduce/steps/test_settings.py, test_forms.py."""


def test_each_step_is_needed_for_the_minimum_or_makes_it_cheaper():
    assert sorted([*NEEDED, *CHEAPER, *AROUND]) == sorted(step.name for step in STEPS)


@pytest.mark.parametrize("name", CHEAPER)
def test_without_one_of_the_cheap_steps_more_is_asked(name: str):
    build, predicate = CHEAPER[name]
    case = build()
    others = tuple(step for step in STEPS if step.name != name)
    with_it = minimize(Problem(case, FakeOracle(predicate)))
    without = minimize(Problem(case, FakeOracle(predicate)), others)
    assert with_it.questions < without.questions


@pytest.mark.parametrize("name", NEEDED)
def test_without_one_of_the_steps_the_minimum_is_not_reached(name: str):
    build, predicate, expected = NEEDED[name]
    case = build()
    best = minimize(Problem(case, FakeOracle(predicate))).best
    others = tuple(step for step in STEPS if step.name != name)
    without = minimize(Problem(case, FakeOracle(predicate)), others).best
    assert [op for op in op_names(best) if op != "getitem"] == expected
    assert is_smaller(best, without)
