"""The trace of a compile: its steps and graphs, its limits, and the reader of a hostile one."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ctk
from ctk.compiler.errors import CaseError
from ctk.compiler.observe import KernelId, KernelRecord, StageRecord
from ctk.toolkit.case.graphs.places import shorten_path
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.trace import reading, writing
from ctk.toolkit.compile_log.trace.document import (
    FILE,
    Trace,
    TraceEdit,
    TraceGraph,
    TraceNode,
    TraceRewrite,
    TraceStep,
)
from ctk.toolkit.compile_log.trace.graph_table import GraphTable
from ctk.toolkit.compile_log.trace.reading import read_trace
from ctk.toolkit.compile_log.trace.writing import make_trace, write_trace
from ctk.toolkit.operations.check import GraphCheck
from tests.helpers.case_folders import linear_case

PROGRAM = textwrap.dedent("""
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x).relu() * 2.0

    def model():
        return torch.nn.Sequential(Block(), Block())

    def inputs():
        return (torch.linspace(-1, 1, 32).reshape(4, 8),)

    def drop_relu(graph: torch.fx.Graph):
        for node in list(graph.nodes):
            if node.target is torch.ops.aten.relu.default:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)

    def config():
        return {"custom_passes": {"joint": [__file__ + ":drop_relu"]}}
    """)
RELU_LINE = 10


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> GraphCheck:
    path = tmp_path_factory.mktemp("program") / "blocks.py"
    path.write_text(PROGRAM)
    (graph,) = ctk.check(path).graphs
    return graph


@pytest.fixture(scope="module")
def trace(checked: GraphCheck) -> Trace:
    return checked.make_trace()


class TestSteps:
    def test_the_wrong_step_has_its_rewrites_node_and_errors(self, trace: Trace) -> None:
        (wrong,) = [step for step in trace.steps if step.status == "wrong" and step.kind == "pass"]
        assert wrong.id == "joint/drop_relu"
        assert wrong.mismatch.startswith("accuracy: ")
        assert [rewrite.index for rewrite in wrong.rewrites] == [1, 2]
        assert wrong.errors
        assert wrong.errors[0].after.ulp is not None
        assert wrong.errors[0].after.ulp > 1e6

    def test_the_steps_are_those_of_the_check_in_order(
        self, trace: Trace, checked: GraphCheck
    ) -> None:
        checked_steps = [step.id for step in trace.steps if step.status]
        assert checked_steps == [finding.where for finding in checked.findings]
        stages = [step.id for step in trace.steps if step.kind == "stage"]
        assert stages == ["captured", "pre_grad", "joint", "forward", "lowered"]

    def test_idle_passes_have_one_graph(self, trace: Trace) -> None:
        idle = next(step for step in trace.steps if step.id == "joint/fold_constants")
        assert idle.before == idle.after
        assert idle.seconds is not None

    def test_kernels_have_source_loops_and_nodes(self, trace: Trace) -> None:
        kernels = [step.kernel for step in trace.steps if step.kernel is not None]
        assert kernels
        for kernel in kernels:
            assert kernel.source
            assert kernel.ir
            assert kernel.suffix == ".c"

    def test_each_graph_is_rebuilt(self, trace: Trace, checked: GraphCheck) -> None:
        records = {str(record.id): record for record in checked.log.passes()}
        for step in trace.steps:
            if step.kind == "pass" and step.before is not None and step.after is not None:
                record = records[step.id]
                for index, graph in ((step.before, record.before), (step.after, record.after)):
                    names = [node.name for node in graph.graph.nodes]
                    assert [node.name for node in trace.nodes_of(index)] == names

    def test_a_changed_graph_costs_its_changes(self, trace: Trace) -> None:
        wrong = next(step for step in trace.steps if step.id == "joint/drop_relu")
        assert wrong.after is not None
        stored = trace.graphs[wrong.after]
        assert stored.base is not None
        assert sum(len(each.nodes) for each in stored.edits) <= 6

    def test_nodes_have_places_and_modules(self, trace: Trace) -> None:
        wrong = next(step for step in trace.steps if step.id == "joint/drop_relu")
        assert wrong.before is not None
        relu = [node for node in trace.nodes_of(wrong.before) if "aten.relu" in node.text]
        assert [node.module for node in relu] == ["0", "1"]
        assert all(node.place.endswith(f"blocks.py:{RELU_LINE}") for node in relu)
        assert relu[0].value == "float32[4, 8]"
        assert relu[0].inputs


def test_a_compile_error_is_the_wrong_step(tmp_path: Path) -> None:
    raising = PROGRAM.replace("for node in", "raise ValueError('no')\n    for node in", 1)
    path = tmp_path / "raising.py"
    path.write_text(raising)
    (graph,) = ctk.check(path).graphs
    (wrong,) = [step for step in graph.make_trace().steps if step.status == "wrong"]
    assert (wrong.id, wrong.mismatch) == ("joint/drop_relu", "ValueError: no")


@pytest.mark.parametrize("target", ["aot_eager", "torchscript", "inductor"])
def test_other_targets(target: str, tmp_path: Path) -> None:
    path = tmp_path / "blocks.py"
    path.write_text(PROGRAM.partition("def config")[0])
    (graph,) = ctk.check(path, target=target).graphs
    trace = graph.make_trace()
    last = trace.steps[-1]
    assert (last.id, last.status) == (f"lowered/{target}:forward", "ok")
    assert trace == read_trace(write_trace(trace, tmp_path).parent)


def test_a_log_of_nothing_but_the_captured_graph() -> None:
    case = linear_case()
    trace = make_trace(case, CompileLog([StageRecord("captured", case.graph)]), end=0.0)
    assert [step.id for step in trace.steps] == ["captured"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("L['self'].layers.0.norm1", "layers.0.norm1"),
        ("L['self']", ""),
        ("L['fn'].0", "0"),
        ("L['model'].layers[0]", "model.layers.0"),
        ("L['self'].heads['a b']", "heads['a b']"),
        ("layers.0", "layers.0"),
    ],
)
def test_paths_of_modules(path: str, name: str) -> None:
    assert shorten_path(path) == name


class TestLimits:
    def test_wrong_steps_keep_their_graphs(
        self, trace: Trace, checked: GraphCheck, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = next(step for step in trace.steps if step.id == "joint/drop_relu")
        assert known.before is not None
        monkeypatch.setattr(writing, "MOST_NODES", len(trace.nodes_of(known.before)) + 6)
        trace = checked.make_trace()
        wrong = next(step for step in trace.steps if step.id == "joint/drop_relu")
        assert None not in (wrong.before, wrong.after)
        assert trace.steps[0].before is None
        assert [text for text in trace.cut if "left out: more than" in text]

    def test_steps(self, checked: GraphCheck, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "MOST_STEPS", 3)
        trace = checked.make_trace()
        assert len(trace.steps) == 3
        assert "joint/drop_relu" in [step.id for step in trace.steps]
        assert "steps are left out" in trace.cut[0]

    def test_sources(self, checked: GraphCheck, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "MOST_SOURCE", 10)
        trace = checked.make_trace()
        assert not [step for step in trace.steps if step.kernel and step.kernel.source]
        assert "sources of kernels left out" in trace.cut[-1]

    def test_the_errors_of_the_wrong_step_are_measured_first(self, checked: GraphCheck) -> None:
        trace = make_trace(checked.case, checked.log, checked.findings, end=0.0)
        measured = [step.id for step in trace.steps if step.errors is not None]
        assert measured == ["joint/drop_relu"]
        assert "were not measured" in trace.cut[0]

    def test_values_of_one_step(self, checked: GraphCheck, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writing, "MOST_ERRORS", 1)
        trace = checked.make_trace()
        assert {len(step.errors) for step in trace.steps if step.errors} == {1}
        assert "errors left out" in "".join(trace.cut)

    def test_a_written_trace_can_be_read(self, tmp_path: Path) -> None:
        nodes = tuple(TraceNode(f"n{at}", "call_function", f"n{at}") for at in range(1000))
        large = TraceStep("joint/x", "pass", "joint", status="wrong", rewrites=_rewrites(400_000))
        trace = Trace("c", "ctk", (large,), (TraceGraph(None, (TraceEdit(0, 0, nodes),)),))
        write_trace(trace, tmp_path)
        (step,) = read_trace(tmp_path).steps
        assert (step.id, step.status, step.rewrites) == ("joint/x", "wrong", ())
        assert "more than 32 MiB" in read_trace(tmp_path).cut[0]


def _rewrites(count: int) -> tuple[TraceRewrite, ...]:
    return tuple(TraceRewrite(at, at, "mul, add -> add", ("mul", "add")) for at in range(count))


def test_graphs_that_are_large_when_rebuilt_are_left_out() -> None:
    table = GraphTable(room=1000, rebuilt_room=25)
    small, large = (captured(count) for count in (10, 20))
    assert [table.add(small), table.add(large), table.add(small)] == [0, None, 0]
    assert table.left_out == 1


def captured(count: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    last = graph.placeholder("x")
    for _ in range(count):
        last = graph.call_function(torch.neg, (last,))
    graph.output(last)
    return torch.fx.GraphModule({}, graph)


def test_a_kernel_that_did_not_run_is_a_step() -> None:
    case = linear_case()
    kernel = KernelRecord(KernelId("c", "forward"), case.graph, source="int a;\n", suffix=".c")
    trace = make_trace(case, CompileLog([kernel]))
    (step,) = trace.steps
    assert (step.id, step.status, step.kernel and step.kernel.source) == (
        "lowered/c:forward", "", "int a;\n",
    )  # fmt: skip


def test_equal_graphs_are_stored_once() -> None:
    table = GraphTable(1000)
    graph = linear_case().graph
    copy = torch.fx.GraphModule(graph, graph.graph)
    assert [table.add(graph), table.add(copy), table.add(None)] == [0, 0, None]
    assert len(table.graphs) == 1


def test_secrets_are_removed(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-very-secret-value")
    step = replace(trace.steps[0], reason="reads a-very-secret-value")
    write_trace(replace(trace, steps=(step, *trace.steps[1:])), tmp_path)
    assert "a-very-secret-value" not in (tmp_path / FILE).read_text()
    assert read_trace(tmp_path).steps[0].reason == "reads [secret]"


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["graphs"][0].update(base=0), "$.graphs[0].base: 0 is not an earlier graph"),
        (lambda d: d["graphs"][1].update(base=7), "$.graphs[1].base: 7 is not an earlier graph"),
        (lambda d: d["graphs"][1].update(base=-1), "$.graphs[1].base: expected greater than"),
        (lambda d: d["graphs"][0]["edits"][0].update(removed=5), "it replaces the nodes 0 to 5"),
        (lambda d: d["graphs"][0]["edits"].insert(0, {"at": 1, "removed": 0, "nodes": []}), "of 0"),
        (lambda d: d["steps"][0].update(before=99), "$.steps[0].before: there is no graph 99"),
        (lambda d: d["steps"][0].update(status="fine"), "found 'fine'"),
        (lambda d: d["steps"][0].update(seconds="1"), "$.steps[0].seconds"),
        (lambda d: d.update(more=1), "unknown key 'more'"),
        (lambda d: d.update(schema=2), "written by a newer ctk"),
        (
            lambda d: d["steps"][0]["kernel"].update(wrong_lines=[0]),
            "kernel.wrong_lines: the source has",
        ),
    ],
)
def test_a_wrong_document_is_refused(
    change: Change, said: str, trace: Trace, tmp_path: Path
) -> None:
    data = json.loads(write_trace(trace, tmp_path).read_text())
    data["steps"].sort(key=lambda step: step["kernel"] is None)
    change(data)
    (tmp_path / FILE).write_text(json.dumps(data))
    with pytest.raises(CaseError, match=FILE) as refused:
        read_trace(tmp_path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_graphs_that_grow_with_each_edit_are_refused(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TRACE_NODES", 10)
    write_trace(trace, tmp_path)
    with pytest.raises(CaseError, match="nodes of all graphs"):
        read_trace(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', "\x00" * 99])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CaseError, match="run the operation that made the folder again"):
        read_trace(tmp_path)
