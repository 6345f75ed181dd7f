"""The sample repository with all its libraries: the plugin names the eight planted failures."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.toolkit.ci.collect import collect_outcomes
from tests.helpers.project import ROOT

SAMPLE = ROOT / "examples" / "ci" / "sample"
PLANTED = {
    f"tests/{name}"
    for name in re.findall(r"^\| `(\S+)` \|", (SAMPLE / "README.md").read_text(), re.M)
}


@pytest.mark.ecosystem
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["", "xdist"])
def test_the_plugin_names_the_planted_failures(workers: tuple[str, ...], tmp_path: Path) -> None:
    for package in ("transformers", "torchvision"):
        pytest.importorskip(package, reason="make test-ecosystem installs it")
    assert len(PLANTED) == 8
    sample = shutil.copytree(SAMPLE, tmp_path / "sample")
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--ctk=check",
        *workers,
    ]
    done = subprocess.run(words, cwd=sample, capture_output=True, text=True, check=False)
    assert "8 failed" in done.stdout, done.stdout + done.stderr
    outcomes = collect_outcomes(sample / "ctk_dumps").outcomes
    assert {each.test for each in outcomes if each.fails and not each.known} == PLANTED
