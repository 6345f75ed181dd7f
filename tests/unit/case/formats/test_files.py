"""Files: private from the first moment, whole, through no planted link, and errors that say why."""

import errno
import os
import re
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from ctk.compiler.errors import ConfigError, StorageError
from ctk.toolkit.case.formats.files import (
    append_line,
    append_text,
    atomic_folder,
    claim_folder,
    make_folder,
    new_file,
    replace_file,
    scratch_folder,
    storage_error,
    temporary_folder,
    write_text,
)
from tests.helpers.modes import mode_of


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Generator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


WRITERS: dict[str, Callable[[Path], object]] = {
    "replace_file": lambda path: replace_file(path, b"x\n"),
    "write_text": lambda path: write_text(path, "x\n"),
    "append_line": lambda path: append_line(path, "x"),
    "append_text": lambda path: append_text(path, "x\n"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_private_whatever_the_umask(tmp_path: Path, name: str, umask: int):
    WRITERS[name](tmp_path / "file")
    assert mode_of(tmp_path / "file") == 0o600
    assert (tmp_path / "file").read_bytes() == b"x\n"


def test_folders_are_private_whatever_the_umask_and_so_are_missing_parents(
    tmp_path: Path, umask: int
):
    make_folder(tmp_path / "a" / "b" / "c")
    with atomic_folder(tmp_path / "d" / "e") as partial:
        write_text(partial / "file", "x")
    claim_folder([tmp_path / "f"])
    with scratch_folder(tmp_path / "g") as scratch, temporary_folder("ctk-test-") as temporary:
        assert mode_of(scratch) == mode_of(temporary) == 0o700
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.name for path in folders} == set("abcdef")
    assert {mode_of(path) for path in folders} == {0o700}


def test_sharing_lets_the_umask_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTK_SHARE", "1")
    before = os.umask(0o027)
    try:
        write_text(make_folder(tmp_path / "folder") / "file", "x")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "folder") == 0o750
    assert mode_of(tmp_path / "folder" / "file") == 0o640
    monkeypatch.setenv("CTK_SHARE", "perhaps")
    with pytest.raises(ConfigError, match=r"CTK_SHARE takes 1 .* not 'perhaps'"):
        write_text(tmp_path / "other", "x")


def test_folders_that_exist_keep_their_modes(tmp_path: Path):
    tmp_path.chmod(0o755)
    (tmp_path / "out").mkdir(mode=0o750)
    (tmp_path / "out").chmod(0o750)
    make_folder(tmp_path / "out")
    write_text(tmp_path / "file", "x")
    with atomic_folder(tmp_path / "out") as partial:
        write_text(partial / "file", "x")
    assert (mode_of(tmp_path), mode_of(tmp_path / "out")) == (0o755, 0o750)
    assert mode_of(tmp_path / "out" / "file") == 0o600


@pytest.mark.parametrize("name", WRITERS)
def test_no_byte_is_written_while_others_may_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    write, seen = os.write, list[int]()

    def watched(handle: int, data: bytes) -> int:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return write(handle, data)

    monkeypatch.setattr(os, "write", watched)
    before = os.umask(0)
    try:
        WRITERS[name](tmp_path / "file")
    finally:
        os.umask(before)
    assert seen and set(seen) == {0o600}


@pytest.mark.parametrize("name", WRITERS)
def test_a_planted_link_is_not_written_through(tmp_path: Path, name: str):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    link.symlink_to(victim)
    if name.startswith("append"):
        with pytest.raises(StorageError, match="a link is in its place"):
            WRITERS[name](link)
    else:
        WRITERS[name](link)
        assert not link.is_symlink() and link.read_text() == "x\n"
    assert victim.read_text() == "mine"


def test_a_planted_partial_is_neither_followed_nor_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda nbytes: "0" * 2 * nbytes)  # it was guessed
    (tmp_path / f".file-{os.getpid()}-00000000.partial").symlink_to(victim)
    with pytest.raises(StorageError):
        replace_file(tmp_path / "file", b"x")
    assert victim.read_text() == "mine" and not (tmp_path / "file").exists()


def test_a_new_file_is_new(tmp_path: Path):
    new_file(tmp_path / "file")
    assert mode_of(tmp_path / "file") == 0o600
    with pytest.raises(StorageError):
        new_file(tmp_path / "file")


def full_disk(handle: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    write_text(path, "old\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        for writer in WRITERS.values():
            with pytest.raises(StorageError, match=r"No space left.*MiB are free; free some"):
                writer(path)
    assert path.read_text() == "old\n"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fills_up_within_a_line_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write, path = os.write, tmp_path / "log"
    append_line(path, "first")
    room = iter([3])

    def nearly_full(handle: int, data: memoryview) -> int:
        nbytes = next(room, 0)
        return write(handle, data[:nbytes]) if nbytes else full_disk(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        with pytest.raises(StorageError):
            append_line(path, "second")
    append_line(path, "third")
    assert path.read_text() == "first\nthird\n"


def test_a_torn_last_line_stays_alone(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("first\nsec")  # killed within its write
    append_line(path, "third")
    assert path.read_text() == "first\nsec\nthird\n"


def test_lines_of_many_writers_stay_whole(tmp_path: Path):
    def write(name: str) -> None:
        for _ in range(200):
            append_line(tmp_path / "log", name * 300)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 800 and {len(line) for line in lines} == {300}
    assert all(len(set(line)) == 1 for line in lines)


LIMITED = """
import resource, sys
from pathlib import Path
from ctk.compiler.errors import StorageError
from ctk.toolkit.case.formats.files import append_line, replace_file
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
out = Path(sys.argv[1])
for write in (lambda: replace_file(out / "file", b"y" * 101), lambda: append_line(out / "log", "y" * 101)):
    try:
        write()
    except StorageError as error:
        print(error)
"""  # noqa: E501  a script


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of a file's size here")
def test_a_file_size_limit_is_said_and_leaves_the_old_files(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "log").write_text("old\n")
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(re.findall(r"File too large; next: .*ulimit -f", done.stdout)) == 2
    assert (tmp_path / "file").read_text() == "old" and (tmp_path / "log").read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_device(tmp_path: Path):
    with pytest.raises(StorageError, match=r"/dev/full cannot be written: No space left"):
        append_line(Path("/dev/full"), "x")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file/below", r"file is a file: name another folder"),
        ("file", r"file is a file: name another folder"),
        ("n" * 300, r"File name too long; next: choose a shorter name"),
        ("/proc/below", r"/proc/below cannot be written: .*; next: "),
    ],
)
def test_what_cannot_be_a_folder_says_why(tmp_path: Path, place: str, said: str):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=said):
        make_folder(tmp_path / place)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO, None])
def test_every_reason_has_a_next_step(tmp_path: Path, number: int | None):
    error = OSError(number, os.strerror(number)) if number else OSError("odd")
    said = str(storage_error(tmp_path / "file", error))
    assert str(tmp_path / "file") in said and "; next: " in said
