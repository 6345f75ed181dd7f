"""What a dump writes, event by event; what happens when it cannot; and the quota."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.fx.types import type_text
from ctk.compiler.observe import (
    CallRecord,
    ErrorRecord,
    KernelCall,
    KernelId,
    KernelRecord,
    PassId,
    PassRecord,
    RewriteId,
    RewriteRecord,
    StageRecord,
)
from ctk.toolkit.case.formats.files import free_path
from ctk.toolkit.case.graphs.graph_lines import (
    graph_diff,
    graph_lines,
    node_line,
    target_name,
)
from ctk.toolkit.watch.dump import DumpWriter, file_stem, run_guarded, write_text
from ctk.toolkit.watch.quota import MARKER, list_dumps, prune, write_marker


def graph(extra: bool = False) -> GraphModule:
    new = Graph()
    x = new.placeholder("x")
    x.meta["val"] = torch.empty(2, 3)
    y = new.call_function(torch.ops.aten.relu.default, (x,))
    y.meta["val"] = torch.empty(2, 3, dtype=torch.bfloat16)
    if extra:
        y = new.call_method("view", (y, [6]), {"other": 1})
    new.output((y,))
    return GraphModule({}, new)


def nested() -> GraphModule:
    outer = Graph()
    x = outer.placeholder("x")
    branch = outer.get_attr("branch")
    outer.output(outer.call_function(torch.ops.higher_order.cond, (True, branch, branch, (x,))))
    return GraphModule({"branch": graph()}, outer)


def pass_record(name: str, before: GraphModule, after: GraphModule, index: int = 1) -> PassRecord:
    pass_id = PassId("joint", name)
    rewrite = RewriteRecord(RewriteId(7, pass_id, index, "relu"), ("relu_default",))
    return PassRecord(pass_id, "exact", before, after, (rewrite,), seconds=0.25)


# --- text ---------------------------------------------------------------------------------------


def test_one_line_per_node():
    assert graph_lines(graph(extra=True)) == [
        "x: float32[2, 3] = input",
        "relu_default: bfloat16[2, 3] = aten.relu.default(x)",
        "view = .view(relu_default, [6], other=1)",
        "return (view,)",
    ]


def test_sub_graphs_follow():
    lines = graph_lines(nested())
    assert lines[1] == "branch = self.branch"
    assert lines[4:6] == ["sub-graph branch:", "    x: float32[2, 3] = input"]


def test_a_difference_shows_what_changed_only():
    before, after = graph(), graph(extra=True)
    assert graph_diff(before, before) == ""
    changed = [line for line in graph_diff(before, after).splitlines() if line[0] in "+-"]
    assert changed == [
        "--- before",
        "+++ after",
        "-return (relu_default,)",
        "+view = .view(relu_default, [6], other=1)",
        "+return (view,)",
    ]


def test_names_of_targets_and_values():
    new = Graph()
    call = new.call_function(torch.nn.functional.relu, ())
    assert target_name(call) == "torch.nn.functional.relu"
    assert target_name(new.call_module("a.b", ())) == "self.a.b"
    assert node_line(new.call_function(max, (1, 2))) == "max_1 = builtins.max(1, 2)"
    assert type_text((torch.empty(2, dtype=torch.int64), None)) == "(int64[2], NoneType)"
    assert type_text(torch.empty(1, dtype=torch.float8_e5m2)) == "float8_e5m2[1]"


def test_the_home_folder_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/someone")
    write_text(tmp_path / "a.txt", 'File "/home/someone/x.py", line 1')
    assert (tmp_path / "a.txt").read_text() == 'File "~/x.py", line 1'


def test_file_names(tmp_path: Path):
    assert file_stem("joint/fold constants#2") == "joint-fold-constants-2"
    assert file_stem("../..") == "unnamed"
    assert len(file_stem("x" * 200)) == 80
    (tmp_path / "a.py").touch()
    (tmp_path / "a_2.py").touch()
    assert free_path(tmp_path / "a.py") == tmp_path / "a_3.py"


# --- folders ------------------------------------------------------------------------------------


def test_what_is_written(tmp_path: Path):
    writer = DumpWriter(tmp_path / "graph0")
    before, after = graph(), graph(extra=True)
    kernel = KernelId("torchscript", "forward")
    error = ErrorRecord(ValueError("boom"), "joint", PassId("joint", "bad"), node="relu_default")
    for event in (
        StageRecord("captured", before),
        StageRecord("joint", before),
        pass_record("idle", before, before),
        pass_record("busy", before, after),
        pass_record("busy again", after, before),
        KernelRecord(kernel, after, source="def forward(): pass"),
        KernelRecord(kernel, after, source="def forward(): pass"),
        KernelRecord(KernelId("c", "forward"), after, source="int main() {}", suffix=".c"),
        KernelRecord(KernelId("eager", "forward"), after, reason="no c compiler"),
        KernelRecord(KernelId("c", "forward.relu"), after, ("relu_default",), "int f;", ".c"),
        CallRecord("forward", after, (), (), (), (KernelCall(KernelId("c", "forward.relu")),)),
        error,
    ):
        writer.write(event)
    files = {str(p.relative_to(tmp_path / "graph0")) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {
        "stages/00_captured.py",
        "stages/01_joint.py",
        "passes/001_joint_busy.diff",
        "passes/001_joint_busy.py",
        "passes/002_joint_busy-again.diff",
        "passes/002_joint_busy-again.py",
        "kernels/forward_torchscript.py",
        "kernels/forward_torchscript_2.py",
        "kernels/forward_c.c",
        "kernels/forward.relu_c.c",
        "events.jsonl",
        "errors.txt",
    }
    diff = (tmp_path / "graph0/passes/001_joint_busy.diff").read_text()
    assert diff.startswith("# pass joint/busy, numerics: exact, nodes: 3 -> 4\n# rewrite 7")
    assert "+view = .view(relu_default, [6], other=1)" in diff
    assert "aten.relu" in (tmp_path / "graph0/stages/00_captured.py").read_text()
    errors = (tmp_path / "graph0/errors.txt").read_text()
    assert "where: joint, joint/bad, relu_default" in errors and "ValueError: boom" in errors
    events = [
        json.loads(line) for line in (tmp_path / "graph0/events.jsonl").read_text().splitlines()
    ]
    assert [event["event"] for event in events] == [
        *("stage", "stage", "pass", "pass", "pass", "kernel", "kernel", "kernel", "kernel"),
        *("kernel", "call", "error"),
    ]
    assert events[9]["kernel"] == "lowered/c:forward.relu"
    assert events[9]["nodes"] == ["relu_default"]
    assert events[10]["kernels"] == ["lowered/c:forward.relu"]
    assert events[2] == {
        "event": "pass",
        "pass": "joint/idle",
        "number": 0,
        "changed": False,
        "vetoed": False,
        "rewrites": 1,
        "vetoed_rewrites": 0,
        "seconds": 0.25,
    }


def test_a_graph_that_changed_between_passes_is_written_too(tmp_path: Path):
    writer = DumpWriter(tmp_path)
    writer.write(StageRecord("joint", graph()))
    writer.write(pass_record("first", graph(), graph(extra=True)))
    assert (tmp_path / "passes/000_joint_first.before.py").exists()


def test_a_crash_leaves_what_was_written_until_then(tmp_path: Path):
    code = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
from test_dump import DumpWriter, Path, StageRecord, graph
DumpWriter(Path({str(tmp_path)!r})).write(StageRecord("captured", graph()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert "relu" in (tmp_path / "stages/00_captured.py").read_text()


def test_a_problem_of_the_dump_is_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "graph0"
    file.write_text("in the way")
    writer = DumpWriter(file)
    with caplog.at_level(logging.WARNING, logger="ctk.toolkit"):
        writer.write(StageRecord("captured", graph()))
        writer.write(StageRecord("joint", graph()))
    (record,) = caplog.records
    assert f"the dump to {file} stopped: StorageError" in record.getMessage()


def test_a_graph_that_cannot_be_printed_is_written_as_lines(tmp_path: Path):
    broken = graph()
    broken.print_readable = lambda print_output: 1 / 0
    DumpWriter(tmp_path).write(StageRecord("captured", broken))
    text = (tmp_path / "stages/00_captured.py").read_text()
    assert text.startswith("# not printable as Python: ZeroDivisionError")
    assert "# relu_default: bfloat16[2, 3] = aten.relu.default(x)" in text


def test_guarded_tells_whether_it_worked(caplog: pytest.LogCaptureFixture):
    assert run_guarded(lambda: None, "nothing")
    assert not run_guarded(lambda: 1 / 0, "a division")
    assert "a division stopped: ZeroDivisionError" in caplog.text
    with pytest.raises(KeyboardInterrupt):
        run_guarded(interrupt, "interrupts are the user's")


def interrupt() -> None:
    raise KeyboardInterrupt


def test_writing_leaves_no_temporary_file(tmp_path: Path):
    write_text(tmp_path / "a" / "b.txt", "x")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]


# --- quota --------------------------------------------------------------------------------------


def dump_of(root: Path, name: str, nbytes: int, *, started: float, pid: int = 0) -> Path:
    folder = root / name
    folder.mkdir()
    write_marker(folder)
    content = json.loads((folder / MARKER).read_text()) | {"started": started, "pid": pid}
    (folder / MARKER).write_text(json.dumps(content))
    (folder / "data").write_bytes(b"x" * nbytes)
    return folder


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_oldest_make_room(tmp_path: Path):
    gone = ended_pid()
    newest = dump_of(tmp_path, "c", 5000, started=3, pid=gone)
    oldest = dump_of(tmp_path, "a", 5000, started=1, pid=gone)
    middle = dump_of(tmp_path, "b", 5000, started=2, pid=gone)
    assert list_dumps(tmp_path) == [oldest, middle, newest]
    removed, excess = prune(tmp_path, 12_000, keep=newest)
    assert [*removed] == [oldest] and excess == 0
    assert removed[oldest] > 5000
    removed, excess = prune(tmp_path, 100, keep=newest)
    assert [*removed] == [middle] and excess > 4900
    assert newest.exists()


def test_nothing_of_others_is_removed(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "data").write_bytes(b"x" * 5000)
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    elsewhere = dump_of(outside, "dump", 5000, started=1, pid=ended_pid())
    (root / "link").symlink_to(elsewhere)
    assert prune(root, 1, keep=root / "mine") == ({}, 0)
    assert prune(tmp_path, 1, keep=root) == ({}, 0)
    assert (elsewhere / "data").exists() and (tmp_path / "notes" / "data").exists()


def test_a_dump_in_use_is_kept(tmp_path: Path):
    dump_of(tmp_path, "running", 5000, started=1, pid=os.getpid())
    removed, excess = prune(tmp_path, 1, keep=tmp_path / "other")
    assert removed == {} and excess > 5000
