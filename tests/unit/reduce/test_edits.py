"""Each edit: what it changes, what it keeps, where it says that it makes no sense."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from ctk.compiler.fx.walk import placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.edits import (
    DropEffects,
    DropOutputs,
    DropUnused,
    FixSizes,
    FoldNumbers,
    InlineCall,
    RemoveNodes,
    Replace,
)
from ctk.toolkit.reduce.size import call_nodes, is_smaller, size_of
from ctk.toolkit.reduce.subgraph_edits import SubgraphEdit
from ctk.toolkit.reduce.value_edits import SetValues
from tests.helpers.reduce_graphs import captured, chain, op_names


def applied(case: Case, edit) -> Case:
    result = edit.apply(case, facts_of(case))
    assert result is not None
    return result


def outputs(case: Case) -> list[torch.Tensor]:
    outcome = run_eager(case)
    assert outcome.run is not None, outcome.error
    return [value for name, value in outcome.values.items() if name.startswith("out")]


def node_named(case: Case, op: str, nth: int = 0) -> str:
    nodes = [n for n in case.graph.graph.nodes if n.op.startswith("call")]
    return [n.name for n, name in zip(nodes, op_names(case), strict=True) if name == op][nth]


def input_names(case: Case) -> list[str]:
    return [node.name for node in placeholders(case.graph)]


X = torch.linspace(-1, 1, 16).reshape(4, 4)


class TestRemoveNodes:
    def test_a_value_inside_of_a_transform_becomes_no_input(self):
        case = captured(lambda x: torch.func.vmap(lambda row: row.sin().cos())(x), X)
        inside = node_named(case, "sin")
        names = [node.name for node in case.graph.graph.nodes if node.op.startswith("call")]
        prefix = RemoveNodes(tuple(names[: names.index(inside) + 1]))
        assert prefix.apply(case, facts_of(case)) is None
        assert torch.equal(torch.ones(2), torch.ones(2))  # and no level is left entered

    def test_a_cut_prefix_becomes_an_input_of_the_same_name_and_the_rest_computes_the_same(self):
        case = chain(6, {})
        first = [n.name for n in case.graph.graph.nodes if n.op != "placeholder"][:3]
        cut = applied(case, RemoveNodes(tuple(first)))
        assert input_names(cut) == [first[-1]]
        assert op_names(cut) == op_names(case)[3:]
        assert torch.equal(outputs(cut)[0], outputs(case)[0])

    def test_the_given_case_does_not_change(self):
        case = chain(6, {})
        before = fingerprint(case), case.graph.code
        applied(case, RemoveNodes((node_named(case, "tanh"),)))
        assert (fingerprint(case), case.graph.code) == before

    def test_a_removed_middle_leaves_both_ends_alive(self):
        case = chain(3, {0: torch.relu, 1: torch.sin, 2: F.gelu})
        rest = applied(case, RemoveNodes((node_named(case, "sin"),)))
        assert op_names(rest) == ["relu", "gelu"]
        relu = torch.relu(X)
        assert torch.equal(outputs(rest)[0], F.gelu(torch.sin(relu)))
        assert torch.equal(outputs(rest)[1], relu)

    def test_a_value_is_read_when_its_first_reader_runs(self):
        def run(x):
            y = x.sin()
            y.add_(1)
            return y.cos()

        case = captured(run, X)
        cut = applied(case, RemoveNodes((node_named(case, "sin"), node_named(case, "add_"))))
        assert op_names(cut) == ["cos"]
        assert torch.equal(outputs(cut)[0], outputs(case)[0])

    def test_an_in_place_op_that_stays_works_on_the_new_input(self):
        def run(x):
            y = x.sin()
            y.add_(1)
            return y.cos()

        case = captured(run, X)
        cut = applied(case, RemoveNodes((node_named(case, "sin"),)))
        assert op_names(cut) == ["add_", "cos"]
        assert torch.equal(outputs(cut)[0], outputs(case)[0])

    def test_parts_of_a_removed_tuple_become_inputs(self):
        def run(x):
            a, b = x.sin().split(2)
            return a.cos() + b

        case = captured(run, X)
        removed = [node_named(case, "sin"), node_named(case, "split")]
        cut = applied(case, RemoveNodes((*removed, *_getitems(case))))
        assert op_names(cut) == ["cos", "add"]
        assert input_names(cut) == list(_getitems(case))
        assert torch.equal(outputs(cut)[0], outputs(case)[0])

    def test_a_tuple_that_is_used_whole_becomes_a_tuple_of_inputs(self):
        gm = torch.fx.symbolic_trace(lambda x: torch.cat(torch.split(x.sin(), 2)))
        case = Case(gm, (X,))
        removed = (node_named(case, "sin"), node_named(case, "split"))
        cut = applied(case, RemoveNodes(removed))
        assert op_names(cut) == ["cat"]
        assert [tuple(value.shape) for value in cut.inputs] == [(2, 4), (2, 4)]
        assert torch.equal(outputs(cut)[0], outputs(case)[0])

    def test_a_number_becomes_a_constant(self):
        gm = torch.fx.symbolic_trace(lambda x: x.sin().view(x.cos().size(0), -1))
        case = Case(gm, (X,))
        cut = applied(case, RemoveNodes((node_named(case, "cos"), node_named(case, "size"))))
        (view,) = (n for n in cut.graph.graph.nodes if n.target == "view")
        assert view.args[1:] == (4, -1)

    def test_requires_grad_of_a_cut_value_is_that_of_the_run(self):
        def run(x, w):
            return (x @ w).relu(), x.sin().cos()

        case = captured(run, X, X.clone().requires_grad_())
        removed = (node_named(case, "matmul"), node_named(case, "sin"))
        cut = applied(case, RemoveNodes(removed))
        assert [value.requires_grad for value in cut.inputs] == [True, False]

    def test_a_number_that_inputs_give_is_copied_along_until_it_is_folded(self):
        case = captured(lambda x, n: x.sin() * (n * 3), X, 5, dynamic=True)
        cut = applied(case, RemoveNodes((node_named(case, "sin"),)))
        assert op_names(cut) == ["mul", "mul"]
        folded = applied(cut, FoldNumbers((node_named(cut, "mul"),)))
        assert op_names(folded) == ["mul"]
        assert torch.equal(outputs(folded)[0], outputs(case)[0])

    def test_strides_of_a_cut_value_are_kept_and_so_is_a_broadcast(self):
        def run(x):
            return x.t().relu(), x[0].expand(8, 4).cos()

        case = captured(run, X)
        removed = (node_named(case, "t"), node_named(case, "getitem"), node_named(case, "expand"))
        cut = applied(case, RemoveNodes(removed))
        assert [value.stride() for value in cut.inputs] == [(1, 4), (0, 1)]
        for mine, theirs in zip(outputs(cut), outputs(case), strict=True):
            assert torch.equal(mine, theirs)

    def test_without_any_result_left_there_is_no_case(self):
        case = chain(1, {})
        assert RemoveNodes((node_named(case, "sin"),)).apply(case, facts_of(case)) is None

    def test_a_leaf_that_is_written_in_place_does_not_require_grad(self):
        def run(x, w):
            y = x * w
            y.add_(1)
            return y @ w

        case = captured(run, X, X.clone().requires_grad_())
        backward = dataclasses.replace(case.modes, backward=True)
        case = dataclasses.replace(case, modes=backward)
        cut = applied(case, RemoveNodes((node_named(case, "mul"),)))
        assert outputs(cut)  # autograd accepts it
        flags = dict(zip(input_names(cut), (v.requires_grad for v in cut.inputs), strict=True))
        assert sorted(flags.values()) == [False, True]


def _getitems(case: Case) -> tuple[str, ...]:
    return tuple(n.name for n in case.graph.graph.nodes if "getitem" in str(n.target))


class TestBackward:
    def test_what_leaves_nothing_to_differentiate_is_no_case(self):
        def run(x, w):
            return x.sin(), w.cos()

        case = captured(run, X, X.clone().requires_grad_())
        backward = dataclasses.replace(case.modes, backward=True)
        case = dataclasses.replace(case, modes=backward)
        assert DropOutputs((1,)).apply(case, facts_of(case)) is None
        assert op_names(applied(case, DropOutputs((0,)))) == ["cos"]


class TestReplace:
    def test_chains_of_bypassed_nodes_are_followed(self):
        case = chain(3, {0: torch.relu, 1: torch.sin, 2: F.gelu})
        names = [n.name for n in case.graph.graph.nodes][:4]
        pairs = ((names[1], names[0]), (names[2], names[1]))
        rest = applied(case, Replace(pairs))
        assert op_names(rest) == ["gelu"]
        assert torch.equal(outputs(rest)[0], F.gelu(X))

    def test_what_only_fed_a_bypassed_node_goes_too(self):
        case = captured(lambda x, y: x + y.sin(), X, X)
        rest = applied(case, Replace(((node_named(case, "add"), input_names(case)[0]),)))
        assert op_names(rest) == []
        assert len(rest.inputs) == 1


class TestEffects:
    def test_in_place_ops_and_mode_switches_survive_other_edits(self):
        def run(x):
            with torch.no_grad():
                y = x.sin()
            y.add_(1)
            return y, x.cos()

        case = captured(run, X)
        rest = applied(case, DropOutputs((0,)))
        assert "add_" in op_names(rest)
        assert op_names(rest).count("_set_grad_enabled") == 2

    def test_who_used_an_in_place_op_uses_what_it_changed(self):
        gm = torch.fx.symbolic_trace(lambda x: x.sin().add_(1).cos())
        case = Case(gm, (X,))
        rest = applied(case, DropEffects((node_named(case, "add_"),)))
        assert op_names(rest) == ["sin", "cos"]
        assert torch.equal(outputs(rest)[0], X.sin().cos())

    def test_an_effect_whose_value_is_needed_cannot_go_alone(self):
        def run(x):
            with torch.autocast("cpu", torch.bfloat16):
                return x @ x

        case = captured(run, X)
        enter = node_named(case, "_enter_autocast")
        leave = node_named(case, "_exit_autocast")
        assert DropEffects((enter,)).apply(case, facts_of(case)) is None
        assert op_names(applied(case, DropEffects((enter, leave)))) == ["matmul"]

    @pytest.mark.parametrize(
        "call",
        [
            lambda x: F.relu(x, inplace=True),
            lambda x: F.relu(x, True),
            lambda x: torch.relu_(x),
            lambda x: torch.add(x, 1, out=x),
            lambda x: torch.ops.aten.add_.Tensor(x, x),
            lambda x: x.__iadd__(1),
        ],
    )
    def test_every_way_to_write_in_place_is_seen(self, call):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        call(torch.fx.Proxy(x, tracer))
        graph.output(x)
        case = Case(torch.fx.GraphModule({}, graph), (X.clone(),))
        assert len(facts_of(case).mutators) == 1

    @pytest.mark.parametrize("call", [torch.relu, lambda x: F.relu(x, False), lambda x: x + 1])
    def test_pure_ops_are_not_taken_for_in_place_ones(self, call):
        case = Case(torch.fx.symbolic_trace(lambda x: call(x)), (X,))
        assert not facts_of(case).mutators


class TestInputs:
    def test_an_input_goes_with_its_last_user_but_an_unused_one_stays(self):
        gm = torch.fx.symbolic_trace(lambda x, y, unused: (x.sin(), y.cos()))
        case = Case(gm, (X, X + 1, X + 2))
        rest = applied(case, DropOutputs((0,)))
        assert input_names(rest) == ["y", "unused"]
        assert torch.equal(rest.inputs[0], X + 1)
        assert input_names(applied(rest, DropUnused(("unused",)))) == ["y"]

    def test_dropping_what_is_used_makes_no_sense(self):
        gm = torch.fx.symbolic_trace(lambda x: x.sin())
        case = Case(gm, (X,))
        assert DropUnused(("x",)).apply(case, facts_of(case)) is None

    def test_values_keep_everything_but_the_numbers(self):
        case = captured(lambda x, y: x @ y, X.t(), X.clone().requires_grad_())
        names = input_names(case)
        new = applied(case, SetValues(((names[0], "zeros"), (names[1], "randn:3"))))
        assert torch.equal(new.inputs[0], torch.zeros(4, 4))
        assert new.inputs[0].stride() == case.inputs[0].stride()
        assert new.inputs[1].requires_grad
        assert new.synthetic == (names[0], names[1])
        assert torch.equal(case.inputs[1], X)


class TestSymbolicSizes:
    def test_a_size_goes_with_the_last_input_that_has_it(self):
        case = captured(lambda x, y: (x.sin() * x.size(0), y.cos()), X[:3], X, dynamic=True)
        symbols = {s for sizes in case.dynamic.values() for s in sizes if s}
        assert len(symbols) > 1
        rest = applied(case, DropOutputs((0,)))
        assert rest.inputs[0] == 4 and len(rest.inputs) == 2
        assert len(rest.dynamic) == 1

    def test_a_cut_value_keeps_its_symbolic_sizes(self):
        case = captured(lambda x: x.sin().cos(), X[:3], dynamic=True)
        cut = applied(case, RemoveNodes((node_named(case, "sin"),)))
        (sizes,) = cut.dynamic.values()
        assert sizes in case.dynamic.values()
        assert outputs(cut)

    def test_folding_a_size_makes_the_case_static_there(self):
        case = captured(lambda x: x.sin().view(x.size(0), -1), X[:3], dynamic=True)
        symbols = {size for sizes in case.dynamic.values() for size in sizes if size}
        rest = applied(case, FixSizes(tuple(symbols)))
        assert not rest.dynamic
        assert len(rest.inputs) == 1
        assert torch.equal(outputs(rest)[0], outputs(case)[0])


def branching(p, x, y):
    return torch.cond(p, lambda a, b: (a.relu().neg() + b,), lambda a, b: (a.sin() * b,), (x, y))


class TestSubgraphs:
    @pytest.mark.parametrize("taken", [True, False])
    def test_a_branch_is_inlined(self, taken: bool):
        case = captured(branching, torch.tensor(taken), X, X + 1)
        call = node_named(case, "cond")
        rest = applied(case, InlineCall(call, f"cond_{str(taken).lower()}_0"))
        assert op_names(rest) == (["relu", "neg", "add"] if taken else ["sin", "mul"])
        assert torch.equal(outputs(rest)[0], outputs(case)[0])

    def test_an_inlined_branch_brings_its_own_branches(self):
        def run(p, x, y):
            def inner(a, b):
                return torch.cond(p, torch.add, torch.mul, (a, b))

            return torch.cond(p, inner, torch.sub, (x, y)) * 2

        case = captured(run, torch.tensor(True), X, X + 1)
        rest = applied(case, InlineCall(node_named(case, "cond"), "cond_true_1"))
        assert op_names(rest)[0] == "cond"
        assert torch.equal(outputs(rest)[0], outputs(case)[0])

    def test_a_node_inside_a_branch_is_bypassed_and_the_branch_keeps_its_signature(self):
        case = captured(branching, torch.tensor(True), X, X + 1)
        inner = case.graph.cond_true_0.graph
        neg = next(n for n in inner.nodes if n.target == "neg")
        pairs = ((neg.name, neg.args[0].name),)
        rest = applied(case, SubgraphEdit(("cond_true_0",), Replace(pairs)))
        assert call_nodes(rest) == call_nodes(case) - 1
        assert torch.equal(outputs(rest)[0], X.relu() + (X + 1))
        assert torch.equal(outputs(case)[0], X.relu().neg() + (X + 1))

    def test_nodes_of_branches_count(self):
        case = captured(branching, torch.tensor(True), X, X + 1)
        assert call_nodes(case) == len(op_names(case)) + 3 + 2


class TestOrder:
    def test_fewer_nodes_beat_everything_and_simpler_values_come_last(self):
        long, short = chain(4, {}), chain(3, {})
        assert is_smaller(short, long) and not is_smaller(long, short)
        zeros = applied(short, SetValues(((input_names(short)[0], "zeros"),)))
        assert size_of(zeros) == size_of(short)
        assert is_smaller(zeros, short) and not is_smaller(short, zeros)
        assert not is_smaller(short, short)


class TestFingerprint:
    def test_names_do_not_count_but_values_do(self):
        case = chain(3, {})
        renamed = Case(chain(3, {}).graph, case.inputs, target=case.target, modes=case.modes)
        for node in renamed.graph.graph.nodes:
            node.name = f"other_{node.name}"
        assert fingerprint(renamed) == fingerprint(case)
        other = dataclasses.replace(case, inputs=(case.inputs[0] + 1,))
        assert fingerprint(other) != fingerprint(case)

    @pytest.mark.parametrize(
        "change",
        [
            lambda case: dataclasses.replace(case, target="inductor"),
            lambda case: dataclasses.replace(case, config={"a": 1}),
            lambda case: dataclasses.replace(
                case, modes=dataclasses.replace(case.modes, inference=True)
            ),
            lambda case: dataclasses.replace(case, inputs=(case.inputs[0].t(),)),
            lambda case: dataclasses.replace(
                case, inputs=(case.inputs[0].clone().requires_grad_(),)
            ),
            lambda case: chain(3, {1: torch.neg}),
        ],
    )
    def test_everything_that_changes_the_question_counts(self, change):
        case = chain(3, {})
        assert fingerprint(change(case)) != fingerprint(case)
