"""The persistent cache under mutations, kills, full disks and many processes."""

import errno
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ctk.compiler.cache.store import Store
from ctk.compiler.cache_folder.folder import forget_warnings
from tests.helpers.cache_stress import (
    KEYS,
    failing,
    is_right,
    key_of,
    kill_at_random,
    loaded_after_mutations,
    members_of,
)

SEED = 20261123


@pytest.fixture
def store(tmp_path: Path) -> Store:
    forget_warnings()
    return Store(tmp_path, 1 << 30)


@pytest.mark.slow
def test_a_thousand_mutated_entries_are_not_loaded(store: Store) -> None:
    assert loaded_after_mutations(store, 1000, SEED) == []


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    """With room for half of the entries, so that some are evicted all the time."""
    store = Store(tmp_path, 600_000)
    kill_at_random(store, 100, SEED)
    assert [
        path.name for path in tmp_path.iterdir() if path.name.startswith(("wrong", "unheld"))
    ] == []
    assert [entry for entry in store.verify() if entry.problem] == []
    for number in range(KEYS):
        with store.lock(key_of(number), seconds=0) as is_held:
            assert is_held
            assert store.put(key_of(number), members_of(number))
    names = {path.name for path in store.folder.iterdir()}
    assert names <= {key_of(number).digest for number in range(KEYS)}, "something was left"
    assert list((tmp_path / "locks").iterdir()) == []
    assert sum(path.stat().st_size for path in store.folder.iterdir()) <= store.limit_nbytes
    store.notes.choose("one more", "1")
    assert store.notes.choice("one more") == "1"
    assert {path.name for path in tmp_path.iterdir()} == {"entries", "locks", "notes.sqlite3"}


@pytest.mark.slow
def test_each_call_that_writes_fails_in_turn(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for at in range(1, 100):
        with failing(error, at) as calls, store.lock(key_of(0)):
            found = store.get(key_of(0))
            assert found is None or is_right(0, found.members)
            store.put(key_of(0), members_of(0))
            assert store.verify() is not None
        if len(calls) < at:
            break
        found = store.get(key_of(0))
        assert found is None or is_right(0, found.members)
    else:
        pytest.fail("there is no end of calls")
    assert at > 10
    assert len(caplog.records) == 1, "one warning of a process about a folder"
    store.put(key_of(1), members_of(1))
    assert len(list(store.folder.iterdir())) == 2


@pytest.mark.slow
def test_each_length_at_which_a_file_may_end(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the write that passes it fails, wherever in the file that is."""
    forget_warnings()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    needed = 0
    try:
        for limit in [*range(0, 1024, 97), *range(1024, 200_000, 4999)]:
            store = Store(tmp_path / str(limit), 1 << 30)
            store.root.mkdir()
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            kept = store.put(key_of(3), members_of(3))
            found = store.get(key_of(3))
            assert (found is not None) == kept
            assert found is None or is_right(3, found.members)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert len(list(store.folder.iterdir())) == kept
            needed += not kept
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert needed > 10


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=300k tmpfs {tmp_path}"
    command = [sys.executable, "-m", "tests.helpers.cache_stress", str(tmp_path)]
    unshare = [shutil.which("unshare") or "false", "-rm", "sh", "-c"]
    if subprocess.run([*unshare, mount], check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    ended = subprocess.run(
        [*unshare, f'{mount} && chmod 700 {tmp_path} && exec "$@"', "sh", *command],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert any("No space left on device" in line for line in lines), lines
    assert len(lines) == 1, lines


def make_slowly(store: Store) -> None:
    for number in range(KEYS):
        key = key_of(number)
        if store.get(key) is None:
            with store.lock(key):
                if store.get(key) is None:
                    time.sleep(0.02)
                    with (store.root / "made").open("a") as made:
                        made.write(f"{number}\n")
                    assert store.put(key, members_of(number))
        found = store.get(key)
        assert found is not None
        assert is_right(number, found.members)


@pytest.mark.slow
def test_eight_processes_make_each_of_twenty_entries_once(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=make_slowly, args=(store,)) for _ in range(8)]
    for each in makers:
        each.start()
    for each in makers:
        each.join()
    assert [each.exitcode for each in makers] == [0] * 8
    made = sorted(map(int, (store.root / "made").read_text().split()))
    assert made == list(range(KEYS))
    assert sum(store.notes.hits().values()) >= 8 * KEYS
    assert list((store.root / "locks").iterdir()) == []
