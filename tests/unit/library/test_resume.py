"""A killed operation: what is on disk, and that going on asks nothing again."""

import importlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ctk
from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.growing_file import reopen
from ctk.toolkit.oracle.answers.journal import JOURNAL, has_line
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.reduce.size import call_nodes
from tests.helpers.cli import ctk as command
from tests.helpers.killed_runs import Runs, was_killed

SMALLEST = {"minify": "case", "diagnose": "minimal"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, Case]]]:
    """For each command: how many questions a run asks that nobody kills, and its smallest case."""
    found: dict[str, tuple[int, Case]] = {}
    for name, folder in SMALLEST.items():
        runs = Runs.new(tmp_path_factory.mktemp(name))
        run = runs.ctk(name, runs.folder / "out")
        assert run.returncode == 1, run.stdout + run.stderr
        found[name] = (len(runs.asked), ctk.load_case(runs.folder / "out" / folder, trust=True))
    yield found


def check_killed_and_resumed(
    name: str, kill_at: int, whole: dict[str, tuple[int, Case]], folder: Path
) -> None:
    runs, out = Runs.new(folder), folder / "out"
    run = runs.ctk(name, out, kill_at=kill_at)
    assert was_killed(run), run.stdout + run.stderr
    answered = runs.asked[: kill_at - 1]
    sizes = [each.calls for each in answered[1:] if each.wrong]
    smaller = [size for size in sizes if size < answered[0].calls] if answered else []
    smallest = out / SMALLEST[name]
    is_bisected = kill_at == 1 or has_line(out, Search)
    if smaller:
        assert call_nodes(ctk.load_case(smallest, trust=True)) == smaller[-1] == min(smaller)
    resumed = runs.ctk(name, out, "--resume")
    assert resumed.returncode == 1, resumed.stdout + resumed.stderr
    total, expected = whole[name]
    # Only what was being asked when the process died, and the observed compile of a bisection that
    # was not done: its graphs are needed, which no answer holds.
    assert len(runs.asked) == total + 1 + (not is_bisected)
    best = ctk.load_case(smallest, trust=True)
    assert str(best.graph.graph) == str(expected.graph.graph)
    assert best.signature == expected.signature
    repro = (smallest / "repro.py").read_text()
    assert "reproduced on " in repro


@pytest.mark.parametrize(
    ("name", "kill_at"),
    [
        pytest.param("minify", 13, marks=pytest.mark.slow),
        pytest.param("diagnose", 13, marks=pytest.mark.slow),
        ("diagnose", 4),
    ],
)
def test_kill_9_loses_no_answer(
    name: str, kill_at: int, whole: dict[str, tuple[int, Case]], tmp_path: Path
) -> None:
    check_killed_and_resumed(name, kill_at, whole, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SMALLEST)
def test_kill_9_at_any_question_loses_no_answer(
    name: str, whole: dict[str, tuple[int, Case]], tmp_path: Path
) -> None:
    total, _ = whole[name]
    for kill_at in range(2, total + 1):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        check_killed_and_resumed(name, kill_at, whole, folder)


@pytest.mark.slow
def test_a_finished_run_answers_again_without_a_compile(tmp_path: Path) -> None:
    runs = Runs.new(tmp_path)
    first = runs.ctk("diagnose", tmp_path / "out")
    asked = len(runs.asked)
    again = runs.ctk("diagnose", tmp_path / "out", "--resume")
    assert (first.returncode, again.returncode) == (1, 1), again.stdout + again.stderr
    assert len(runs.asked) == asked
    same, cost = first.stdout.splitlines(), again.stdout.splitlines()
    assert [a for a in same if not a.startswith("cost")] == [
        a for a in cost if not a.startswith("cost")
    ]
    assert "answers remembered" in again.stdout


def test_the_folder_of_a_killed_run_says_how_to_go_on(tmp_path: Path) -> None:
    runs, out = Runs.new(tmp_path), tmp_path / "out"
    assert was_killed(runs.ctk("minify", out, kill_at=9))
    shown = command("show", out)
    assert shown.code == 0
    go_on = f"ctk minify {runs.program} --target {runs.backend}:compile --no-isolate"
    assert f"to go on: {go_on} --out {out} --resume" in shown.out
    assert "state      reducing" in shown.out


