"""repro, check, bisect-pass, diagnose and minify on small programs: exit code, first line, JSON."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ctk.toolkit.case.case import Case
from ctk.toolkit.repro.run import ReproRun, write_repro
from ctk.toolkit.repro.script import ScriptLimits
from tests.helpers.cli import BROKEN_PASS, DEADLY_TARGET, GOOD, TWO_GRAPHS, ctk, write
from tests.helpers.warm_python import warm_python


class TestRepro:
    def test_good_program(self, good: Path) -> None:
        said = ctk("repro", good)
        assert said.code == 0
        assert said.first.startswith("no failure")

    def test_case_fails_again(self, case: Path) -> None:
        said = ctk("repro", case, "--trust", "--json")
        assert said.code == said.data["exit_code"] == 1
        (graph,) = said.data["graphs"]
        assert graph["verdict"] == "reproduces"
        assert graph["signature"]["kind"] == "accuracy"

    def test_written_script_was_run(self, case: Path) -> None:
        assert "reproduced on " in (case / "repro.py").read_text()

    def test_config_of_the_command_line_wins(self, case: Path) -> None:
        said = ctk("repro", case, "--trust", "--config", 'disable=["joint/negate_relu"]')
        assert said.code == 0, said.out

    def test_other_target_on_the_same_case(self, case: Path) -> None:
        said = ctk("repro", case, "--target", "aot_eager", "--json")
        assert said.code == 0, said.out
        assert said.data["graphs"][0]["target"] == "aot_eager"

    def test_program_that_fails_in_eager(self, tmp_path: Path) -> None:
        text = GOOD.replace("torch.randn(2, 4)", "torch.randn(2, 5)")
        said = ctk("repro", write(tmp_path, "wrong_shape.py", text))
        assert said.code == 125  # nothing was compared
        assert "Traceback" not in said.err


@pytest.mark.usefixtures("warm_children")
class TestChild:
    @pytest.fixture
    def deadly(self, tmp_path: Path) -> Path:
        return write(tmp_path, "deadly.py", DEADLY_TARGET)

    def test_crash_is_a_failure_with_its_signal(self, good: Path, deadly: Path) -> None:
        said = ctk("repro", good, "--target", f"{deadly}:compile", "--isolate", "--json")
        assert said.code == 1, said.out + said.err
        signature = said.data["graphs"][0]["signature"]
        assert (signature["kind"], signature["signal"]) == ("signal", signal.SIGSEGV)

    def test_hang_ends_at_the_time_limit(self, good: Path, deadly: Path) -> None:
        said = ctk("repro", good, "--target", f"{deadly}:hang", "--timeout", 2)
        assert said.code == 125, said.out + said.err
        assert "time limit" in said.first


class TestGraphs:
    @pytest.fixture
    def two(self, tmp_path: Path) -> Path:
        return write(tmp_path, "two.py", TWO_GRAPHS + BROKEN_PASS)

    def test_the_failing_graph_is_reported(self, two: Path) -> None:
        said = ctk("repro", two, "--json")
        assert said.code == 1
        verdicts = {graph["graph"]: graph["verdict"] for graph in said.data["graphs"]}
        assert verdicts == {"graph0": "passes", "graph1": "reproduces"}
        assert "graph1" in said.data["answer"]

    def test_one_graph_can_be_chosen(self, two: Path) -> None:
        assert ctk("repro", two, "--graph", 0).code == 0
        assert ctk("repro", two, "--graph", 1).code == 1

    def test_number_that_does_not_exist(self, two: Path) -> None:
        said = ctk("repro", two, "--graph", 2)
        assert said.code == 2
        assert "2 graphs, numbered from 0" in said.err


class TestCheck:
    def test_good_program(self, good: Path) -> None:
        said = ctk("check", good)
        assert said.code == 0
        assert re.match(r"no failure: 1 graph, \d+ steps, \d+ values compared", said.first)

    def test_wrong_pass_is_named_on_the_first_line(self, broken: Path) -> None:
        said = ctk("check", broken)
        assert said.code == 1
        assert said.first.startswith("wrong: graph0: joint/negate_relu at ")

    def test_json_has_every_step(self, broken: Path) -> None:
        (graph,) = ctk("check", broken, "--json").data["graphs"]
        wrong = [each for each in graph["findings"] if each["status"] == "wrong"]
        assert [each["step"] for each in wrong] == ["joint/negate_relu"]
        assert wrong[0]["mismatch"]["kind"] == "accuracy"


class TestBisectAndDiagnose:
    def test_bisect_names_pass_and_rewrite(self, case: Path, tmp_path: Path) -> None:
        said = ctk("bisect-pass", case, "--trust", "--out", tmp_path / "found")
        assert said.code == 1
        assert "joint/negate_relu" in said.first
        data = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
        assert (data["schema"], data["state"]) == (2, "finished")
        assert (data["culprit"]["stage"], data["culprit"]["pass"]) == ("joint", "negate_relu")
        assert data["confirmed"] is True

    def test_diagnose_writes_a_folder_that_show_understands(
        self, broken: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "found"
        said = ctk("diagnose", broken, "--out", out, "--json")
        assert said.code == 1
        assert said.data["culprit"]["pass"] == "negate_relu"
        assert said.data["call_nodes"]["after"] == 1
        shown = ctk("show", out)
        assert shown.code == 0
        assert "joint/negate_relu (confirmed)" in shown.first
        assert ctk("repro", out / "minimal", "--trust").code == 1

    def test_good_program(self, good: Path, tmp_path: Path) -> None:
        said = ctk("diagnose", good, "--out", tmp_path / "found")
        assert said.code == 0
        assert "no failure: compiled and eager agree" in said.first

    def test_folder_that_holds_something_is_left_alone(self, broken: Path, tmp_path: Path) -> None:
        said = ctk("diagnose", broken, "--out", tmp_path)
        assert said.code == 2
        assert "is not empty" in said.err


class TestDoctor:
    def test_a_machine_that_is_ready(self) -> None:
        said = ctk("doctor", "--json")
        assert said.code == 0, said.out
        assert said.data["answer"] == "everything is fine"


class TestMinify:
    def test_smallest_case(self, case: Path, tmp_path: Path) -> None:
        said = ctk("minify", case, "--trust", "--out", tmp_path / "small", "--json")
        assert said.code == 1
        assert said.data["call_nodes"] == {"before": 2, "after": 1}
        assert said.data["repro"]["clean_run"] == "reproduced"
        assert ctk("repro", tmp_path / "small" / "case", "--trust").code == 1

    def test_good_program(self, good: Path, tmp_path: Path) -> None:
        said = ctk("minify", good, "--out", tmp_path / "small")
        assert said.code == 0
        assert said.first.startswith("no failure")
        assert not (tmp_path / "small").exists()

    def test_budget_says_how_to_go_on(
        self, case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = ReproRun(1, "", "reproduced")  # the script itself is run by test_smallest_case

        def write_only(
            case: Case, folder: Path, culprit: str | None, limits: ScriptLimits | None
        ) -> tuple[Path, ReproRun]:
            return write_repro(case, folder, culprit, limits), seen

        monkeypatch.setattr(
            "ctk.toolkit.operations.session.smallest_repro.write_verified_repro", write_only
        )
        said = ctk("minify", case, "--trust", "--out", tmp_path / "small", "--max-questions", 1)
        assert said.code == 1
        assert (
            f"to go on: ctk minify {case} --trust --out {tmp_path / 'small'} --resume" in said.out
        )

    def test_time_limit_needs_a_child(self, case: Path) -> None:
        said = ctk("minify", case, "--trust", "--timeout", 5, "--no-isolate")
        assert said.code == 2
        assert "--timeout" in said.err


SLOW_TARGET = """
import time

