"""What trust allows, how it is given, and what the user's own words replace."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ctk as library
from ctk.compiler.errors import TrustError
from tests.helpers.cli import BROKEN_PASS, GOOD, ctk, write
from tests.helpers.hostile import Craft, first_call, listing, run_on, watched
from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

PASS = {"custom_passes": {"joint": ["sources/mine.py:function"]}}


@pytest.fixture
def craft(tmp_path: Path) -> Craft:
    """A case that carries a pass."""
    made = Craft.new(tmp_path)
    made.put("sources/mine.py", made.canary.file.read_text())
    made.list("sources/mine.py", source=True)
    made.manifest(lambda data: data.update(config=PASS))
    return made


def test_show_and_ls_only_read(craft: Craft) -> None:
    craft.manifest(lambda data: data.update(target="tvm", imports=[craft.canary.module]))
    craft.graph(lambda data: first_call(data).update(target=craft.canary.reference))
    assert "tvm" in run_on(craft, "show", codes=(0,)).out
    assert "tvm" in run_on(craft, "ls", codes=(0,)).out


def test_show_lists_what_needs_trust(craft: Craft) -> None:
    craft.manifest(lambda data: data.update(imports=["some_module"]))
    said = run_on(craft, "show", codes=(0,))
    assert "runs the pass 'sources/mine.py:function'" in said.out
    assert "imports the module 'some_module'" in said.out
    data = run_on(craft, "show", "--json", codes=(0,)).data
    assert [(each["kind"], each["what"]) for each in data["demands"]] == [
        ("pass", "'sources/mine.py:function'"),
        ("import", "'some_module'"),
    ]
    good = Craft.new(craft.folder.parent)
    assert "--trust" not in run_on(good, "show", codes=(0,)).out


def test_what_the_user_says_needs_no_trust(craft: Craft) -> None:
    run_on(craft, "repro", "--target", "eager", codes=(0,))
    run_on(craft, "repro", "--config", "custom_passes={}", codes=(0,))
    assert library.repro(craft.folder, target="aot_eager").judgement.verdict.value == "passes"
    said = run_on(craft, "repro", "--config", "fuel=3", codes=(2,))
    assert "runs the pass" in said.err
    said = run_on(craft, "repro", "--target", "ctk", codes=(2,))
    assert "runs the pass" in said.err


def test_an_allowed_module_allows_its_functions_only(craft: Craft) -> None:
    craft.manifest(lambda data: data.update(imports=["this_is_not_there"]))
    with pytest.raises(TrustError) as refused:
        library.load_case(craft.folder, allow_imports=["this_is_not_there"])
    assert "this_is_not_there" not in str(refused.value)
    assert "runs the pass" in str(refused.value)


def test_a_trusted_case_runs(craft: Craft) -> None:
    with watched(craft.canary) as seen:
        craft.manifest(lambda data: data.update(imports=[craft.canary.module]))
        library.load_case(craft.folder, trust=True)
    assert [event.split()[0] for event in seen.events][:1] == ["import"] or craft.canary.mark
    assert craft.canary.mark.exists()
    del sys.modules[craft.canary.module]
    craft.canary.mark.unlink()
    craft.manifest(lambda data: data.update(imports=[]))
    assert ctk("repro", craft.folder, "--trust").code == 0
    assert craft.canary.mark.read_text() == "called"


def test_trust_is_for_one_command(craft: Craft, tmp_path: Path) -> None:
    before = listing(craft.folder)
    assert ctk("repro", craft.folder, "--trust").code == 0
    assert listing(craft.folder) == before
    craft.canary.mark.unlink()
    run_on(craft, "repro", codes=(2,))


def test_a_program_of_the_user_needs_no_trust(tmp_path: Path) -> None:
    assert ctk("repro", write(tmp_path, "broken.py", BROKEN_PASS + GOOD)).code == 1


@pytest.mark.parametrize("command", ["check", "repro", "diagnose"])
def test_a_harmless_case_is_judged_and_writes_below_out_only(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    run_on(Craft.new(tmp_path), command, codes=(0,))
    assert listing(here) == []


def test_an_emitted_repro_carries_what_its_case_runs(tmp_path: Path) -> None:
    program = write(tmp_path, "broken.py", BROKEN_PASS + GOOD)
    assert ctk("repro", program, "--out", tmp_path / "cases").code == 1
    text = (tmp_path / "cases" / "graph0" / "repro.py").read_text()
    assert "sources/broken.py:negate_relu" in text


SCRIPT = """
import torch
import my_pass

def f(x):
    return torch.relu(x) + 1

if __name__ == "__main__":
    x = torch.linspace(-1, 1, 5)
    torch.compile(f, backend="ctk", options={"custom_passes": {"joint": [my_pass.negate_relu]}})(x)
"""


def test_the_printed_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _, _ = BROKEN_PASS.partition("def config")
    write(tmp_path, "my_pass.py", text)
    script = write(tmp_path, "train.py", SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [warm_python().with_name("ctk"), "run", "--out", "dumps", script]
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stderr
    printed = [
        line.partition("ctk ")[2].partition("  #")[0]
        for line in [*done.stdout.splitlines(), *done.stderr.splitlines()]
        if " ctk repro " in line or " ctk minify " in line or "ctk diagnose " in line
    ]
    assert len(printed) >= 4, done.stdout + done.stderr
    for each in printed:
        words = shlex.split(each)
        assert words[-1] == "--trust", each
    assert ctk(*shlex.split(next(each for each in printed if each.startswith("repro")))).code == 1
    torch.compiler.reset()
