"""The index of a dump folder: frames of Dynamo, costs by pass, kernel and module, damage."""

import json
from pathlib import Path

import pytest
import torch

import ctk
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.case.formats.scrub import scrub, scrub_line
from ctk.toolkit.watch import frame_log
from ctk.toolkit.watch.dump_index import DumpIndex, read_dump_index
from ctk.toolkit.watch.frame_log import FRAMES
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write

PROGRAM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.linear(x).sin()
        print("between")
        if y.sum() > 100:
            y = y + 1
        return y * 2

model = torch.compile(Model(), backend="ctk")
with torch.no_grad():
    for size in (2, 4):
        model(torch.ones(size, 3))
"""
PRINT_LINE, BRANCH_LINE = 11, 12


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> DumpIndex:
    folder = tmp_path_factory.mktemp("program")
    path = write(folder, "model.py", PROGRAM)
    said = command("run", "--out", folder / "dumps", path)
    assert said.code == 0, said.out + said.err
    return read_dump_index(folder / "dumps")


@pytest.mark.slow
class TestProgram:
    def test_graphs_have_seconds(self, index: DumpIndex) -> None:
        assert index.cut == ()
        first = index.graphs[0]
        assert first.case.target == "ctk"
        assert 0 < first.seconds < index.seconds

    def test_breaks_have_line_and_reason(self, index: DumpIndex) -> None:
        by_line = {found.place.rpartition(":")[2]: found for found in index.breaks}
        assert set(by_line) == {str(PRINT_LINE), str(BRANCH_LINE)}
        printed = by_line[str(PRINT_LINE)]
        assert "print" in printed.reason
        assert printed.count == 2
        assert by_line[str(BRANCH_LINE)].reason == ""

    def test_recompiles_have_the_failed_guard(self, index: DumpIndex) -> None:
        whole = next(found for found in index.recompiles if "model.py:9" in found.place)
        assert (whole.function, whole.count) == ("forward", 1)
        assert whole.guards[0][0] == "tensor 'x' size mismatch at index 0. expected 2, actual 4"

    def test_costs(self, index: DumpIndex) -> None:
        modules = {spent.name: spent for spent in index.by_module}
        assert modules["linear"].count == 2  # one call in each of two graphs
        assert any(spent.name == "joint/fold_constants" for spent in index.by_pass)
        assert index.by_kernel[0].seconds >= index.by_kernel[-1].seconds


def frame(**changes: object) -> str:
    known = {
        "compile": "0/0", "function": "f", "place": "a.py:1", "resumed": False, "seconds": 1.0,
        "breaks": [], "guard": "", "event": "frame",
    }  # fmt: skip
    return json.dumps(known | changes)


def graph_of(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "events.jsonl").write_text("")


def test_a_break_without_a_rest_has_the_place_of_its_function(tmp_path: Path) -> None:
    graph_of(tmp_path, "graph0")
    (tmp_path / FRAMES).write_text(frame(breaks=["a call"]))
    (found,) = read_dump_index(tmp_path).breaks
    assert (found.place, found.reason, found.count) == ("a.py:1", "a call", 1)


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    graph_of(tmp_path, "graph0")
    (tmp_path / "graph0" / "events.jsonl").unlink()
    (tmp_path / "graph0" / "events.jsonl").symlink_to("/etc/passwd")
    (tmp_path / FRAMES).write_text('{"event": "frame"}\n' + frame()[:20])
    found = read_dump_index(tmp_path)
    assert len(found.graphs) == 1
    assert all("events.jsonl of graph0 is not read" in text for text in found.cut)
    assert found.cut
    assert found.breaks == ()


def test_a_limit_of_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_log, "MOST_FRAMES", 1)
    backend = ctk.debug_compile("aot_eager", dump=tmp_path)
    compiled = torch.compile(torch.sin, backend=backend, dynamic=False)
    for size in (2, 3, 4):
        compiled(torch.ones(size))
    (path,) = tmp_path.glob(f"*/{FRAMES}")
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["frame"]


def test_a_message_is_scrubbed_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half of a cut path does not look like one of the home folder."""
    monkeypatch.setenv("HOME", "/homes/mallory")
    text = f"no file {'x' * 200}, /homes/mallory/{'y' * 138}"
    assert "mallory" in scrub(one_line(text, REASON_LENGTH))
    assert "mallory" not in scrub_line(text, REASON_LENGTH)
