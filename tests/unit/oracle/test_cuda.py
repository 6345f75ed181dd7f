"""Questions about programs on a GPU, in children and here, and kernels that break CUDA."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.tree import find_descendants
from tests.helpers.case_zoo import capture, samples
from tests.helpers.cli import BROKEN_PASS, GOOD, write
from tests.helpers.faulty_backends import run_python
from tests.helpers.project import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

BACKENDS = "tests.helpers.cuda_backends"
SOURCE = ROOT / "tests" / "helpers" / "cuda_backends.py"
CTK = ("-c", "from ctk.toolkit.cli.main import main; main()")


def chain(x):
    return torch.nn.functional.gelu(x * 2).sin().relu() + 1


def case_for(backend: str) -> Case:
    (case,) = capture(chain, torch.randn(4, 8, device="cuda"))
    return dataclasses.replace(case, target=f"{BACKENDS}:{backend}", sources=(SOURCE,))


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    torch.cuda.init()  # the children are forked from a worker of its own, never from here
    with ChildProcess(120) as executor:
        yield executor


@pytest.mark.parametrize("backend", ["right", "wrong"])
def test_both_executors_give_the_same_judgement(child: ChildProcess, backend: str) -> None:
    case = case_for(backend)
    with InProcess() as here:
        assert child.ask(Question(case)) == here.ask(Question(case))


@pytest.mark.parametrize("target", ["ctk", "inductor", "aot_eager"])
def test_compilers_work_in_children(child: ChildProcess, target: str) -> None:
    case = dataclasses.replace(case_for("right"), target=target)
    assert [child.ask(Question(case)).verdict for _ in range(3)] == [Verdict.PASSES] * 3


BROKEN = {"illegal_access": "illegal memory access", "failed_assertion": "device-side assert"}


@pytest.mark.parametrize("backend", BROKEN)
def test_a_kernel_that_breaks_cuda_is_a_failure_and_no_later_question_suffers(
    backend: str, child: ChildProcess
) -> None:
    case, before = case_for(backend), find_descendants(os.getpid())
    for _ in range(2):
        judgement = child.ask(Question(case))
        assert judgement.verdict is Verdict.REPRODUCES, judgement
        assert judgement.signature is not None and judgement.signature.is_deadly
        assert BROKEN[backend] in judgement.signature.message
    assert child.ask(Question(case, judgement.signature)).verdict is Verdict.REPRODUCES
    assert child.ask(Question(case, Signature("nan"))).verdict is Verdict.DIFFERENT
    assert child.ask(Question(case_for("right"))).verdict is Verdict.PASSES
    child.close()
    assert find_descendants(os.getpid(), spare=before) == []


def test_a_candidate_that_breaks_cuda_in_eager_costs_only_itself(child: ChildProcess) -> None:
    (case,) = capture(lambda x, i: x[i] * 2, torch.randn(4, device="cuda"), torch.tensor([1]))
    (bad,) = capture(lambda i, x: x[i.cuda()] * 2, torch.tensor([1]), torch.randn(4, device="cuda"))
    bad = dataclasses.replace(bad, inputs=(torch.tensor([9]), bad.inputs[1]))
    judgement = child.ask(Question(dataclasses.replace(bad, target="aot_eager")))
    assert judgement.verdict is Verdict.PASSES, judgement  # both sides fail the assertion
    assert "device-side assert" in judgement.detail
    assert child.ask(Question(dataclasses.replace(case, target="ctk"))).verdict is Verdict.PASSES


def test_memory_is_what_the_process_holds_not_what_cuda_reserves() -> None:
    with ChildProcess(120, memory_nbytes=6 << 30) as child:
        assert child.ask(Question(case_for("right"))).verdict is Verdict.PASSES
        judgement = child.ask(Question(case_for("takes_memory")))
        assert judgement.signature is not None and judgement.signature.kind == "memory"
        assert child.ask(Question(case_for("right"))).verdict is Verdict.PASSES


def test_an_assertion_that_only_eager_fails_is_a_missing_error(child: ChildProcess) -> None:
    (case,) = capture(lambda i, x: x[i] * 2, torch.tensor([1]).cuda(), torch.randn(4).cuda())
    values = [torch.tensor([9]).cuda() if x.dtype is torch.int64 else x for x in case.inputs]
    case = dataclasses.replace(case, inputs=tuple(values))
    case = dataclasses.replace(case, target=f"{BACKENDS}:forgets_assertion", sources=(SOURCE,))
    for _ in range(2):
        judgement = child.ask(Question(case))
        assert judgement.verdict is Verdict.REPRODUCES, judgement
        assert judgement.signature is not None
        assert judgement.signature.kind == "missing-error", judgement


BREAKS = """
import torch

