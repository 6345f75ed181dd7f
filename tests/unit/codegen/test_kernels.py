"""Many kernels per graph: each is named, vetoed, logged, timed, checked and found to be guilty."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.fx import GraphModule

from ctk.compiler.codegen import CODEGENS
from ctk.compiler.codegen.base import as_boxed
from ctk.compiler.codegen.kernels import Codegen, KernelContext
from ctk.compiler.codegen.select import generate
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.observe import KernelId
from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.compile_log.recorder import EVERY_KERNEL, Recorder, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check_case
from tests.helpers.codegen_graphs import functional
from tests.helpers.per_node_codegen import compile_per_node, per_node

aten = torch.ops.aten
X = torch.linspace(0.1, 2.0, 8)
PROGRAM = """
import torch


def model():
    return lambda x, y: (x.sin() + y).tanh() * (x * y).exp()


def inputs():
    x = torch.linspace(0.1, 2.0, 8)
    return (x.requires_grad_(), torch.linspace(-1.0, 1.0, 8))
"""
CONFIG = {"codegen": "per_node", "fallback": ()}


@pytest.fixture
def use(monkeypatch):
    """Put generators into the table, in front of ours."""

    def use(*codegens: Codegen) -> None:
        table = (*codegens, *CODEGENS)
        monkeypatch.setattr("ctk.compiler.codegen.select.CODEGENS", table)

    return use


def graph() -> GraphModule:
    return functional(lambda x, y: ((x.sin() + y).tanh(), x.shape[0]), X, X)


def compiled(gm: GraphModule, observer=None, **changes):
    config = Config(codegen="per_node", fallback=()).patch(changes)
    return generate(gm, [X, X], "forward", Numbering(observer, config))


def case(tmp_path, *, backward: bool = False, text: str = PROGRAM) -> Case:
    path = tmp_path / "program.py"
    path.write_text(text)
    (made,) = capture_cases(load_program(str(path)), backward=backward)
    return dataclasses.replace(made, config=CONFIG)


def test_each_kernel_is_logged_with_id_nodes_source_and_seconds(use) -> None:
    use(per_node())
    recorder = Recorder()
    run = compiled(graph(), recorder)
    torch.testing.assert_close(run([X, X])[0], (X.sin() + X).tanh())
    records = recorder.log.kernels()
    assert [str(record.id) for record in records] == [
        "lowered/per_node:forward.sin",
        "lowered/per_node:forward.add",
        "lowered/per_node:forward.tanh",
    ]
    assert [record.nodes for record in records] == [("sin",), ("add",), ("tanh",)]
    assert "torch.ops.aten.tanh.default" in records[2].source
    assert all(record.seconds > 0 and record.suffix == ".txt" for record in records)


def test_a_vetoed_kernel_runs_in_eager_and_the_others_do_not(use) -> None:
    use(per_node({aten.sin.default: aten.cos.default, aten.tanh.default: aten.exp.default}))
    recorder = Recorder(Veto(kernels=frozenset({"lowered/per_node:forward.sin"})))
    (result, _) = compiled(graph(), recorder)([X, X])
    torch.testing.assert_close(result, (X.sin() + X).exp())
    assert [record.vetoed for record in recorder.log.kernels()] == [True, False, False]


def test_a_call_names_its_kernels_and_keeps_what_each_returned(use) -> None:
    use(per_node())
    recorder = Recorder(keep_calls=True)
    run = compiled(graph(), recorder)
    run([X, X])
    run([X, X])
    (call,) = recorder.log.calls()
    assert [kernel.id.name for kernel in call.kernels] == [
        "forward.sin",
        "forward.add",
        "forward.tanh",
    ]
    torch.testing.assert_close(call.kernels[1].values["add"], X.sin() + X)


def on_a_thread(wrong, gm, inputs, context):
    """Compile node by node; run the kernels on another thread, as a pool of workers does."""
    compiled = compile_per_node(wrong, gm, inputs, context)
    pool = ThreadPoolExecutor(1)
    return as_boxed(lambda args: pool.submit(compiled, args).result(), compiled.ctk_source)


def test_kernels_on_other_threads_tell_their_values_too(use) -> None:
    use(Codegen("per_node", partial(on_a_thread, {})))
    recorder = Recorder(keep_calls=True)
    compiled(graph(), recorder)([X, X])
    (call,) = recorder.log.calls()
    torch.testing.assert_close(call.kernels[1].values["add"], X.sin() + X)


def test_calls_at_the_same_time_tell_no_values_that_may_be_of_the_other(use) -> None:
    inner = []

    def compile_graph(gm, inputs, context):
        compiled = compile_per_node({}, gm, inputs, context)

        def run(args):
            if len(inner) == 1:
                inner.append(None)
                inner[0]([2 * X, X])  # as another thread does in the middle of this call
            return compiled(args)

        return as_boxed(run, compiled.ctk_source)

    use(Codegen("per_node", compile_graph))
    recorder = Recorder(keep_calls=True)
    inner.append(compiled(graph(), recorder))
    inner[0]([X, X])
    (call,) = recorder.log.calls()
    assert len(call.kernels) == 3
    assert not any(kernel.values for kernel in call.kernels)


def test_kernels_of_one_name_are_numbered(use) -> None:
    seen = []

    def compile_graph(gm, inputs, context: KernelContext):
        seen.extend(context.kernel("loop").id for _ in range(2))
        return compile_per_node({}, gm, inputs, context)

    use(Codegen("per_node", compile_graph))
    compiled(graph())
    assert seen == [KernelId("per_node", "forward.loop"), KernelId("per_node", "forward.loop", 1)]
    assert str(seen[1]) == "lowered/per_node:forward.loop#2"


def test_without_an_observer_a_kernel_is_the_generators_own(use) -> None:
    context = KernelContext(per_node(), "forward", Numbering())

    def run(x):
        return (x,)

    def forbidden():
        raise AssertionError("nobody asked for the source")

    kernel = context.kernel("a", ("a",))
    assert kernel.made(run, source=forbidden, results=("a",)) is run


def test_kernels_of_a_generator_that_refuses_in_the_end_are_forgotten(use) -> None:
    def refuse(gm, inputs, context):
        compile_per_node({}, gm, inputs, context)
        raise CodegenUnsupported("not this one")

    use(Codegen("refusing", refuse), per_node())
    recorder = Recorder()
    compiled(graph(), recorder, codegen="refusing", fallback=("per_node",))
    records = recorder.log.kernels()
    assert {record.id.codegen for record in records} == {"per_node"}
    assert {record.reason for record in records} == {"refusing refuses it: not this one"}


def test_a_failure_names_the_kernel_that_was_being_made(use) -> None:
    def fail(gm, inputs, context):
        context.kernel("first", ("sin",)).made(torch.sin, results=("sin",))
        context.kernel("second", ("add",))
        raise ArithmeticError("a bug")

    use(Codegen("per_node", fail))
    recorder = Recorder()
    with pytest.raises(ArithmeticError) as caught:
        compiled(graph(), recorder)
    assert caught.value.ctk_where == "lowered/per_node:forward.second"
    (error,) = recorder.log.errors()
    assert str(error.kernel) == "lowered/per_node:forward.second"
    assert error.node == "add"


def test_a_kernel_that_raises_when_called_is_named_with_its_node(use, tmp_path) -> None:
    def raising(*args):
        raise ArithmeticError("a bug")

    use(per_node({aten.tanh.default: raising}))
    search = find_culprit(case(tmp_path))
    assert search.confirmed and search.found_by == "error"
    assert search.culprit.where == "lowered/per_node:forward.tanh"
    assert search.culprit.nodes == ("tanh",)
    assert search.judgement.signature.where == "lowered/per_node:forward.tanh"


@pytest.mark.parametrize(
    ("operator", "instead", "stage"),
    [
        (aten.exp.default, aten.sigmoid.default, "forward"),
        (aten.cos.default, aten.sin.default, "backward"),
    ],
)
def test_a_wrong_kernel_is_named_by_check_alone_among_many(
    use, tmp_path, operator, instead, stage
) -> None:
    use(per_node({operator: instead}))
    report = check_case(case(tmp_path, backward=stage == "backward"))
    (wrong,) = report.wrong
    name = operator.overloadpacket.__name__
    assert (wrong.where, wrong.node) == (f"lowered/per_node:{stage}.{name}", name)
    (explained,) = [finding for finding in report.findings if finding.status == "unknown"]
    assert explained.where == f"lowered/per_node:{stage}"
    assert explained.reason == f"its kernel {wrong.where} is wrong"
    compared = {finding.where for finding in report.findings if finding.step.kind == "kernel"}
    assert len(compared) > 6


def test_a_wrong_kernel_is_found_confirmed_and_traced_to_its_node(use, tmp_path) -> None:
    use(per_node({aten.exp.default: aten.sigmoid.default}))
    search = find_culprit(case(tmp_path))
    assert search.judgement.verdict is Verdict.REPRODUCES
    assert search.confirmed and search.found_by == "check"
    culprit = search.culprit
    assert (culprit.where, culprit.nodes) == ("lowered/per_node:forward.exp", ("exp",))
    assert culprit.captured == ("exp",)
    assert culprit.veto == Veto(kernels=frozenset({"lowered/per_node:forward.exp"}))
    assert search.compiles == 3  # one asks whether other passes are needed for it


def test_a_wrong_kernel_of_several_results_is_found_by_their_elements(use, tmp_path) -> None:
    use(per_node({aten.topk.default: lambda x, k: [each * 2 for each in aten.topk(x, k)]}))
    text = PROGRAM.replace("(x.sin() + y).tanh() * (x * y).exp()", "(x * y).topk(3)[0].sin()")
    search = find_culprit(case(tmp_path, text=text))
    assert (search.confirmed, search.found_by, search.compiles) == (True, "check", 3)
    assert search.culprit.where == "lowered/per_node:forward.topk"
    assert search.culprit.captured == ("topk",)


def test_a_kernel_that_is_wrong_in_both_graphs_is_named_in_both(use, tmp_path) -> None:
    """The partitioner computes tanh again in the backward graph: no single veto is enough."""
    use(per_node({aten.tanh.default: aten.sigmoid.default}))
    search = find_culprit(case(tmp_path, backward=True))
    assert search.confirmed
    assert search.culprit.where == "lowered/per_node:forward.tanh"
    assert [other.where for other in search.also] == ["lowered/per_node:backward.tanh"]
    assert search.also[0].nodes == ("tanh",)


def test_the_partition_is_not_blamed_for_what_a_wrong_kernel_saved(use, tmp_path) -> None:
    """The compiled backward graph starts from the results of the forward kernels."""
    use(per_node({aten.exp.default: aten.sigmoid.default}))
    report = check_case(case(tmp_path, backward=True))
    where = [wrong.where for wrong in report.wrong]
    assert where == ["lowered/per_node:forward.exp", "lowered/per_node:backward.exp"]
    partition = [f for f in report.findings if f.where == "joint/partition"]
    assert [finding.status for finding in partition] == ["ok", "ok"]


def test_what_is_wrong_between_the_kernels_is_blamed_on_the_graph(use, tmp_path) -> None:
    def swapped(gm, inputs, context):
        run = compile_per_node({}, gm, inputs, context)

        def wrong(args):
            first, *others = run(args)
            return (first + 1, *others)

        wrong.ctk_source = run.ctk_source
        wrong._boxed_call = True
        return wrong

    use(Codegen("per_node", swapped))
    (wrong, *_) = check_case(case(tmp_path)).wrong
    assert wrong.where == "lowered/per_node:forward"
    assert wrong.step.inputs is None


def test_kernels_are_found_by_halves_when_their_values_do_not_show(use, tmp_path) -> None:
    """The generator does not tell values, so only vetoes find the guilty kernel."""

    class Silent(KernelContext):
        def kernel(self, name="", nodes=()):
            made = super().kernel(name, nodes)
            made._observer = None
            return made

    def silent(gm, inputs, context):
        quiet = Silent(per_node(), context.stage, context.numbering)
        run = compile_per_node({aten.tanh.default: aten.sigmoid.default}, gm, inputs, quiet)
        context.kernels.extend(quiet.kernels)
        return run

    use(Codegen("per_node", silent))
    search = find_culprit(case(tmp_path))
    assert search.confirmed
    assert search.culprit.where == "lowered/per_node:forward.tanh"
    assert search.culprit.nodes == ("tanh",)
    assert search.culprit.evidence
    assert search.compiles == 6  # observed, all, two halves, tanh alone, without other passes


def test_every_kernel_in_eager_is_eager(use) -> None:
    use(per_node({aten.tanh.default: aten.sigmoid.default}))
    recorder = Recorder(Veto(kernels=frozenset({EVERY_KERNEL})))
    gm = torch.fx.symbolic_trace(lambda x: x.tanh() + 1)
    run = compile_fx(gm, [X], CONFIG, recorder)
    torch.testing.assert_close(run(X), X.tanh() + 1)
    assert all(record.vetoed for record in recorder.log.kernels())