def test_ctrl_c_is_answered_in_seconds_and_the_command_it_prints_goes_on(tmp_path: Path) -> None:
    runs, out = Runs.new(tmp_path), tmp_path / "out"
    run = runs.ctk("minify", out, kill_at=8, kill_with="SIGINT")
    assert run.returncode == 125, run.stdout + run.stderr
    assert run.stdout.startswith("interrupted: 28 -> ")
    assert "repro.py  # not run" in run.stdout
    assert "problem: repro.py was not run: interrupted" in run.stdout
    (line,) = [each for each in run.stdout.splitlines() if each.startswith("to go on: ")]
    words = shlex.split(line.removeprefix("to go on: "))
    assert words[:2] == ["ctk", "minify"]
    before = len(runs.asked)
    torch.compiler.reset()
    said = command(*words[1:])
    assert said.code == 1, said.out + said.err
    assert "(minimal)" in said.first
    assert len(runs.asked) == before  # this process is not counted


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A folder whose run was killed, and the folder of the program as the working one."""
    runs = Runs.new(tmp_path)
    assert was_killed(runs.ctk("minify", tmp_path / "minimal_program", kill_at=6))
    monkeypatch.chdir(tmp_path)
    return runs


def test_what_does_not_fit_is_refused_with_what_differs(
    killed: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, out = f"{killed.backend}:compile", killed.folder / "minimal_program"
    same = ("minify", killed.program, "--target", spec, "--out", out)

    def refused(*words: object) -> str:
        said = command(*words)
        assert said.code == 2, said.out + said.err
        assert "Traceback" not in said.err
        return said.err

    assert "the same command with --resume" in refused(*same)
    assert "there is nothing to resume" in refused(
        "minify", killed.program, "--out", killed.folder / "none", "--resume"
    )
    other = ("minify", killed.program, "--target", "aot_eager", "--out", out, "--resume")
    assert "target was" in refused(*other) and "aot_eager" in refused(*other)
    assert "inputs was full, and is none now" in refused(*same, "--resume", "--inputs", "none")
    assert "operation was minify, and is diagnose now" in refused("diagnose", *same[1:], "--resume")
    monkeypatch.setenv("CTK_DISABLE", "cse")
    assert "changed since: CTK_DISABLE" in refused(*same, "--resume")
    monkeypatch.undo()
    monkeypatch.chdir(killed.folder)
    killed.backend.write_text(killed.backend.read_text() + "# another one\n")
    assert "changed since: sources/backend.py" in refused(*same, "--resume")


def test_a_module_that_the_graph_calls_is_part_of_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edited_ops.py"
    file.write_text("def twice(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    graph = torch.fx.Graph()
    twice = importlib.import_module("edited_ops").twice
    graph.output((graph.call_function(twice, (graph.placeholder("x"),)),))
    gm, out = torch.fx.GraphModule({}, graph), tmp_path / "out"
    ctk.bisect(gm, (torch.ones(2),), target="eager", out=out)
    ctk.bisect(gm, (torch.ones(2),), target="eager", out=out, resume=True)
    file.write_text("def twice(x):\n    return x + x\n")
    with pytest.raises(ctk.CtkError, match="changed since: edited_ops"):
        ctk.bisect(gm, (torch.ones(2),), target="eager", out=out, resume=True)


def test_a_folder_in_use_is_refused(killed: Runs) -> None:
    """A second process; in one process POSIX locks do not hold, so this one has to be forked."""
    out = killed.folder / "minimal_program"
    with reopen(out / JOURNAL):
        run = killed.ctk("minify", out, "--resume")
    assert run.returncode == 2
    assert "is in use: another process of ctk works there" in run.stderr


def test_the_newest_unfinished_folder_is_found_by_itself(
    killed: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"{killed.backend}:compile"
    other = killed.folder / "minimal_program_2"
    found = ctk.minify("program.py", target="aot_eager", out=other)  # removed: nothing fails
    assert found.folder is None and not other.exists()
    asked: list[Case] = []
    ask = InProcess.ask
    monkeypatch.setattr(
        InProcess,
        "ask",
        lambda self, case, *rest, **more: asked.append(case) or ask(self, case, *rest, **more),
    )
    torch.compiler.reset()
    found = ctk.minify("program.py", target=spec, resume=True)
    assert found.folder == Path("minimal_program")
    assert found.reduction is not None
    assert found.reduction.finished and found.reduction.nodes_after == 2
    assert found.reduction.remembered >= 3
    # The smallest case is asked about once more, and bisected.
    assert len(asked) == found.reduction.questions + 2
    with pytest.raises(ctk.CtkError, match="no folder minimal_program here has a run of this case"):
        ctk.minify("program.py", target="aot_eager", resume=True)


def test_an_operation_that_asked_nothing_leaves_no_folder(tmp_path: Path) -> None:
    program = Runs.new(tmp_path).program
    out = tmp_path / "out"
    said = command("diagnose", program, "--config", "no_such_option=1", "--out", out)
    assert said.code == 2
    assert not out.exists()
