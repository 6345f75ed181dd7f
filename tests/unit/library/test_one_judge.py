"""`check`, `repro`, `bisect-pass`, `diagnose` never contradict each other: the results decide."""

import dataclasses
from pathlib import Path

import pytest
import torch

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.cli.commands.check import answer_of_report
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from tests.helpers import cli
from tests.helpers.case_zoo import capture, samples
from tests.helpers.cli import BROKEN_PASS, DEADLY_TARGET, GOOD, TWO_GRAPHS, write

MASKED = (
    """
import torch

def model():
    return lambda x: torch.clamp(torch.relu(x) * 0.5, min=5.0)

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""
    + BROKEN_PASS
)
"""The pass makes `mul` wrong; the clamp hides it."""

RAISING = (
    GOOD
    + """
def fall_over(gm):
    raise RuntimeError("on purpose")

def config():
    return {"custom_passes": {"joint": [f"{__file__}:fall_over"]}, "on_failure": "raise"}
"""
)

BACKENDS = """
import torch

def halved(gm, example_inputs):
    return lambda *args: tuple(value / 2 for value in gm(*args))

def shifted(gm, example_inputs):
    return lambda *args: tuple(value + 1 for value in gm(*args))

def redrawn(gm, example_inputs):
    def call(*args):
        torch.rand(1)
        return gm(*args)
    return call

def strided(gm, example_inputs):
    return lambda *args: tuple(value.t().contiguous().t() for value in gm(*args))
"""

RANDOM = """
import torch

def model():
    return lambda x: x + torch.empty_like(x).uniform_()

def inputs():
    return (torch.ones(4, 4),)
"""

PROGRAMS = {
    "good": (GOOD, 0),
    "broken": (GOOD + BROKEN_PASS, 1),
    "masked": (MASKED, 0),
    "raising": (RAISING, 1),
    "two graphs": (TWO_GRAPHS + BROKEN_PASS, 1),
    "two graphs, one masked": (TWO_GRAPHS.replace("torch.relu(torch", "torch.exp(torch"), 0),
}


def codes(subject: Path | Case, tmp_path: Path, **options: object) -> dict[str, int]:
    """Return the exit code of each command that judges, through the library."""
    from ctk.toolkit.cli.shell.exit_codes import exit_code_of

    checked = ctk.check(subject, **options)
    judgements = {
        "repro": ctk.repro(subject, **options).judgement,
        "bisect-pass": ctk.bisect(subject, out=tmp_path / "bisected", **options).judgement,
        "diagnose": ctk.diagnose(
            subject, out=tmp_path / "diagnosed", max_questions=1, **options
        ).judgement,
    }
    found = {name: int(exit_code_of(each)) for name, each in judgements.items()}
    return found | {"check": int(answer_of_report(checked).exit_code)}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if each in ("good", "broken") else pytest.mark.slow)
        for each in PROGRAMS
    ],
)
def test_programs(name: str, tmp_path: Path) -> None:
    text, code = PROGRAMS[name]
    program = write(tmp_path, "program.py", text)
    assert set(codes(program, tmp_path).values()) == {code}


@pytest.mark.parametrize(
    ("text", "target", "code"),
    [
        (GOOD, "halved", 1),
        (GOOD, "strided", 0),  # a choice of the compiler
        (RANDOM, "shifted", 1),
        (RANDOM, "redrawn", 125),  # flaky: it draws other random numbers than eager
        (RANDOM, "strided", 0),
    ],
)
def test_targets_without_events(text: str, target: str, code: int, tmp_path: Path) -> None:
    backends = write(tmp_path, "one_judge_backends.py", BACKENDS)
    program = write(tmp_path, "program.py", text)
    assert set(codes(program, tmp_path, target=f"{backends}:{target}").values()) == {code}


def test_strides_that_count(tmp_path: Path) -> None:
    """They count in all commands alike, also of a program that draws random numbers."""
    spec = f"{write(tmp_path, 'one_judge_backends.py', BACKENDS)}:strided"
    program = write(tmp_path, "program.py", RANDOM)
    assert set(codes(program, tmp_path, target=spec, strides=True).values()) == {1}


@pytest.mark.parametrize(
    ("target", "recorded", "code"),
    [
        ("halved", Signature("accuracy"), 1),
        ("halved", Signature("runtime-error", "ValueError"), 1),  # another failure
        ("strided", Signature("stride"), 1),  # counts only when it is what is looked for
        ("strided", Signature("accuracy"), 0),
        ("eager", Signature("accuracy"), 0),
    ],
)
def test_recorded_signatures(target: str, recorded: Signature, code: int, tmp_path: Path) -> None:
    backends = write(tmp_path, "one_judge_backends.py", BACKENDS)
    program = write(tmp_path, "program.py", RANDOM.replace("torch.empty_like(x).uniform_()", "1"))
    spec = target if target == "eager" else f"{backends}:{target}"
    (case,) = load_cases(program, None, CaseOptions(target=spec, strides=True))
    found = codes(dataclasses.replace(case, signature=recorded), tmp_path)
    assert set(found.values()) == {code}, found


def test_program_that_fails_in_eager(tmp_path: Path) -> None:
    (case,) = load_cases(write(tmp_path, "program.py", GOOD))
    narrow = dataclasses.replace(case, inputs=(*case.inputs[:-1], torch.ones(3, 3)))
    assert set(codes(narrow, tmp_path).values()) == {125}  # nothing was compared


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(
    ("target", "option", "code"),
    [
        ("compile", "--isolate", 1),
        pytest.param("hang", "--timeout=3", 125, marks=pytest.mark.slow),
    ],
)
def test_case_that_ends_or_stops_its_process(
    target: str, option: str, code: int, good: Path, tmp_path: Path
) -> None:
    """A time limit that ran out is a failure only once a culprit is proved, which `bisect` does."""
    spec = f"{write(tmp_path, 'deadly.py', DEADLY_TARGET)}:{target}"
    for command in ("repro", "check"):
        said = cli.ctk(command, good, "--target", spec, option)
        assert said.code == code, said.out + said.err
    said = cli.ctk("bisect-pass", good, "--target", spec, option, "--out", tmp_path / "out")
    assert said.code == 1, said.out + said.err
    assert "(confirmed)" in said.first


class TestMasked:
    """A step that changes a value which no result shows is told, and is no failure."""

    def test_library(self, tmp_path: Path) -> None:
        report = ctk.check(write(tmp_path, "masked.py", MASKED))
        assert report.ok
        assert [finding.where for finding in report.hidden] == ["joint/negate_relu"]
        assert report.wrong == report.hidden

    def test_command(self, tmp_path: Path) -> None:
        said = cli.ctk("check", write(tmp_path, "masked.py", MASKED))
        assert said.code == 0
        assert said.first.startswith(
            "no failure: results agree; 1 step changes values that the results do not show: "
            "joint/negate_relu at "
        )
        assert "wrong, hidden" in said.out

    def test_json(self, tmp_path: Path) -> None:
        said = cli.ctk("check", write(tmp_path, "masked.py", MASKED), "--json")
        (graph,) = said.data["graphs"]
        (wrong,) = [each for each in graph["findings"] if each["status"] == "wrong"]
        assert (wrong["step"], wrong["hidden"]) == ("joint/negate_relu", True)
        assert said.data["exit_code"] == 0

    def test_a_wrong_step_of_a_graph_that_fails_is_not_hidden(self, tmp_path: Path) -> None:
        report = ctk.check(write(tmp_path, "broken.py", GOOD + BROKEN_PASS))
        assert report.wrong
        assert not report.hidden


def one_branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (x,))


@pytest.mark.slow
def test_branch_whose_backward_overwrites_its_tangent(tmp_path: Path) -> None:
    """Inductor lets the branches of `torch.cond` reuse the memory of their operands."""
    (case,) = load_cases(
        one_branch,
        (torch.ones(4, 8, requires_grad=True),),
        CaseOptions(target="inductor", backward=True),
    )
    report = ctk.check(case)
    assert report.ok, report
    assert {finding.where for finding in report.hidden} <= {"lowered/inductor:backward"}
    assert all("an input, after the call" in finding.what for finding in report.hidden)
    assert ctk.repro(case).judgement.verdict is ctk.Verdict.PASSES
    found = ctk.bisect(case, out=tmp_path / "found")
    assert found.judgement.verdict is ctk.Verdict.PASSES


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctk", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", [sample.name for sample in samples()])
def test_zoo(name: str, target: str, tmp_path: Path) -> None:
    sample = next(each for each in samples() if each.name == name)
    for number, case in enumerate(capture(sample.run, *sample.inputs, dynamic=sample.dynamic)):
        found = codes(dataclasses.replace(case, target=target), tmp_path / str(number))
        assert len(set(found.values())) == 1, found


PLANTED = sorted(Path(__file__).parents[2].glob("planted/cases/*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PLANTED, ids=[path.stem for path in PLANTED])
def test_planted(path: Path, tmp_path: Path) -> None:
    backward = "BACKWARD = True" in path.read_text()
    assert set(codes(path, tmp_path, backward=backward).values()) == {1}
