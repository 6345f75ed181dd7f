"""A stranger's graph that never ends, or fills the memory, does not take ctk along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.toolkit.importers import Subject, load_cases, load_subject
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.processes.tree import find_carriers
from tests.helpers.cli import Said
from tests.helpers.endless import endless_case
from tests.helpers.hostile import Craft
from tests.helpers.project import ROOT


def ctk(command: str, case: Path, *options: str, seconds: float, **variables: str) -> Said:
    """Run a command with a mark that all it starts inherits; nothing may carry it afterwards."""
    code = f"from tests.helpers.endless import main; main({seconds})"
    process = subprocess.run(
        [sys.executable, "-c", code, command, str(case), "--json", *options],
        cwd=case.parent,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT), "ENDLESS": str(case)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not find_carriers(f"ENDLESS={case}")
    return Said(process.returncode, process.stdout, process.stderr)


def test_a_case_that_never_ends_is_ended(tmp_path: Path) -> None:
    said = ctk("check", endless_case(tmp_path), seconds=2)
    assert said.code == said.data["exit_code"] == 125, said.out + said.err
    assert "did nothing for 2 seconds" in said.err
    assert said.err.count("the command continues with --isolate --timeout 2") == 1
    (graph,) = said.data["graphs"]
    assert graph["judgement"]["verdict"] == "timeout"


@pytest.mark.slow
def test_a_case_that_fills_the_memory_is_ended(tmp_path: Path) -> None:
    case = endless_case(tmp_path, elements=200_000_000)
    said = ctk("repro", case, seconds=60, CTK_MEMORY="1G")
    assert said.code == said.data["exit_code"] == 125, said.out + said.err
    assert "holds more than 1G" in said.err
    (graph,) = said.data["graphs"]
    assert graph["signature"]["kind"] == "memory"


@pytest.mark.slow
def test_a_command_with_a_journal_goes_on_in_it(tmp_path: Path) -> None:
    options = ("--out", str(tmp_path / "out"))
    said = ctk("minify", endless_case(tmp_path), *options, seconds=2)
    assert said.code == said.data["exit_code"] == 125, said.out + said.err
    assert said.err.count("goes on with --isolate --timeout 2 --resume --out") == 1


def test_only_a_folder_without_trust_and_own_code_is_a_strangers(tmp_path: Path) -> None:
    folder = Craft.new(tmp_path).folder

    def says(subject: Subject, request: CaseOptions) -> bool:
        return load_subject(subject, request=request).is_untrusted

    assert says(folder, CaseOptions())
    assert says(folder, CaseOptions(target="inductor"))
    assert not says(folder, CaseOptions(trust=True))
    assert not says(folder, CaseOptions(target="tests.helpers.oracle_backends:right"))
    assert not says(folder, CaseOptions(allow_imports=("json",)))
    assert not says(load_cases(folder)[0], CaseOptions())
