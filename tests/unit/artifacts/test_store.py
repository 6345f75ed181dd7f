"""The persistent cache: what it gives back, what it refuses, and that it does not grow or break."""

import errno
import logging
import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from ctk.compiler.artifacts import container
from ctk.compiler.artifacts.partial_files import PREFIX
from ctk.compiler.cache import entry
from ctk.compiler.cache.entry import Key, KeyDifference, write_entry
from ctk.compiler.cache.store import Store, open_store
from ctk.compiler.cache_folder.folder import forget_warnings
from ctk.compiler.usercode.process_name import process_name
from tests.helpers.forking import FORKS

KEY = Key({"graph": "abs(x)", "torch": "2.13"})
OTHER = Key({"graph": "abs(y)", "torch": "2.13"})
MEMBERS = {"kernel.so": b"code" * 50, "schedule.json": b"[]"}


@pytest.fixture(autouse=True)
def unsaid() -> None:
    forget_warnings()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, 1 << 20)


def contents(store: Store, key: Key) -> dict[str, bytes] | None:
    found = store.get(key)
    return None if found is None else {name: bytes(data) for name, data in found.members.items()}


def left(store: Store) -> list[str]:
    """Return every file of the cache but its notes."""
    found = (path for path in store.root.rglob("*") if path.is_file())
    return sorted(path.name for path in found if path.parent != store.root)


def kinds(store: Store) -> list[str]:
    return [event.kind for event in store.notes.events()]


def test_what_was_kept_comes_back(store: Store) -> None:
    assert store.get(KEY) is None
    assert store.put(KEY, MEMBERS, {"nodes": 3, "device": "cpu"})
    assert contents(store, KEY) == MEMBERS
    assert store.get(OTHER) is None
    assert store.put(KEY, {"other": b"1"})
    assert contents(store, KEY) == {"other": b"1"}
    assert kinds(store) == ["hit", "stored", "miss", "hit", "stored", "miss"]
    assert [path.stat().st_mode & 0o777 for path in store.folder.iterdir()] == [0o600]
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_a_key_is_its_parts() -> None:
    assert Key({"b": "1", "a": "2"}).digest == Key({"a": "2", "b": "1"}).digest
    digests = {Key(parts).digest for parts in ({}, {"a": ""}, {"a": "b"}, {"ab": ""}, {"b": "a"})}
    assert len(digests) == 5


def test_what_is_listed(store: Store) -> None:
    store.put(KEY, MEMBERS, {"nodes": 3, "device": "cpu"})
    store.put(OTHER, MEMBERS)
    store.get(KEY)
    os.utime(store.folder / OTHER.digest, (1, 1))
    first, second = store.entries()
    assert (first.digest, first.hits, second.digest, second.hits) == (
        KEY.digest,
        1,
        OTHER.digest,
        0,
    )
    assert first.label.about == {"nodes": 3, "device": "cpu"}
    assert first.label.parts == KEY.parts


def test_the_nearest_entry(store: Store) -> None:
    assert store.nearest(KEY) is None
    store.put(KEY, MEMBERS)
    store.put(Key({"graph": "z", "torch": "2.12"}), MEMBERS)
    found = store.nearest(Key({"graph": "abs(x)", "torch": "2.11", "machine": "avx2"}))
    assert found is not None
    assert found[0].digest == KEY.digest
    assert found[1] == [
        KeyDifference("machine", None, "avx2"),
        KeyDifference("torch", "2.13", "2.11"),
    ]


@pytest.mark.parametrize(
    "harm", ["flip", "cut", "add", "empty", "swap", "rename", "other key", "no label", "link"]
)
def test_nothing_wrong_is_loaded(store: Store, caplog: pytest.LogCaptureFixture, harm: str) -> None:
    store.put(KEY, MEMBERS)
    store.put(OTHER, {"kernel.so": b"other"})
    path, other = store.folder / KEY.digest, store.folder / OTHER.digest
    whole = path.read_bytes()
    if harm == "flip":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif harm == "cut":
        path.write_bytes(whole[:-1])
    elif harm == "add":
        path.write_bytes(whole + b"\0")
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "swap":
        path.write_bytes(other.read_bytes())
    elif harm == "rename":
        other.replace(path)
    elif harm == "other key":  # with a seal that is right
        write_entry(path, OTHER, MEMBERS, {})
    elif harm == "no label":
        container.write(path, MEMBERS, magic=entry.MAGIC, private=True)
    else:
        path.unlink()
        path.symlink_to(other)
    (bad,) = (each for each in store.verify() if each.problem)
    assert bad.digest == KEY.digest
    assert store.get(KEY) is None
    assert "is not used" in caplog.text
    assert not path.exists()
    assert kinds(store)[:2] == ["miss", "dropped"]
    assert store.put(KEY, MEMBERS)
    assert contents(store, KEY) == MEMBERS


def test_a_file_that_others_may_write_is_not_loaded(store: Store) -> None:
    store.put(KEY, MEMBERS)
    (store.folder / KEY.digest).chmod(0o666)
    assert store.get(KEY) is None


def test_a_link_out_of_the_cache_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.put(KEY, MEMBERS)
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    store.folder.rename(elsewhere)
    store.folder.symlink_to(elsewhere)
    assert store.get(KEY) is None
    assert not store.put(KEY, MEMBERS)
    assert store.clear() == 0
    assert store.verify() == []
    assert [path.name for path in elsewhere.iterdir()] == [KEY.digest]


