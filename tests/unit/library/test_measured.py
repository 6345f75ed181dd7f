"""minify of what only measuring shows: a slow kernel, and one that takes too much memory."""

from pathlib import Path

import pytest
import torch

import ctk
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write
from tests.unit.library.test_own_oracle import PROGRAM, calls


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return write(tmp_path, "program.py", PROGRAM)


SLOW = '''
import time

def spinning(gm, example_inputs):
    """Takes a millisecond more where there is a softmax."""
    seconds = 0.001 * ("softmax" in str(gm.graph))

    def call(*args):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return gm(*args)

    return call


def hoarding(gm, example_inputs):
    """Holds sixteen copies of its input where there is a softmax."""
    copies = 16 * ("softmax" in str(gm.graph))

    def call(*args):
        held = [args[0].clone() for _ in range(copies)]
        return gm(*args)

    return call
'''


@pytest.mark.parametrize(
    ("backend", "option", "kind"),
    [("spinning", "--slower-than", "slow"), ("hoarding", "--memory-above", "peak-memory")],
)
def test_a_slow_and_a_greedy_kernel_are_found(
    backend: str, option: str, kind: str, tmp_path: Path
) -> None:
    program = write(tmp_path, "program.py", PROGRAM.replace("64).reshape(8, 8)", "4096)"))
    target = f"{write(tmp_path, 'slow.py', SLOW)}:{backend}"
    out = tmp_path / "out"
    said = command("minify", program, "--target", target, option, "3x", "--out", out)
    assert said.code == 1, said.out + said.err
    assert f"7 -> 1 call node (minimal): {kind}" in said.first
    assert "repro.py  # reproduced" in said.out
    case = ctk.load_case(out / "case", trust=True)
    assert calls(case) == ["softmax"]
    assert case.signature is not None
    assert (case.signature.kind, case.signature.limit) == (kind, 3.0)
    header = (out / "case" / "repro.py").read_text().partition('"""\n')[0]
    assert f"Failure:    {kind}: " in header
    again = command("repro", out / "case", "--trust")
    assert (again.code, kind in again.first) == (1, True)


def test_what_is_not_slow_is_no_failure(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = command(
        "minify", program, "--target", "aot_eager", "--slower-than", "100x", "--out", out
    )
    assert (said.code, out.exists()) == (0, False)


def test_time_is_measured_in_a_child_too(tmp_path: Path) -> None:
    program = write(tmp_path, "program.py", PROGRAM)
    target = f"{write(tmp_path, 'slow.py', SLOW)}:spinning"
    found = ctk.minify(
        program, target=target, slower_than=3, isolate=True, out=tmp_path / "out", max_questions=2
    )
    assert found.reduction is not None
    assert found.judgement.signature is not None
    assert found.judgement.signature.kind == "slow"
    assert torch.is_tensor(found.reduction.inputs[0])
