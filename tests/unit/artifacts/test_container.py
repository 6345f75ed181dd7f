"""Containers: what is read is what was written, or nothing is read."""

import os
import random
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from ctk.compiler.artifacts import container
from ctk.compiler.artifacts.container import Bytes, open_container, write
from ctk.compiler.errors import ContainerError, StorageError
from tests.helpers.forking import FORKS

MEMBERS: dict[str, Bytes] = {"meta.json": b"{}", "weights/0": bytes(range(100)), "empty": b""}
SEAL = len(container._seal("ctk-package", "0" * 64, 0))


def written(path: Path, members: dict[str, Bytes] = MEMBERS) -> Path:
    write(path, members)
    return path


def is_refused(path: Path) -> bool:
    try:
        open_container(path)
    except ContainerError as error:
        return str(path) in str(error) and "next: " in str(error)
    return False


def resealed(path: Path, body: bytes) -> Path:
    """Write a file whose seal is right, as somebody who means harm can."""
    digest, crc = container._sums([body])
    path.write_bytes(body + container._seal("ctk-package", digest, crc))
    return path


def test_members_come_back_aligned_and_writable(tmp_path: Path) -> None:
    found = open_container(written(tmp_path / "a.ctk"))
    assert {name: bytes(view) for name, view in found.members.items()} == MEMBERS
    assert list(found.members) == list(MEMBERS)
    assert re.fullmatch("[0-9a-f]{64}", found.digest)
    weights = torch.frombuffer(found.members["weights/0"], dtype=torch.uint8)
    assert weights.data_ptr() % container.ALIGNMENT == 0
    before = found.path.read_bytes()
    weights.fill_(7)
    assert found.path.read_bytes() == before
    del found
    assert weights.sum() == 700


