"""Whole compiles with a persistent cache: many at once, killed, on a full disk, with no folder."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.store import Store, open_store
from tests.helpers.compile_stress import GRAPHS, compiled_at_once, kill_at_random
from tests.helpers.project import ROOT

SEED = 20261123


@pytest.fixture
def store(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cache, and a folder for temporary files, of the test's own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = open_store()
    assert found is not None
    return found


def wrong(store: Store) -> list[str]:
    return [f"{path.name} {path.read_text()}" for path in store.root.glob("wrong-*")]


@pytest.mark.slow
def test_eight_processes_compile_each_of_twenty_graphs_once(store: Store) -> None:
    assert compiled_at_once(store.root, processes=8) == [0] * 8
    assert wrong(store) == []
    events = Counter(event.kind for event in store.notes.events())
    assert (events["stored"], events["hit"]) == (GRAPHS, 7 * GRAPHS)
    assert len(store.entries()) == GRAPHS
    assert list((store.root / "locks").iterdir()) == []


@pytest.mark.slow
def test_a_hundred_kills_of_compiles(store: Store, tmp_path: Path) -> None:
    kill_at_random(store.root, 100, SEED)
    assert wrong(store) == []
    assert [entry for entry in store.verify() if entry.problem] == []
    for path in (store.root / "locks").iterdir():
        with store.lock(Key({"lock": path.name}), seconds=0) as is_held:
            assert is_held
    assert compiled_at_once(store.root, processes=1) == [0]
    store.put(Key({}), {})  # after each write what killed processes left is removed
    assert len(list(store.folder.iterdir())) == GRAPHS + 1
    assert list((store.root / "locks").iterdir()) == []
    assert {path.name for path in store.root.iterdir()} == {"entries", "locks", "notes.sqlite3"}
    left = list((tmp_path / "tmp").iterdir())
    assert len(left) <= 100, "one folder of a compiler for each kill at most: ctk sweeps them"
    subprocess.run([sys.executable, "-c", SWEEP], check=True, env=environment())
    assert list((tmp_path / "tmp").iterdir()) == []


SWEEP = "from ctk.toolkit.processes.scratch import sweep; sweep()"
COMPILES = [sys.executable, "-m", "tests.helpers.compile_stress"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.slow
def test_a_program_runs_on_with_a_full_disk(store: Store) -> None:
    mount = f"mount -t tmpfs -o size=200k tmpfs {store.root}"
    unshare = [shutil.which("unshare") or "false", "-rm", "sh", "-c"]
    if subprocess.run([*unshare, mount], check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    ended = subprocess.run(
        [*unshare, f'{mount} && chmod 700 {store.root} && exec "$@"', "sh", *COMPILES],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert ended.returncode == 0, ended.stderr
    assert 0 < int(ended.stdout.split()[0]) < GRAPHS
    assert "No space left on device" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.slow
def test_a_program_runs_on_without_a_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    folder = environment(CTK_CACHE_DIR=str(tmp_path / "file" / "cache"))
    ended = subprocess.run(COMPILES, check=False, capture_output=True, text=True, env=folder)
    assert (ended.returncode, ended.stdout) == (0, "0 entries\n"), ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