def compile(gm, example_inputs):
    time.sleep(0.4)
    return lambda *args: tuple(value + 1 for value in gm(*args))
"""

LONG = """
import torch

def model():
    return torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(60)))

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""


def test_interrupted_minify_keeps_the_best_so_far(tmp_path: Path) -> None:
    program = write(tmp_path, "long.py", LONG)
    backend = write(tmp_path, "slow_backend.py", SLOW_TARGET)
    command = [
        warm_python().with_name("ctk"),
        "minify",
        program,
    ]
    process = subprocess.Popen(
        [*command, "--target", f"{backend}:compile", "--out", tmp_path / "small"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    for line in process.stderr:
        if "minifying" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 125, out + err
    assert out.startswith("interrupted: 60 -> ")
    command = f"ctk minify {program} --target {backend}:compile --out {tmp_path / 'small'} --resume"
    assert f"to go on: {command}" in out
    assert ctk("show", tmp_path / "small" / "case").code == 0


class TestTimes:
    def test_stages_and_passes_of_a_program(self, good: Path) -> None:
        said = ctk("show", good, "--times", "--json")
        assert said.code == 0, said.out + said.err
        (graph,) = said.data["graphs"]
        stages = [step["stage"] for step in graph["steps"]]
        assert graph["target"] == "ctk" and {"joint", "forward", "lowered"} <= set(stages)
        assert 0 < sum(step["seconds"] for step in graph["steps"]) <= graph["seconds"]

    def test_another_target_and_a_missing_case(self, good: Path, tmp_path: Path) -> None:
        said = ctk("show", good, "--times", "--target", "aot_eager")
        assert said.code == 0 and "compiled with aot_eager" in said.first
        said = ctk("show", tmp_path / "none.py", "--times")
        assert said.code == 2 and "none.py" in said.err

    def test_options_that_would_do_nothing_are_refused(self, case: Path) -> None:
        for option in (("--trust",), ("--target", "inductor"), ("--times", "--pass", "1")):
            said = ctk("show", case, *option)
            assert said.code == 2 and "--times" in said.err, option

    def test_a_compile_that_raises_is_no_answer(self, good: Path, tmp_path: Path) -> None:
        raising = "def compile(gm, inputs):\n    raise ValueError('no')\n"
        target = f"{write(tmp_path, 'raising.py', raising)}:compile"
        said = ctk("show", good, "--times", "--target", target)
        assert said.code == 125 and "ValueError: no" in said.first


@pytest.mark.parametrize("name", ["net.py", "net.py:model,inputs", "pytest:net.py::test_it"])
def test_show_of_a_program_says_how_to_make_a_case(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\ndef model(): return torch.relu\ndef inputs(): return torch.ones(3)\n"
    write(tmp_path, "net.py", text)
    said = ctk("show", name)
    assert said.code == 2
    assert f"{name} is a program; show takes a case or a package" in said.err
    assert f"ctk check {name} --out cases" in said.err


def test_show_of_another_file_is_not_about_seals(tmp_path: Path) -> None:
    said = ctk("show", write(tmp_path, "train.sh", "#!/bin/sh\n"))
    assert (said.code, "train.sh is not used: it is not a ctk-package" in said.err) == (2, True)


def test_check_writes_healthy_and_failing_graphs_as_cases(good: Path, tmp_path: Path) -> None:
    text = GRAPHS.format(file=tmp_path / "net.py")
    program = write(tmp_path, "net.py", text)
    said = ctk("check", program, "--out", tmp_path / "cases", "--json")
    assert said.code == 1
    folders = [graph["case"] for graph in said.data["graphs"]]
    assert folders == [str(tmp_path / "cases" / f"graph{n}") for n in range(2)]
    heads = [ctk("show", folder).first for folder in folders]
    assert "no failure recorded" in heads[0]
    assert "fails: accuracy" in heads[1]
    assert ctk("repro", folders[0], "--trust").code == 0
    again = ctk("check", program, "--out", tmp_path / "cases")
    assert (again.code, "exists already" in again.err) == (2, True)


GRAPHS = """
import torch

def call(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()

def spoil(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.cos.default:
            node.target = torch.ops.aten.sin.default

def model(): return call
def inputs(): return torch.ones(3)
def config(): return {{"custom_passes": {{"joint": ["{file}:spoil"]}}}}
"""