def test_the_least_recently_used_go(tmp_path: Path) -> None:
    store = Store(tmp_path, 100_000)
    keys = [Key({"number": str(number)}) for number in range(9)]
    for age, key in enumerate(keys[:7]):
        store.put(key, {"a": bytes(12_000)})
        os.utime(store.folder / key.digest, (1000 + age, 1000 + age))
    opened = store.get(keys[0])  # used just now
    for key in keys[7:]:
        store.put(key, {"a": bytes(12_000)})
    kept = [key.parts["number"] for key in keys if (store.folder / key.digest).exists()]
    assert kept == ["0", "3", "4", "5", "6", "7", "8"]
    assert sum(each.nbytes for each in store.entries()) <= 100_000
    assert kinds(store).count("evicted") == 2
    store.clear()
    assert opened is not None
    assert bytes(opened.members["a"]) == bytes(12_000)  # who has opened it keeps it


def test_what_is_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, 1000)
    assert not store.put(KEY, {"a": bytes(2000)})
    assert left(store) == []
    assert store.notes.events()[0].why == (
        "it is too large: it has 2,000 bytes, and the cache may have 1,000"
    )


def test_what_killed_processes_left_is_swept(store: Store) -> None:
    store.put(KEY, MEMBERS)
    place, pid, start = process_name().rsplit("-", 2)
    mine = store.folder / f"{PREFIX}{place}-{pid}-{start}-00"
    dead = store.folder / f"{PREFIX}{place}-{pid}-{int(start) + 1}-00"
    abroad, old = (store.folder / f"{PREFIX}{p}-1-1-00" for p in ("00000000", "00000001"))
    for path in (mine, dead, abroad, old, store.root / "locks" / "left"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    os.utime(old, (1, 1))
    store.put(OTHER, MEMBERS)
    assert left(store) == sorted([KEY.digest, OTHER.digest, mine.name, abroad.name])
    assert [entry.problem for entry in store.verify()] == [None, None]


def test_clear(store: Store) -> None:
    store.put(KEY, MEMBERS)
    store.put(OTHER, MEMBERS)
    assert store.clear() == 2
    assert [path.name for path in store.root.iterdir()] == ["entries"]


def test_verify_tells_strangers(store: Store) -> None:
    store.put(KEY, MEMBERS)
    (store.folder / "notes.txt").touch()
    assert [each.problem for each in store.verify()] == [None, "it is not an entry"]


# --- locks --------------------------------------------------------------------------------------


def test_a_lock_leaves_nothing(store: Store) -> None:
    with store.lock(KEY) as one, store.lock(OTHER) as two:
        assert one and two
        assert left(store) == sorted([KEY.digest, OTHER.digest])
    assert left(store) == []


def test_a_stuck_holder_is_not_waited_for(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.lock(KEY):
        thread_saw: list[bool] = []

        def wait() -> None:
            with store.lock(KEY, seconds=0.1) as is_held:
                thread_saw.append(is_held)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        assert thread_saw == [False]
        store.put(OTHER, MEMBERS)  # sweeps, but not what is held
        assert (store.root / "locks" / KEY.digest).exists()
    assert "another process makes this graph" in caplog.text


def hold_forever(root: Path, key: Key) -> None:
    with Store(root, 1 << 20).lock(key):
        (root / "held").touch()
        time.sleep(600)


@FORKS
def test_a_killed_holder_lets_go(store: Store) -> None:
    holder = multiprocessing.get_context("fork").Process(
        target=hold_forever, args=(store.root, KEY)
    )
    holder.start()
    while not (store.root / "held").exists():
        time.sleep(0.01)
    holder.kill()
    with store.lock(KEY) as is_held:
        assert is_held
    holder.join()
    assert left(store) == []


def make_each(root: Path, count: int) -> None:
    store = Store(root, 1 << 30)
    for number in range(count):
        key = Key({"number": str(number)})
        if store.get(key) is None:
            with store.lock(key):
                if store.get(key) is None:
                    with (root / "made").open("a") as made:
                        made.write(f"{number}\n")
                    store.put(key, {"a": str(number).encode() * 1000})


@FORKS
def test_several_processes_make_each_entry_once(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=make_each, args=(store.root, 8)) for _ in range(4)]
    for each in makers:
        each.start()
    for each in makers:
        each.join()
    assert sorted((store.root / "made").read_text().split()) == [str(n) for n in range(8)]
    assert len(left(store)) == 8


# --- a system that does not let it --------------------------------------------------------------


WRITING = ["open", "fsync", "write", "mkdir", "rename"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("at", WRITING)
def test_a_full_or_read_only_disk(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    at: str,
    number: int,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if at == "open":
            patch.setattr(os, "open", refuse)
        elif at == "fsync":
            patch.setattr(os, "fsync", refuse)
        elif at == "mkdir":
            patch.setattr(Path, "mkdir", refuse)
        elif at == "rename":
            patch.setattr(Path, "replace", refuse)
        else:
            patch.setattr(container, "_write_members", refuse)
        for _ in range(3):
            with store.lock(KEY):
                assert store.get(KEY) is None
                assert not store.put(KEY, MEMBERS)
    assert len(caplog.records) == 1
    assert left(store) == []
    assert store.put(KEY, MEMBERS)


def test_too_many_open_files_drop_no_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, MEMBERS)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert store.get(KEY) is None
    assert contents(store, KEY) == MEMBERS


def test_the_store_that_the_variables_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CTK_CACHE_SIZE", "5M")
    found = open_store()
    assert found == Store(tmp_path / "cache", 5 << 20)
    monkeypatch.setenv("CTK_CACHE", "0")
    assert open_store() is None
    monkeypatch.setenv("CTK_CACHE", "1")
    (tmp_path / "cache").chmod(0o777)
    with caplog.at_level(logging.WARNING, "ctk.cache"):
        assert open_store() is None
    assert len(caplog.records) == 1
