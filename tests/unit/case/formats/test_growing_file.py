"""A file that only grows: whole lines or none, one writer, and every damage noticed."""

import errno
import os
import signal
from pathlib import Path

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats import growing_file
from ctk.toolkit.case.formats.growing_file import create, read_lines, reopen
from tests.helpers.forking import FORKS

LINES = ['{"a":1}', '{"b":"two"}', '{"c":[3]}']


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with create(tmp_path / "lines.jsonl") as file:
        for line in LINES:
            file.append(line)
    return tmp_path / "lines.jsonl"


def texts(lines: list[bytes]) -> list[str]:
    return [line.decode() for line in lines]


def test_what_was_written_is_read_and_continued(path: Path) -> None:
    with reopen(path) as file:
        assert texts(file.lines) == LINES
        file.append('{"d":4}')
    assert texts(read_lines(path)) == [*LINES, '{"d":4}']
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_last_line_torn_at_any_byte_is_left_out(path: Path) -> None:
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for size in range(start, len(whole)):
        path.write_bytes(whole[:size])
        assert texts(read_lines(path)) == LINES[:2]
        with reopen(path) as file:
            file.append(LINES[2])
        assert path.read_bytes() == whole


def test_a_file_torn_in_its_first_line_is_an_empty_one(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 1):
        path.write_bytes(whole[:size])
        with reopen(path) as file:
            assert file.lines == []


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(len(whole) - 1):  # without the last line end a line is torn, not damaged
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(CaseError, match="is damaged: line"):
                read_lines(path)


def test_a_lost_or_moved_line_is_noticed(path: Path) -> None:
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for lines in ([first, third], [second, third], [second, first, third], [first, first]):
        path.write_bytes(b"".join(lines))
        with pytest.raises(CaseError, match="is damaged: line"):
            read_lines(path)


def test_a_full_disk_tears_nothing_and_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def half(descriptor: int, data: bytes, place: int) -> int:
        return write(descriptor, data[: len(data) // 2], place)

    def full(descriptor: int, data: bytes, place: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with reopen(path) as file:
        for failing in (half, full):
            monkeypatch.setattr(growing_file.os, "pwrite", failing)
            file.append('{"d":4}')
            monkeypatch.undo()
            assert "No space left" in file.problem
            assert texts(read_lines(path)) == LINES
        file.append('{"e":5}')
        assert not file.problem
    assert texts(read_lines(path)) == [*LINES, '{"d":4}', '{"d":4}', '{"e":5}']


def test_an_interrupt_after_a_write_writes_no_line_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite

    def interrupted(descriptor: int, data: bytes, place: int) -> int:
        write(descriptor, data, place)
        raise KeyboardInterrupt

    with reopen(path) as file:
        monkeypatch.setattr(growing_file.os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.append('{"d":4}')
        monkeypatch.undo()
        file.append('{"e":5}')
    assert texts(read_lines(path)) == [*LINES, '{"d":4}', '{"e":5}']


@FORKS
def test_the_lock_dies_with_its_process_and_no_child_of_it_has_it(path: Path) -> None:
    ready_out, ready_in = os.pipe()
    owner = os.fork()
    if owner == 0:
        reopen(path)
        grandchild = os.fork()
        if grandchild == 0:
            signal.pause()
        os.write(ready_in, str(grandchild).encode())
        signal.pause()
    grandchild = int(os.read(ready_out, 100))
    try:
        with pytest.raises(CaseError, match="is in use: another process of ctk works there"):
            reopen(path)
        assert texts(read_lines(path)) == LINES  # whoever only reads needs no lock
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        with reopen(path) as file:
            assert texts(file.lines) == LINES
    finally:
        os.kill(grandchild, signal.SIGKILL)
        os.close(ready_in)
        os.close(ready_out)


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "huge"])
def test_what_is_no_such_file_is_refused(
    kind: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = path.with_name("other.jsonl")
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(path)
    elif kind == "folder":
        place.mkdir()
    else:
        place = path
        monkeypatch.setattr(growing_file, "MAX_BYTES", 10)
    with pytest.raises(CaseError, match=r"not a plain file|is a link|more than the"):
        read_lines(place)
