"""Rules that are traced from two functions: checked with the operands at hand, and put in once."""

import threading

import pytest
import torch
from torch.nn import functional

from ctk.compiler.options.config import Config
from ctk.compiler.patterns.expression import Op, Var
from ctk.compiler.patterns.insert import fwd_only, joint_fwd_bwd, jvp, replace_by_example
from ctk.compiler.patterns.matcher import (
    HandlerRule,
    LazyTable,
    RuleTable,
    apply_rules,
    explain,
    why_not,
)
from ctk.compiler.patterns.replacement import register_replacement
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.torch_compat.fx import tracing
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten = torch.ops.aten
X, Y = torch.randn(4, 6), torch.randn(4, 6)


def swish(x):
    return x * torch.sigmoid(x)


class Table(Pass):
    """Applies a table of a test."""

    name = "table"
    numerics = "reassociates"
    __slots__ = ("rules",)

    def __init__(self, rules):
        object.__setattr__(self, "rules", rules)

    def run(self, rewriter) -> None:
        apply_rules(rewriter, self.rules)


def table_of(search, replace, inputs, trace=fwd_only, **options):
    table = RuleTable()
    register_replacement(search, replace, inputs, trace, table, name="rule", **options)
    return table


def fired(table, function, *inputs, **options):
    gm = aten_graph(function, *inputs)
    record = run_pass(gm, Table(table), **options)
    return gm, rules_of(record)


def targets(gm):
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def test_a_traced_rule_fires_whatever_the_shape_and_dtype():
    table = table_of(swish, functional.silu, [torch.rand(2)])
    for x in (X, X[0], X.double(), X.half()):
        gm, rules = fired(table, lambda x: swish(x.cos()).sin(), x)
        assert rules == ["rule"]
        assert targets(gm) == ["aten.cos.default", "aten.silu.default", "aten.sin.default"]
        silu = next(n for n in gm.graph.nodes if n.target is aten.silu.default)
        assert silu.meta["val"].dtype == x.dtype
        assert silu.meta["val"].shape == x.shape


def test_a_rewrite_has_a_number_and_can_be_vetoed_and_run_out_of_fuel():
    table = table_of(swish, functional.silu, [torch.rand(2)])

    def function(x):
        return swish(swish(x))

    vetoed = Recorder(Veto(rewrites=frozenset({1})))
    assert targets(fired(table, function, X)[0]) == ["aten.silu.default"] * 2
    left, _ = fired(table, function, X, observer=vetoed)
    assert targets(left) == ["aten.sigmoid.default", "aten.mul.Tensor", "aten.silu.default"]
    short, _ = fired(table, function, X, config=Config(fuel=1))
    assert targets(short) == ["aten.silu.default", "aten.sigmoid.default", "aten.mul.Tensor"]


def test_several_tables():
    tables = (RuleTable(), RuleTable())
    register_replacement(swish, functional.silu, [torch.rand(2)], fwd_only, tables)
    assert [rule.name for table in tables for rule in table.rules] == ["swish", "swish"]


def reason_of(table, function, *inputs):
    return why_not(table.rules[0], aten_graph(function, *inputs).graph)


def flat(x):
    return x.reshape(-1).sin().reshape(4, 6)


def test_shapes_are_ignored_first_and_checked_then():
    table = table_of(flat, torch.sin, [X])
    assert fired(table, lambda x: flat(x) * 2, X)[1] == ["rule"]
    reason = reason_of(table, lambda x: x.view(4, 6, 1).sin().view(4, 6), X)
    assert reason == "at view_1: with these operands an operand is 4, not the size 24" or (
        "with these operands view is a aten.view.default with other arguments" in reason
        or "is [4, 6, 1]" in reason
    )


def widened(x):
    return x.to(torch.float64).sin()


