"""The Triton kernels of small programs, each beside its loop IR; compiled for sm_90 when slow."""

import os
import subprocess
import sys

import pytest

from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.variants import TritonOptions
from ctk.compiler.lowering.text import program_text
from tests.helpers.project import ROOT
from tests.helpers.triton_programs import PROGRAMS, program, variants_of

pytest.importorskip("triton")


@pytest.mark.parametrize("name", PROGRAMS)
def test_source(name: str, golden) -> None:
    made = program(name)
    made_of = variants_of(made, TritonOptions(interpret=True), KernelSetting())
    sources = [each.source() for each in made_of]
    text = "\n".join(line.rstrip() for line in program_text(made).splitlines())
    golden(f"triton/{name}.txt", "\n\n".join([text, *(each.rstrip() for each in sources)]) + "\n")


@pytest.mark.slow
def test_kernels_compile_for_sm_90() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.helpers.triton_programs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3 * len(PROGRAMS)