@FORKS
def test_a_forked_child_and_a_second_opening_see_no_writes(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    found = open_container(path)
    if (child := os.fork()) == 0:
        found.members["weights/0"][0] = 255
        os._exit(0)
    os.waitpid(child, 0)
    assert found.members["weights/0"][0] == 0
    found.members["weights/0"][0] = 254
    assert open_container(path).members["weights/0"][0] == 0


def test_a_large_one_is_mapped_and_a_small_one_holds_no_file_open(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    small, large = written(tmp_path / "a"), written(tmp_path / "b", {"a": bytes(2 << 20)})
    before = open_files()
    kept = [open_container(small) for _ in range(10)]
    assert open_files() == before
    one = open_container(large)
    one.members["a"][0] = 1
    assert open_container(large).members["a"][0] == 0
    del kept


def test_it_is_a_zip_and_equal_members_make_equal_files(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one"), written(tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
        assert archive.read("weights/0") == MEMBERS["weights/0"]
        assert archive.comment.startswith(b"ctk-package 1 sha256=")


@pytest.mark.parametrize("members", [{}, {"ä/ö": b"1"}, {str(n): b"x" * n for n in range(200)}])
def test_few_and_many_members(tmp_path: Path, members: dict[str, Bytes]) -> None:
    found = open_container(written(tmp_path / "a", members))
    assert {name: bytes(view) for name, view in found.members.items()} == members


def test_views_of_any_shape_are_written(tmp_path: Path) -> None:
    floats = torch.arange(6, dtype=torch.float64).reshape(2, 3).numpy()
    path = written(tmp_path / "a", {"t": memoryview(floats), "none": memoryview(floats[:0])})
    found = open_container(path).members
    assert bytes(found["t"]) == floats.tobytes()
    assert found["none"].nbytes == 0


def test_no_flipped_bit_is_accepted(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    path = tmp_path / "flipped"
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        path.write_bytes(flipped)
        assert is_refused(path), f"byte {place}"


def test_no_other_length_is_accepted(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    path = tmp_path / "other"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert is_refused(path), f"the first {length} bytes"
    for more in (b"\0", b"\n", whole, whole[-SEAL:], whole[-SEAL - 22 :]):
        path.write_bytes(whole + more)
        assert is_refused(path)
        path.write_bytes(more + whole)
        assert is_refused(path)


def test_no_changed_bytes_are_accepted(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    draw = random.Random(0)
    path = tmp_path / "changed"
    for _ in range(500):
        changed = bytearray(whole)
        start, end = sorted(draw.choices(range(len(whole) + 1), k=2))
        changed[start:end] = draw.choice([b"", draw.randbytes(end - start), draw.randbytes(3)])
        if changed != whole:
            path.write_bytes(changed)
            assert is_refused(path)


def test_another_kind_and_another_format_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    write(path, MEMBERS, magic="ctk-entry")
    with pytest.raises(ContainerError, match="sealed as 'ctk-entry', not as 'ctk-package'"):
        open_container(path)
    later = written(tmp_path / "later").read_bytes().replace(b"ctk-package 1 ", b"ctk-package 2 ")
    path.write_bytes(later)
    with pytest.raises(ContainerError, match="format 2; this ctk reads format 1"):
        open_container(path)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/../b", "..", "./a", "a//b", "a/", "a\\b", "C:a", "a\0b", "a\nb", "a" * 2000],
)
def test_names_that_lead_elsewhere_are_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContainerError, match="the member name"):
        write(tmp_path / "a", {name: b""})
    assert not list(tmp_path.iterdir())


def test_well_sealed_files_of_others_are_refused(tmp_path: Path) -> None:
    """The seal is right, so that only the checks of the zip itself are left."""
    whole = written(tmp_path / "whole", {"a": b"1", "b": b"2"}).read_bytes()
    body = whole[:-SEAL]
    central = body.index(b"PK\x01\x02")
    hostile = {
        "twice": body.replace(b"b\x35\xd9", b"a\x35\xd9"),
        "another name in the table": body[:central] + body[central:].replace(b"b\x35", b"c\x35"),
        "a huge size": body[:central] + body[central:].replace(b"\1\0\0\0", b"\xff\xff\xff\x7f"),
        "compressed": body[:central]
        + body[central:].replace(b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0\x08\0"),
        "something before it": bytes(64) + body,
        "no table": body[:central] + body[-22:],
        "no zip": b"",
        "an absolute name": body.replace(b"b\x35\xd9", b"/\x35\xd9"),
    }
    for what, changed in hostile.items():
        assert changed != body
        assert is_refused(resealed(tmp_path / "hostile", changed)), what
    assert not is_refused(resealed(tmp_path / "hostile", body))


def test_no_well_sealed_file_breaks_the_reader(tmp_path: Path) -> None:
    """Whatever the zip says, members lie within the file, or it is refused in our words."""
    draw, path = random.Random(0), tmp_path / "hostile"
    body = written(tmp_path / "whole", {"a": b"1", "b/c": bytes(90)}).read_bytes()[:-SEAL]
    # headers of two members, their two lines in the table of contents, and its end
    starts = [place for place in range(len(body)) if body[place : place + 2] == b"PK"]
    for _ in range(1000):
        changed = bytearray(body)
        for _ in range(draw.choice([1, 1, 2, 4])):
            place = draw.choice(starts) + draw.randrange(50)
            if place < len(changed):
                changed[place] = draw.choice([0, 1, 0x7F, 0xFF, draw.randrange(256)])
        resealed(path, bytes(changed))
        try:
            members = open_container(path).members
        except ContainerError:
            continue
        assert sum(view.nbytes for view in members.values()) < starts[-3]
        assert not any(b"ctk-package" in bytes(view) for view in members.values())


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", "empty", "loop", "missing", "."):
        assert is_refused(tmp_path / name)


def test_who_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "shared", MEMBERS)
        write(tmp_path / "private", MEMBERS, private=True)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"shared": 0o640, "private": 0o600}


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from ctk.compiler.artifacts.container import write\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        "write(Path(sys.argv[1]), {'a': bytes(10_000)})"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    assert not (tmp_path / "a").exists()
    written(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["fsync", "replace", "write"])
def test_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    path = written(tmp_path / "a")
    before = path.read_bytes()
    owner = {"fsync": os, "replace": Path, "write": zipfile.ZipFile}[at]
    monkeypatch.setattr(owner, "writestr" if at == "write" else at, fail)
    with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt):
        write(path, {"other": b"1"})
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory\nnext: "):
        write(tmp_path / "missing" / "a", MEMBERS)


def test_a_file_may_not_grow_that_large(tmp_path: Path) -> None:
    """RLIMIT_FSIZE is what a full disk is: the write fails in the middle."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from ctk.compiler.artifacts.container import write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write(Path(sys.argv[1]), {'a': bytes(10_000)})"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "StorageError: cannot write" in ended.stderr
    assert not list(tmp_path.iterdir())