def test_dtypes_are_checked():
    table = table_of(widened, lambda x: x.sin().double(), [X])
    assert fired(table, lambda x: widened(x) * 2, X)[1] == ["rule"]
    reason = reason_of(table, lambda x: x.to(torch.float16).sin() * 2, X)
    assert "torch.float16" in reason


@pytest.mark.parametrize(
    ("replace", "reason"),
    [
        (lambda x: x.half(), "the replacement makes float16[4, 6] on cpu of float32[4, 6] on cpu"),
        (lambda x: x[0], "the replacement makes float32[6] on cpu of float32[4, 6] on cpu"),
        (lambda x: (x, x), "the replacement has 2 results, the match 1"),
        (lambda x: x @ x, "it cannot be traced with these operands: "),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(replace, reason):
    table = table_of(swish, replace, [torch.rand(4, 4)])
    assert reason in reason_of(table, lambda x: swish(x) * 2, X)
    assert fired(table, lambda x: swish(x) * 2, X)[1] == []


def test_an_inner_value_with_other_users_makes_no_match():
    table = table_of(swish, functional.silu, [torch.rand(2)])

    def function(x):
        gate = torch.sigmoid(x)
        return x * gate, gate * 2

    assert fired(table, function, X)[1] == []
    assert reason_of(table, function, X) == "at mul: mul_1, outside the match, needs sigmoid"


def scaled(x, y, scale):
    return (x + y) * scale


def test_scalars_are_bound_and_handed_to_the_replacement():
    table = table_of(
        scaled,
        lambda x, y, scale: torch.add(x * scale, y, alpha=scale),
        [X, Y],
        scalar_workaround={"scale": 4.27},
    )
    gm, rules = fired(table, lambda x, y: ((x + y) * 0.5).sin(), X, Y)
    assert rules == ["rule"]
    assert torch.allclose(gm(X, Y), ((X + Y) * 0.5).sin())
    assert fired(table, lambda x, y: (x + y) * x, X, Y)[1] == []
    assert "scale is x_1, not a number" in reason_of(table, lambda x, y: (x + y) * x, X, Y)


def test_constants_that_depend_on_a_scalar_are_left_to_the_check():
    table = table_of(
        lambda x, p: x * (1 / (1 - p)) * p,
        lambda x, p: x * (p / (1 - p)),
        [X],
        scalar_workaround={"p": 0.113377},
    )
    assert fired(table, lambda x: (x * (1 / (1 - 0.5)) * 0.5).sin(), X)[1] == ["rule"]
    assert fired(table, lambda x: (x * 3.0 * 0.5).sin(), X)[1] == []
    assert "with these operands" in reason_of(table, lambda x: (x * 3.0 * 0.5).sin(), X)


def test_scalars_may_be_integers():
    def search(x, n):
        return x.roll(n, 0).exp()

    table = table_of(search, lambda x, n: x.exp().roll(n, 0), [X], scalar_workaround={"n": 7})
    gm, rules = fired(table, lambda x: search(x, 1).neg(), X)
    assert rules == ["rule"]
    assert torch.equal(gm(X), X.roll(1, 0).exp().neg())
    table = table_of(
        lambda x, n: (x * n).exp(), lambda x, n: (n * x).exp(), [X], scalar_workaround={"n": 7}
    )
    assert fired(table, lambda x: (x * 3).exp().neg(), X)[1] == ["rule"]


def test_scalars_may_stand_between_tensors():
    table = table_of(
        lambda x, s, y: x * s + y,
        lambda x, s, y: torch.add(y, x, alpha=s),
        [X, Y],
        scalar_workaround={"s": 2.5},
    )
    assert fired(table, lambda x, y: (x * 3.5 + y).sin(), X, Y)[1] == ["rule"]


def test_exclusive_arguments_are_different_nodes():
    def search(x, y):
        return x.sin() * y.cos()

    table = table_of(search, lambda x, y: x - y, [X, Y], exclusive_arg_names=("x", "y"))
    assert fired(table, search, X, Y)[1] == ["rule"]
    assert fired(table, lambda x: search(x, x), X)[1] == []
    assert "x, y must be different nodes" in reason_of(table, lambda x: search(x, x), X)


def test_an_extra_check_says_why():
    table = table_of(swish, functional.silu, [X], extra_check=lambda match: "not today")
    assert reason_of(table, swish, X) == "at mul: not today"


def test_training_replaces_forward_and_backward_together():
    def search(x, y):
        return (x * y).sin()

    def replace(x, y):
        return torch.cos(x * y - torch.pi / 2)

    inputs = [torch.rand(2, 2, requires_grad=True) for _ in "xy"]
    table = table_of(search, replace, inputs, joint_fwd_bwd)
    mine = [each.clone().requires_grad_() for each in (X, Y)]
    mode = torch._subclasses.FakeTensorMode()
    fakes = [tracing.fake_like(each, mode, requires_grad=True) for each in mine]
    gm = tracing.trace_joint(lambda x, y: search(x.exp(), y).sum(), fakes)
    before = gm(X, Y, torch.tensor(1.0))
    assert rules_of(run_pass(gm, Table(table))) == ["rule"]
    assert "aten.sin.default" in targets(gm)  # of the derivative of cos
    for old, new in zip(before, gm(X, Y, torch.tensor(1.0)), strict=True):
        assert torch.allclose(old, new, atol=1e-5)


def test_a_training_rule_fires_behind_the_passes_of_the_pipeline():
    table = table_of(swish, functional.silu, [torch.rand(2, requires_grad=True)], joint_fwd_bwd)
    fired_in: list[list[str]] = []

    def use(rewriter):
        apply_rules(rewriter, table)
        fired_in.append(targets(rewriter.module))

    config = Config(codegen="eager", custom_passes={"joint": (use,)})
    compiled = torch.compile(lambda x: swish(x) + 1, backend=config_backend(config))
    x = X.clone().requires_grad_()
    compiled(x).sum().backward()
    assert "aten.silu.default" in fired_in[0]
    (expected,) = torch.autograd.grad(swish(y := X.clone().requires_grad_()).sum(), y)
    assert torch.allclose(x.grad, expected, atol=1e-6)


def config_backend(config):
    return lambda gm, inputs: compile_fx(gm, inputs, config)


def test_training_leaves_alone_what_is_inference_and_the_other_way_round():
    inputs = [torch.rand(2, requires_grad=True)]
    training = table_of(swish, functional.silu, inputs, joint_fwd_bwd)
    assert fired(training, swish, X)[1] == []
    inference = table_of(swish, functional.silu, [torch.rand(2)])
    mode = torch._subclasses.FakeTensorMode()
    gm = tracing.trace_joint(swish, [tracing.fake_like(X, mode, requires_grad=True)])
    assert rules_of(run_pass(gm, Table(inference))) == []
    assert "outside the match, needs sigmoid" in why_not(inference.rules[0], gm.graph)


def test_results_keep_their_strides():
    table = table_of(lambda x: x.sin() + 1, lambda x: x.t().contiguous().t().sin() + 1, [X])
    for x in (X, X.t()):
        gm, rules = fired(table, lambda x: x.sin() + 1, x)
        assert rules == ["rule"]
        assert gm(x).stride() == (x.sin() + 1).stride()
        assert torch.equal(gm(x), x.sin() + 1)


def test_a_handler_replaces_by_example():
    def handler(rewriter, match):
        replace_by_example(
            rewriter, match, lambda x: torch.clamp(x, 0), [match.node("x")], name="mine"
        )

    table = RuleTable(HandlerRule("relu", Op(aten.relu.default, (Var("x"),)), handler))
    gm, rules = fired(table, lambda x: x.relu().sin(), X)
    assert rules == ["mine"]
    assert targets(gm) == ["aten.clamp.default", "aten.sin.default"]


def test_symbolic_sizes():
    table = table_of(lambda x: x.sum(0).view(-1, 1), lambda x: x.t().sum(1, keepdim=True), [X])
    gm = aten_graph(lambda x: x.sum(0).view(-1, 1) * 2, X, tracing_mode="symbolic")
    assert rules_of(run_pass(gm, Table(table))) == ["rule"]
    assert torch.allclose(gm(Y), Y.sum(0).view(-1, 1) * 2)


def test_a_table_is_filled_once_by_many_threads():
    calls = []
    table = LazyTable(lambda table, devices: calls.append(devices))
    threads = [threading.Thread(target=table.get) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(calls) == 1
    assert calls[0][0] == "cpu"
    assert ("cuda" in calls[0]) == torch.cuda.is_available()


def test_a_table_that_failed_to_fill_is_filled_again():
    failing = [True]

    def fill(table, devices):
        register_replacement(swish, functional.silu, [X], fwd_only, table)
        if failing.pop() if failing else False:
            raise RuntimeError("out of luck")

    table = LazyTable(fill)
    with pytest.raises(RuntimeError, match="out of luck"):
        table.get()
    assert len(table.get().rules) == 1
    assert explain(table.get().rules[0], aten_graph(swish, X).graph.output_node()) is not None


def test_an_operand_that_is_computed_behind_a_user_makes_no_match():
    def search(x, y):
        return x.sin(), (x * y).cos()

    def replace(x, y):
        both = torch.cat([x.sin(), (x * y).cos()])
        return both[:4], both[4:]

    table = table_of(search, replace, [X, Y])

    def late(x):
        sine, other = search(x, x.exp())
        return sine + 1, other + 1

    assert fired(table, late, X)[1] == ["rule"]

    def circular(x):
        sine = x.sin()
        return sine, (x * sine.exp()).cos()

    assert fired(table, circular, X)[1] == []
    assert "exp uses sin before" in reason_of(table, circular, X)

    def own(x):
        sine = x.sin()
        return sine, (x * sine).cos()

    assert fired(table, own, X)[1] == []
    assert "sin is a result of the match and an operand" in reason_of(table, own, X)


def test_forward_mode_replaces_results_and_tangents():
    inputs = [torch.rand(2, 2, requires_grad=True)]
    table = table_of(lambda x: x * torch.sigmoid(x), functional.silu, inputs, jvp)
    mode = torch._subclasses.FakeTensorMode()
    gm = tracing.trace_jvp(
        lambda x: swish(x).exp(), [tracing.fake_like(X, mode, requires_grad=True)]
    )
    before = gm(X, Y)
    assert rules_of(run_pass(gm, Table(table))) == ["rule"]
    assert "aten.silu.default" in targets(gm)
    _, exact = torch.func.jvp(lambda x: swish(x).exp(), (X,), (Y,))
    torch.testing.assert_close(before[1], exact)
    torch.testing.assert_close(list(gm(X, Y)), list(before))


def test_the_arguments_may_be_given_by_place():
    table = RuleTable()
    rule = register_replacement(
        scaled,
        lambda x, y, scale: torch.add(x * scale, y, alpha=scale),
        [X, Y],
        fwd_only,
        [table],
        lambda match: match.bound["scale"] != 3.0,
        {"scale": 4.27},
        ("x", "y"),
    )
    assert rule.name == "scaled"
    assert fired(table, lambda x, y: scaled(x, y, 2.0), X, Y)[1] == ["scaled"]
    assert "its extra check failed" in reason_of(table, lambda x, y: scaled(x, y, 3.0), X, Y)
    assert "must be different" in reason_of(table, lambda x: scaled(x, x, 2.0), X)


def test_autocast_of_the_program_does_not_change_the_traces():
    table = table_of(lambda x, y: (x @ y).sin(), lambda x, y: (y.mT @ x.mT).mT.sin(), [X, X.mT])
    gm = aten_graph(lambda x, y: (x @ y).sin() * 2, X, Y.mT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert why_not(table.rules[0], gm.graph) is None
