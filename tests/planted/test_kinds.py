"""Hangs, memory blow-ups, wrong random numbers, lost aliasing and NaN, in every target."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check
from ctk.toolkit.operations.diagnose import diagnose
from tests.helpers.cli import Said
from tests.helpers.project import ROOT

HERE = Path(__file__).parent / "kinds"
FAULTS, PROGRAMS, OPERATORS = (str(HERE / f"{n}.py") for n in ("faults", "programs", "operators"))
KINDS = {
    "hang": "timeout",
    "grow": "memory",
    "draw": "accuracy",
    "share": "alias",
    "overflow": "nan",
}
NAMED = {"hang": "slow", "grow": "large", "draw": "noise", "share": "copy", "overflow": "weigh"}
MEMORY_NBYTES = 1500 << 20


@dataclass(frozen=True)
class Planted:
    """A fault of a kind in a target, and the culprit that must be named."""

    fault: str
    target: str
    where: str
    program: str = PROGRAMS
    config: dict[str, object] = field(default_factory=dict)
    named: str = ""

    @property
    def kind(self) -> str:
        return KINDS[self.program_name]

    @property
    def program_name(self) -> str:
        return self.fault.removesuffix("s_when_called")

    @property
    def spec(self) -> str:
        return f"{self.program}:{self.program_name},inputs"

    def __str__(self) -> str:
        return f"{self.fault}-{self.named or self.target}"


def in_ctk(fault: str) -> Planted:
    config = {"custom_passes": {"joint": [f"{FAULTS}:{fault}"]}}
    return Planted(fault, "ctk", f"joint/{fault}", config=config)


def in_inductor(fault: str) -> Planted:
    config = {"post_grad_custom_post_pass": f"{FAULTS}:{fault}"}
    return Planted(fault, "inductor", "forward/post_grad_custom_post_pass", config=config)


def in_own_backend(fault: str) -> Planted:
    name = f"backend_{fault}"
    target, where = f"{FAULTS}:{name}", f"lowered/faults.py:{name}:captured"
    return Planted(fault, target, where, named="own")


def in_aot_eager(fault: str) -> Planted:
    where = f"dispatch/decompose.planted_kinds.{NAMED[fault]}.default"
    return Planted(fault, "aot_eager", where, OPERATORS)


def in_torchscript(fault: str) -> Planted:
    """In what AOT dispatch gives to it: torch.jit's own tracer keeps an operator whole."""
    where = f"dispatch/decompose.planted_kinds.{NAMED[fault]}.default"
    return Planted(fault, "torchscript", where, OPERATORS, {"freezing": False})


MAKERS = (in_ctk, in_inductor, in_own_backend, in_aot_eager, in_torchscript)
ALL = [
    *(make(fault) for make in MAKERS for fault in KINDS),
    in_own_backend("hangs_when_called"),
    in_own_backend("grows_when_called"),
]


def limits_for(planted: Planted, seconds: float) -> dict[str, object]:
    """Return the limits that a fault needs."""
    kind = planted.kind
    limits = {"timeout": {"timeout_seconds": seconds}, "memory": {"memory_nbytes": MEMORY_NBYTES}}
    return limits.get(kind, {})


@pytest.mark.parametrize("planted", [in_aot_eager("share"), in_torchscript("overflow")], ids=str)
def test_a_fault_is_named_and_confirmed(planted: Planted):
    program = load_program(planted.spec)
    (case,) = capture_cases(program, target=planted.target, config=planted.config)
    search = find_culprit(case)
    assert search.judgement.signature.kind == planted.kind
    assert search.culprit.where == planted.where
    assert search.confirmed


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("planted", ALL, ids=str)
def test_a_fault_is_diagnosed(planted: Planted, tmp_path: Path):
    limits = limits_for(planted, 60)
    options = {"target": planted.target, "config": planted.config, **limits}
    checked = check(planted.spec, **options)
    assert checked.judgement.signature.kind == planted.kind, checked
    diagnosis = diagnose(planted.spec, out=tmp_path / "out", **options)
    search = diagnosis.search
    assert search.judgement.signature.kind == planted.kind
    assert search.culprit.where == planted.where
    assert search.confirmed
    assert diagnosis.repro_run.outcome == "reproduced"


def ctk(*words: str, silent_seconds: float, **variables: str) -> Said:
    """Run a command that waits only so long for a sign of life."""
    code = f"from tests.helpers.endless import main; main({silent_seconds})"
    command = [sys.executable, "-c", code, *words, "--json"]
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return Said(process.returncode, process.stdout, process.stderr)


def passes(fault: str) -> str:
    return f"custom_passes={json.dumps(in_ctk(fault).config['custom_passes'])}"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_program_that_hangs_is_ended_though_nobody_set_a_limit(tmp_path: Path):
    words = ("bisect-pass", in_ctk("hang").spec, "--config", passes("hang"))
    said = ctk(*words, "--out", str(tmp_path / "out"), silent_seconds=20)
    assert "the compiled program did nothing for" in said.err
    assert said.code == 1, said.out + said.err
    assert said.data["culprit"]["pass"] == "hang"
    assert said.data["confirmed"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_program_that_fills_the_memory_is_ended_though_nobody_set_a_limit(tmp_path: Path):
    words = ("bisect-pass", in_ctk("grow").spec, "--config", passes("grow"))
    out = str(tmp_path / "out")
    said = ctk(*words, "--out", out, silent_seconds=60, CTK_MEMORY="1500M")
    assert "the compiled program holds more than 1.5G" in said.err
    assert said.err.count("goes on with --isolate --resume") == 1
    assert said.code == 1, said.out + said.err
    assert said.data["culprit"]["pass"] == "grow"
    assert said.data["confirmed"]


HANGS_IN_CAPTURE = """
import torch

@torch.library.custom_op("planted_capture::sized", mutates_args=())
def sized(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@sized.register_fake
def _(x):
    while True:
        pass

def model():
    return lambda x: sized(x).sin()

def inputs():
    return (torch.ones(4),)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_program_that_hangs_while_it_is_captured_is_ended(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text(HANGS_IN_CAPTURE)
    said = ctk("check", str(path), "--timeout", "5", silent_seconds=5)
    assert said.code == said.data["exit_code"] == 125, said.out + said.err
    assert "the capture of the program did nothing for 60 seconds" in said.out
