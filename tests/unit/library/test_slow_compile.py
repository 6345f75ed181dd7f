"""--compile-above: the pass whose time doubles with each call, and its smallest program."""

from pathlib import Path

import pytest

import ctk
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write

EXPLORING = '''
import time
import torch

def explore(gm):
    """Visits every set of calls."""
    graph = getattr(gm, "graph", gm)
    calls = sum(node.op.startswith("call_") for node in graph.nodes)
    time.sleep(min(20.0, 0.01 * 2**calls))

def model():
    def program(x):
        for _ in range(4):
            x = x.sin() * 2
        return x
    return program

def inputs():
    return (torch.ones(4),)

def config():
    return {"custom_passes": {"joint": [f"{__file__}:explore"]}}
'''
HONEST = EXPLORING.replace("0.01 * 2**calls", "0.5 * calls")


def test_the_pass_that_grows_is_named_and_proved(tmp_path: Path) -> None:
    program = write(tmp_path, "program.py", EXPLORING)
    said = command("bisect-pass", program, "--compile-above", "1", "--out", tmp_path / "out")
    assert said.code == 1, said.out + said.err
    assert "because of joint/explore (confirmed)" in said.first
    assert "slow-compile in joint/explore" in said.out
    assert "call nodes; its halves take" in said.out
    assert "--compile-above 1" in said.out


def test_without_an_option_a_slow_compile_is_noted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("ctk.toolkit.operations.check.SLOW_SECONDS", 1.0)
    monkeypatch.setattr("ctk.toolkit.operations.check.SLOW_SECONDS_OF_A_CALL", 0.1)
    program = write(tmp_path, "program.py", EXPLORING)
    said = command("check", program)
    assert said.code == 0, said.out + said.err
    assert "s for 8 calls; --compile-above 1 asks whether the compile grows" in said.out


@pytest.mark.slow
def test_a_time_in_proportion_is_no_failure(tmp_path: Path) -> None:
    report = ctk.check(write(tmp_path, "program.py", HONEST), compile_above=2)
    assert report.ok
    assert "in proportion to its size" in report.graphs[0].judgement.detail


@pytest.mark.slow
def test_the_smallest_slow_program_and_its_script(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = write(tmp_path, "program.py", EXPLORING)
    said = command("minify", program, "--compile-above", "0.5", "--out", out)
    assert said.code == 1, said.out + said.err
    assert "8 -> 6 call nodes (minimal): slow-compile in joint/explore" in said.first
    assert "repro.py  # reproduced" in said.out
    again = command("repro", out / "case", "--trust")
    assert (again.code, "slow-compile" in again.first) == (1, True)


@pytest.mark.slow
def test_a_pass_of_inductor(tmp_path: Path) -> None:
    option = '{"post_grad_custom_pre_pass": f"{__file__}:explore"}'
    text = EXPLORING.replace('{"custom_passes": {"joint": [f"{__file__}:explore"]}}', option)
    found = ctk.bisect(
        write(tmp_path, "program.py", text),
        target="inductor",
        compile_above=2,
        out=tmp_path / "out",
    )
    assert found.search.culprit is not None
    assert found.search.culprit.where == "forward/post_grad_custom_pre_pass"
    assert found.search.confirmed


def test_a_phase_without_passes_is_named_by_samples(tmp_path: Path) -> None:
    backend = EXPLORING + "\ndef backend(gm, example_inputs):\n    explore(gm)\n    return gm\n"
    path = write(tmp_path, "program.py", backend.replace("def config", "def unused"))
    report = ctk.check(path, target=f"{path}:backend", compile_above=2)
    signature = report.judgement.signature
    assert signature is not None
    assert signature.kind == "slow-compile"
    assert "program" in str(signature.where) or "explore" in str(signature.where)
