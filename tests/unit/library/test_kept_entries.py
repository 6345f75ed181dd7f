"""A diagnosis of a compile that the persistent cache has: told, asked anew, removed if wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.store import Store, open_store
from tests.helpers.cli import BROKEN_PASS, GOOD, write
from tests.helpers.cli import ctk as command
from tests.helpers.project import ROOT

USED = """
import runpy
import sys

import torch

program = runpy.run_path(sys.argv[1])
config = program["config"]() if "config" in program else {}
run = torch.compile(program["model"](), backend="ctk", options=config)
torch.manual_seed(0)
print(run(*program["inputs"]()).sum().item())
"""

TWICE = """
import torch

def model():
    return lambda x: torch.relu(x) * 2

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""


def use(program: Path) -> None:
    """Run the program as its user does, in a process of its own: its compile is kept."""
    script = write(program.parent, "use.py", USED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, script, program], env=environment, check=True, timeout=300)


def diagnose(name: str, program: Path, *more: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    code = "from ctk.toolkit.cli.main import main; main()"
    words = [sys.executable, "-c", code, name, str(program), *map(str, more)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def the_store() -> Store:
    store = open_store()
    assert store is not None
    return store


def swap(store: Store, wrong: Path, right: Path) -> None:
    """Put what was compiled for one program under the key of another: sealed, sound, and wrong."""
    use(right)
    (entry,) = store.entries()
    key = Key(entry.label.parts)
    store.discard(entry, "test")
    use(wrong)
    (other,) = store.entries()
    container = store.get(Key(other.label.parts))
    assert container is not None
    store.put(key, dict(container.members), dict(other.label.about))
    store.discard(other, "test")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diagnose", "bisect-pass", "minify"])
def test_a_kept_miscompile_is_bisected_and_removed(cache: Path, tmp_path: Path, name: str) -> None:
    program = write(tmp_path, "broken.py", GOOD + BROKEN_PASS)
    use(program)
    store = the_store()
    (entry,) = store.entries()
    said = diagnose(name, program, "--out", tmp_path / "out", "--json")
    assert said.returncode == 1, said.stderr
    kept = json.loads(said.stdout)["kept"]
    assert kept["entries"] == [entry.digest]
    assert kept["removed"].startswith("ctk has proved joint/")
    assert not store.entries()
    why = command("cache", "why")
    assert why.first.startswith("dropped ")
    assert f"{entry.digest[:12]} is not in the cache now: ctk has proved joint/" in why.first
    if name == "diagnose":
        told = diagnose("diagnose", program, "--out", tmp_path / "out", "--resume")
        assert f"had entry {entry.digest[:12]} of the persistent cache" in told.stdout
        assert "it was removed: " in told.stdout


@pytest.mark.slow
def test_an_entry_that_alone_is_wrong_is_removed(cache: Path, tmp_path: Path) -> None:
    right = write(tmp_path, "right.py", TWICE)
    wrong = write(tmp_path, "wrong.py", TWICE.replace("* 2", "* 3"))
    cache.mkdir(mode=0o700, exist_ok=True)
    store = the_store()
    swap(store, wrong, right)
    (entry,) = store.entries()
    said = diagnose("diagnose", right, "--out", tmp_path / "out")
    assert said.returncode == 1, said.stdout + said.stderr
    first = said.stdout.partition("\n")[0]
    assert "fails only as the persistent cache has it (removed); recompiled, it passes" in first
    assert f"fails as entry {entry.digest[:12]} of the persistent cache has it" in said.stdout
    assert not [each for each in store.entries() if each.digest == entry.digest]
    assert "loaded from it" in command("cache", "why").first


@pytest.mark.slow
def test_a_right_entry_stays(cache: Path, tmp_path: Path) -> None:
    program = write(tmp_path, "right.py", TWICE)
    use(program)
    said = diagnose("diagnose", program, "--out", tmp_path / "out", "--json")
    assert said.returncode == 0, said.stderr
    kept = json.loads(said.stdout)["kept"]
    assert (kept["loaded"], kept["removed"]) == ("passes", "")
    assert len(the_store().entries()) == 1


@pytest.mark.slow
def test_other_random_numbers_are_no_wrong_entry(cache: Path, tmp_path: Path) -> None:
    text = TWICE.replace("torch.relu(x) * 2", "torch.relu(x) + torch.rand_like(x)")
    program = write(tmp_path, "draws.py", text)
    use(program)
    said = diagnose("diagnose", program, "--out", tmp_path / "out", "--json")
    assert said.returncode == 0, said.stdout + said.stderr
    kept = json.loads(said.stdout)["kept"]
    assert kept["loaded"] in ("passes", "flaky")
    assert len(the_store().entries()) == 1
