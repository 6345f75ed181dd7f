"""Notes: none is lost among many writers, and no damage stops a program."""

import multiprocessing
import os
import random
import sqlite3
from pathlib import Path

import pytest

from ctk.compiler.cache_folder import notes as module
from ctk.compiler.cache_folder.folder import forget_warnings
from ctk.compiler.cache_folder.notes import Notes
from tests.helpers.forking import FORKS


@pytest.fixture(autouse=True)
def unsaid() -> None:
    forget_warnings()


def test_choices(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert notes.choice("a") is None
    notes.choose("a", "1")
    notes.choose("a", "2")
    assert (notes.choice("a"), notes.choice("b")) == ("2", None)
    assert notes.path.stat().st_mode & 0o777 == 0o600
    notes.clear()
    assert not list(tmp_path.iterdir())
    assert notes.choice("a") is None


def test_events_and_hits(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.tell("miss", "e1", "no such entry", {"graph": "1"})
    notes.tell("hit", "e1")
    notes.tell("hit", "e1")
    notes.tell("hit", "e2")
    assert [event.kind for event in notes.events()] == ["hit", "hit", "hit", "miss"]
    assert notes.events()[-1].parts == {"graph": "1"}
    assert notes.hits() == {"e1": 2, "e2": 1}
    notes.tell("evicted", "e2")
    assert notes.hits() == {"e1": 2}


def test_they_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 5)
    monkeypatch.setattr(module, "MOST_CHOICES", 5)
    notes = Notes(tmp_path)
    for number in range(20):
        notes.tell("miss", str(number))
        notes.choose(str(number), "x")
    assert [event.entry for event in notes.events()] == ["19", "18", "17", "16", "15"]
    assert [notes.choice(str(number)) for number in (14, 15)] == [None, "x"]


def keep_some(root: Path, first: int) -> None:
    for number in range(first, first + 25):
        Notes(root).choose(str(number), f"value {number}")


@FORKS
def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=keep_some, args=(tmp_path, 25 * n)) for n in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    notes = Notes(tmp_path)
    assert [notes.choice(str(n)) for n in range(100)] == [f"value {n}" for n in range(100)]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(84)])
def test_a_file_of_others_is_replaced(tmp_path: Path, content: bytes) -> None:
    notes = Notes(tmp_path)
    notes.path.write_bytes(content)
    notes.path.with_name(f"{notes.path.name}-journal").write_bytes(content)
    assert notes.choice("a") is None
    notes.choose("a", "1")
    assert notes.choice("a") == "1"
    with sqlite3.connect(notes.path) as connection:
        connection.execute("DROP TABLE choices")
    connection.close()
    assert notes.choice("a") is None
    notes.choose("a", "1")
    assert notes.choice("a") == "1"


def test_no_damaged_choice_is_used(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    for number in range(10):
        notes.choose(f"name {number}", f"value {number}")
    whole = notes.path.read_bytes()
    draw = random.Random(0)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 1, 30])):
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        notes.path.write_bytes(damaged[: draw.choice([len(whole), draw.randrange(len(whole))])])
        for number in range(10):
            assert notes.choice(f"name {number}") in (None, f"value {number}")
        notes.tell("hit", "a")
        notes.events(), notes.hits()


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").mkdir()
    notes = Notes(tmp_path / "cache")
    notes.path.symlink_to(tmp_path / "elsewhere")
    notes.choose("a", "1")
    notes.choose("a", "1")
    assert not (tmp_path / "elsewhere").exists()
    assert len(caplog.records) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes(tmp_path)
    notes.choose("a", "1")
    notes.path.chmod(0o400)
    tmp_path.chmod(0o500)
    notes.choose("b", "1")
    assert notes.choice("a") == "1"
    tmp_path.chmod(0o700)


def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect = sqlite3.connect

    def nearly_full(*args: object, **options: object) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.execute("PRAGMA max_page_count = 5")  # then "database or disk is full"
        return connection

    notes = Notes(tmp_path)
    notes.choose("a", "1")
    monkeypatch.setattr(sqlite3, "connect", nearly_full)
    for number in range(200):
        notes.choose(str(number), "x" * 100)
    assert notes.choice("a") == "1"
    assert "full" in caplog.text
    assert len(caplog.records) == 1
