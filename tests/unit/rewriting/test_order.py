"""Users' passes may leave nodes out of order: they are sorted, stably, or the pass is named."""

from graphlib import CycleError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from ctk.compiler.errors import VerifyError
from ctk.compiler.fx.order import orderings, sort_stably
from ctk.compiler.fx.properties import is_pure
from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.helpers.pass_programs import Program, programs
from tests.helpers.passes import aten_graph, run_pass

aten = torch.ops.aten


def sums(x):
    return x.sin().sum() + x.cos().sum()


def at_the_end(graph: fx.Graph):
    """Replaces cos by 1 + cos, and adds the new nodes behind the output."""
    (cos,) = graph.find_nodes(op="call_function", target=aten.cos.default)
    new = graph.call_function(aten.cos.default, cos.args)
    more = graph.call_function(aten.add.Tensor, (new, 1))
    cos.replace_all_uses_with(more)
    graph.erase_node(cos)


def behind_its_user(rewriter):
    (cos,) = rewriter.graph.find_nodes(op="call_function", target=aten.cos.default)

    def edit(graph):
        user = next(iter(cos.users))
        with graph.inserting_after(user):
            new = graph.call_function(aten.add.Tensor, (cos, 1))
        user.replace_input_with(cos, new)

    if len(rewriter.graph.nodes) < 9:
        rewriter.rewrite("cos -> cos + 1", [cos], edit)


def another_module(gm: fx.GraphModule):
    at_the_end(gm.graph)
    return fx.GraphModule(gm, gm.graph)


@pytest.mark.parametrize("step", [at_the_end, behind_its_user, another_module])
@pytest.mark.parametrize("slot", ["joint", "before_joint", "post_grad", "before_post_grad"])
def test_nodes_that_a_user_adds_anywhere_are_put_in_order(slot, step):
    recorder = Recorder(keep_rewrites=True)
    x = torch.linspace(0, 1, 5)
    config = {"custom_passes": {slot: [step]}, "codegen": "eager"}
    compiled = compile_fx(fx.symbolic_trace(sums), [x], config, recorder)
    torch.testing.assert_close(compiled(x), x.sin().sum() + (x.cos() + 1).sum())
    records = [r for r in recorder.log.passes() if r.id.name == step.__name__]
    stage = [r.id for r in recorder.log.passes() if r.id.stage == records[0].id.stage]
    assert stage.index(records[0].id) == (0 if "before" in slot else len(stage) - 1)
    assert records[0].rewrites
    for record in records:
        record.after.graph.lint()
        for rewrite in record.rewrites:
            rewrite.after().graph.lint()


def test_a_veto_undoes_what_was_put_in_order():
    gm = fx.symbolic_trace(sums)
    x = torch.linspace(0, 1, 5)
    config = {"custom_passes": {"joint": [at_the_end]}, "codegen": "eager"}
    recorder = Recorder(Veto(passes=frozenset({"joint/at_the_end"})))
    torch.testing.assert_close(compile_fx(gm, [x], config, recorder)(x), sums(x))


def circular(rewriter):
    sin, cos = (rewriter.graph.find_nodes(op="call_function", target=each)[0] for each in OPS)
    rewriter.rewrite("a circle", [sin], lambda graph: setattr(sin, "args", (cos,)))
    rewriter.rewrite("a circle", [cos], lambda graph: setattr(cos, "args", (sin,)))


OPS = (aten.sin.default, aten.cos.default)


@pytest.mark.parametrize("verify", [True, False])
def test_a_circle_names_the_pass(verify):
    config = Config(verify=verify).patch(custom_passes={"before_joint": [circular]})
    with pytest.raises(VerifyError, match=r"cycle: (sin|cos) -> (sin|cos)") as it:
        compile_fx(fx.symbolic_trace(sums), [torch.zeros(2)], config)
    assert "joint/circular" in str(it.value)


def called(gm, target):
    target = getattr(target, "default", target)
    return gm.graph.find_nodes(op="call_function", target=target)[0]


def writes(x, y):
    before = x.sin()
    x.add_(1)
    return before * 2, x.cos(), y.neg()


def test_sorting_keeps_reads_and_writes_in_order():
    gm = aten_graph(writes, torch.zeros(3), torch.ones(3))
    names = [node.name for node in gm.graph.nodes]
    sin, add, neg = (called(gm, t) for t in (aten.sin, aten.add_.Tensor, aten.neg))
    assert sin in orderings(list(gm.graph.nodes))[add]
    neg.append(gm.graph.find_nodes(op="placeholder")[1])  # y behind its user
    assert sort_stably(gm.graph)
    assert [node.name for node in gm.graph.nodes] == names
    assert not sort_stably(gm.graph)


def reads_too_late(rewriter):
    """neg gets sin(x) for an operand, which comes behind it and behind a write to x."""
    neg, sin = called(rewriter, aten.neg), called(rewriter, aten.sin)
    x = next(iter(rewriter.graph.nodes))

    def edit(graph):
        sin.args, neg.args = (x,), (sin,)

    rewriter.rewrite("neg(x) -> neg(sin(x))", [neg], edit)


def test_what_cannot_be_sorted_without_another_order_of_writes():
    def program(x, y):
        before = x.neg()
        x.add_(y)
        return x.sin() * 2, before

    gm = aten_graph(program, torch.zeros(3), torch.ones(3))
    step = FunctionPass("late", reads_too_late, "rewriter")
    with pytest.raises(VerifyError, match=r"across a write.*: sin -> add_"):
        run_pass(gm, step)


@given(program=programs(), data=st.data())
@settings(derandomize=True, deadline=None, max_examples=10)
def test_a_shuffled_graph_is_sorted_again(program: Program, data: st.DataObject):
    gm = program.graph()
    given = list(gm.graph.nodes)
    pure = [node for node in given if is_pure(node)]
    output = gm.graph.output_node()
    for node in data.draw(st.lists(st.sampled_from(pure), max_size=4)) if pure else ():
        output.append(node)  # behind everything
    try:
        sort_stably(gm.graph)
    except CycleError:  # a read has come behind a write: to sort that would be to guess
        assert program.writes
        return
    gm.graph.lint()
    assert list(gm.graph.nodes)[-1].op == "output"
    assert {*gm.graph.nodes} == {*given}
    assert not sort_stably(gm.graph)
