"""The Makefile explains itself, and needs nothing that it does not install."""

import re
import subprocess

from tests.helpers.project import ROOT

TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_help_is_the_default_and_shows_each_target() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    phony = re.search(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)
    assert phony
    shown = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert shown == set(phony[1].split())


def test_wanted_targets_exist() -> None:
    wanted = {"demo", "test", "test-slow", "test-gpu", "lint", "bench", "clean", "help"}
    assert wanted <= set(re.findall(r"^([a-z-]+):", TEXT, re.MULTILINE))


def test_tools_come_from_the_virtual_environment() -> None:
    commands = [line.strip(" \t@") for line in TEXT.splitlines() if line.startswith("\t")]
    loose = [c for c in commands if re.match(r"(python3?|pip|pytest|ruff|pyright|ctk)\b", c)]
    assert not loose


def test_ci_runs_what_contributors_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    lines = script.read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("make")]
    assert commands == ["make lint", "make docs", "make test", "make test-newest"]
    assert any(line.endswith("then make test-browser; fi") for line in lines)
