"""What the stress tests and `benchmarks/cache_stress.py` do to the persistent cache.

Each entry's members follow from its number, so that whoever loads one can say whether it is right.
`python -m tests.helpers.cache_stress FOLDER` fills a disk, and goes on.
"""

import contextlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from ctk.compiler.artifacts import container
from ctk.compiler.cache.entry import MAGIC, Key, write_entry
from ctk.compiler.cache.store import Store

KEYS = 20
_FORK = multiprocessing.get_context("fork")


def key_of(number: int) -> Key:
    return Key({"graph": f"graph {number}", "machine": "avx2", "torch": "2.13"})


def members_of(number: int) -> dict[str, bytes]:
    """Return 5 to 100 thousand bytes that nobody else has."""
    draw = Random(number)
    code = draw.randbytes(draw.randrange(5_000, 100_000))
    return {"kernel.so": code, "schedule.json": json.dumps([number]).encode(), "empty": b""}


def is_right(number: int, members: object) -> bool:
    assert hasattr(members, "items")
    return {name: bytes(data) for name, data in members.items()} == members_of(number)


# --- mutations ----------------------------------------------------------------------------------


def flip(path: Path, draw: Random) -> None:
    whole = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 1, 2, 50])):
        whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    path.write_bytes(whole)


def flip_at_the_end(path: Path, draw: Random) -> None:
    whole = bytearray(path.read_bytes())
    whole[-draw.randrange(1, 800)] ^= 1 << draw.randrange(8)
    path.write_bytes(whole)


def cut(path: Path, draw: Random) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: draw.randrange(len(whole))])


def lengthen(path: Path, draw: Random) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + draw.choice([draw.randbytes(9), whole, whole[-100:], b"\0"]))


def zero(path: Path, draw: Random) -> None:
    """A hole: blocks that a crash of the machine left unwritten."""
    whole = bytearray(path.read_bytes())
    start = draw.randrange(len(whole) - 64)
    end = min(len(whole), start + draw.choice([64, 512, 4096]))
    whole[start:end] = bytes(end - start) if any(whole[start:end]) else b"\1" * (end - start)
    path.write_bytes(whole)


def swap(path: Path, draw: Random) -> None:
    other = draw.choice([each for each in path.parent.iterdir() if each != path])
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def edit_text(path: Path, draw: Random) -> None:
    """Edit what the entry says of itself, and leave the seal as it is."""
    before, after = draw.choice([(b"2.13", b"2.12"), (b"avx2", b"avx5"), (b"graph", b"Graph")])
    path.write_bytes(path.read_bytes().replace(before, after))


def another_key(path: Path, draw: Random) -> None:
    """Write it anew under another key, with a seal that is right."""
    number = draw.randrange(KEYS)
    parts = {**key_of(number).parts, draw.choice(["torch", "machine", "more"]): "other"}
    write_entry(path, Key(parts), members_of(number), {})


def another_label(path: Path, draw: Random) -> None:
    """Seal a label anew that is no label."""
    label = draw.choice([b"", b"[]", b"{", b"null", b'{"parts": {}}', b"[" * 5000, b"\xff"])
    container.write(path, {"entry.json": label, "a": b"1"}, magic=MAGIC, private=True)


def another_kind(path: Path, draw: Random) -> None:
    container.write(path, members_of(0), magic=draw.choice(["ctk-package", "ctk", "entry"]))


def link(path: Path, draw: Random) -> None:
    other = draw.choice([each for each in path.parent.iterdir() if each != path])
    path.unlink()
    path.symlink_to(other)


MUTATIONS: tuple[Callable[[Path, Random], None], ...] = (
    flip, flip, flip, flip_at_the_end, flip_at_the_end, cut, cut, lengthen, zero, swap, swap,
    edit_text, another_key, another_label, another_kind, link,
)  # fmt: skip


def loaded_after_mutations(store: Store, count: int, seed: int) -> list[str]:
    """Mutate an entry, ask for each; return what was loaded and is not what was written."""
    draw, bad = Random(seed), list[str]()
    for turn in range(count):
        for number in range(4):
            if not (store.folder / key_of(number).digest).exists():
                assert store.put(key_of(number), members_of(number))
        mutate, mutated = draw.choice(MUTATIONS), draw.randrange(4)
        mutate(store.folder / key_of(mutated).digest, draw)
        for number in range(4):
            found = store.get(key_of(number))
            if found is None:
                continue
            if number == mutated or not is_right(number, found.members):
                bad.append(f"turn {turn}: {mutate.__name__}")
    return bad


# --- kills --------------------------------------------------------------------------------------


def work(store: Store, seed: int, ends: float = float("inf")) -> None:
    """Ask for entries and make those that are missing, until killed; note whatever is wrong."""
    draw = Random(seed)
    while time.monotonic() < ends:
        number = draw.randrange(KEYS)
        key, members = key_of(number), members_of(number)
        found = store.get(key)
        if found is None:
            with store.lock(key, seconds=20) as is_held:
                if not is_held:
                    (store.root / f"unheld-{seed}").touch()
                store.put(key, members)
        elif not is_right(number, found.members):
            (store.root / f"wrong-{seed}").touch()
        if draw.random() < 0.1:
            store.drop(key, "to be made again")
        store.notes.choose(f"choice {seed % 50}", str(seed))


def kill_at_random(store: Store, kills: int, seed: int, processes: int = 4) -> None:
    """Keep some processes at work; kill one of them after the other, and start another instead."""
    draw = Random(seed)
    numbers = iter(range(seed, 1 << 30))
    running = [_started(store, next(numbers)) for _ in range(processes)]
    try:
        for _ in range(kills):
            time.sleep(draw.uniform(0.0, 0.08))
            victim = running.pop(draw.randrange(len(running)))
            victim.kill()
            running.append(_started(store, next(numbers)))
            victim.join()
    finally:
        for each in running:
            each.kill()
            each.join()


def _started(store: Store, seed: int) -> multiprocessing.process.BaseProcess:
    worker = _FORK.Process(target=work, args=(store, seed))
    worker.start()
    return worker


# --- a disk that is full ------------------------------------------------------------------------


@contextlib.contextmanager
def failing(error: OSError, at: int) -> Iterator[list[str]]:
    """Let the `at`-th call that may write raise; yields the names of the calls so far."""
    calls: list[str] = []
    owners = {
        os: ("open", "fsync", "utime"),
        Path: ("mkdir", "replace", "unlink"),
        container: ("_write_members",),
    }
    before = [(owner, name, getattr(owner, name)) for owner in owners for name in owners[owner]]

    def patched(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            calls.append(name)
            if len(calls) == at:
                raise OSError(error.errno, error.strerror)
            return function(*args, **options)

        return call

    try:
        for owner, name, function in before:
            setattr(owner, name, patched(name, function))
        yield calls
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def fill(root: Path) -> None:
    """Write until the disk is full, and beyond; exit with an error if anything breaks."""
    store = Store(root, 1 << 30)
    kept = [store.put(key_of(number), members_of(number)) for number in range(KEYS)]
    assert kept[0] and not all(kept), kept
    for number in range(KEYS):
        with store.lock(key_of(number)):
            found = store.get(key_of(number))
            assert found is None or is_right(number, found.members)
    assert all(entry.problem is None for entry in store.verify())
    store.clear()
    random.seed(0)
    assert store.put(key_of(0), members_of(0))


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