def model():
    return lambda x: x.sin() + 1

def inputs():
    return (torch.ones(4, device="cuda"),)
"""


@pytest.mark.parametrize("backend", BROKEN)
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["asked again", "isolated"])
@pytest.mark.parametrize("command", ["check", "repro", "bisect-pass", "diagnose"])
def test_commands_say_that_a_kernel_breaks_cuda(
    command: str, backend: str, isolate: tuple[str, ...], tmp_path: Path
) -> None:
    program = write(tmp_path, "breaks.py", BREAKS)
    options = () if command == "check" else ("--out", tmp_path / "out")
    target = ("--target", f"{SOURCE}:{backend}")
    done = run_python(*CTK, command, program, *target, *isolate, *options, is_clean=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert BROKEN[backend] in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_this_process_says_that_cuda_is_broken(tmp_path: Path) -> None:
    """In a process of its own: what breaks there stays broken."""
    script = write(
        tmp_path,
        "broken.py",
        "from tests.unit.oracle.test_cuda import both\nboth()\n",
    )
    done = run_python(script, is_clean=True)
    assert done.returncode == 0, done.stdout + done.stderr


def both() -> None:
    broken, right = case_for("illegal_access"), case_for("right")
    with InProcess() as here:
        assert here.ask(Question(broken)).verdict is Verdict.REPRODUCES
        with pytest.raises(CtkError, match="next: --isolate"):
            here.ask(Question(right))


FIRST = """
import torch

def model():
    return lambda x: x + torch.rand(3, device="cuda").cpu()

def inputs():
    return (torch.ones(3),)
"""


@pytest.mark.parametrize("target", ["ctk", "aot_eager"])
def test_a_case_may_be_the_first_to_use_cuda(target: str, tmp_path: Path) -> None:
    """Its random numbers are seeded, in ctk's process and in the repro's."""
    program = write(tmp_path, "first.py", FIRST)
    options = ("--target", target, "--trust", "--out", tmp_path / "out")
    done = run_python(*CTK, "repro", program, *options, is_clean=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("no failure"), done.stdout
    (case,) = capture(lambda x: x + torch.rand(3, device="cuda").cpu(), torch.ones(3, device="cpu"))
    folder = save_case(dataclasses.replace(case, target=target), tmp_path / "case", inputs="full")
    done = run_python(*CTK, "check", folder, is_clean=True)
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAMS = {"good": (GOOD, 0), "broken": (GOOD + BROKEN_PASS, 1)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_commands_agree(name: str, tmp_path: Path) -> None:
    text, code = PROGRAMS[name]
    text = text.replace("torch.randn(2, 4)", "torch.randn(2, 4, device='cuda')").replace(
        "torch.nn.ReLU())", "torch.nn.ReLU()).cuda()"
    )
    assert set(codes(write(tmp_path, "program.py", text), tmp_path).values()) == {code}


@pytest.mark.parametrize("target", ["ctk", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", [sample.name for sample in samples()])
def test_commands_agree_on_the_zoo(name: str, target: str, tmp_path: Path) -> None:
    with torch.device("cuda"):
        sample = next(each for each in samples() if each.name == name)
    for number, case in enumerate(capture(sample.run, *sample.inputs, dynamic=sample.dynamic)):
        found = codes(dataclasses.replace(case, target=target), tmp_path / str(number))
        assert len(set(found.values())) == 1, found


def codes(subject: Path | Case, folder: Path) -> dict[str, int]:
    from ctk.toolkit.cli.commands.check import answer_of_report
    from ctk.toolkit.cli.shell.exit_codes import exit_code_of

    judgements = {
        "repro": ctk.repro(subject).judgement,
        "bisect-pass": ctk.bisect(subject, out=folder / "bisected").judgement,
        "diagnose": ctk.diagnose(subject, out=folder / "diagnosed", max_questions=1).judgement,
    }
    found = {name: int(exit_code_of(each)) for name, each in judgements.items()}
    return found | {"check": int(answer_of_report(ctk.check(subject)).exit_code)}
