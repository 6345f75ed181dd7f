"""Replacing a case: killed or out of disk at any moment, the old or the new one is whole."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ctk.compiler.errors import StorageError
from ctk.toolkit.case.case_listing import find_cases
from ctk.toolkit.case.case_replacement import NEW
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.store import load_case, save_case
from tests.helpers.case_folders import linear_case

CRASHING = """
import os, sys
from pathlib import Path
from ctk.toolkit.case.store import load_case, save_case
from tests.helpers.case_folders import linear_case

CHANGES = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir")
WRITES = os.O_WRONLY | os.O_RDWR

def die_at(moment):
    count = 0
    def hook(event, args):
        nonlocal count
        opens = event == "open" and isinstance(args[2], int) and args[2] & WRITES
        if event in CHANGES or opens:
            count += 1
            if count == moment:
                os._exit(9)
    sys.addaudithook(hook)

root, moment, dead = Path(sys.argv[1]), 0, 9
while dead == 9:
    moment += 1
    folder = save_case(linear_case(name="old"), root / str(moment), inputs="full")
    (folder / "repro.py").write_text("# another file")
    pid = os.fork()
    if pid == 0:
        die_at(moment)
        save_case(linear_case(name="new"), folder, inputs="recipe", overwrite=True)
        os._exit(0)
    dead = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(moment)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders whose save was killed at its first, second, ... last change of the disk."""
    root = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-W", "ignore", "-c", CRASHING, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [root / str(moment + 1) for moment in range(int(done.stdout))]


def test_a_kill_at_any_moment_leaves_the_old_or_the_new_case(killed: list[Path]) -> None:
    names = [load_case(folder).name for folder in killed]
    assert names == sorted(names, reverse=True)  # first the old one, from some moment on the new
    assert names.count("old") > 5 and names.count("new") > 5
    assert all((folder / "repro.py").read_text() == "# another file" for folder in killed)
    for folder, name in zip(killed, names, strict=True):
        (entry,) = find_cases(Walk(folder))
        assert (entry.name, entry.path, entry.problem) == (name, folder, None)


def test_the_next_save_finishes_what_was_left(killed: list[Path]) -> None:
    for folder in killed:
        save_case(linear_case(name="next"), folder, inputs="full", overwrite=True)
        assert load_case(folder).name == "next" and not (folder / NEW).exists()
        assert (folder / "inputs.safetensors").is_file()
        assert not list(folder.rglob("*.partial"))


Change = Callable[..., object]


def test_a_full_disk_at_any_moment_leaves_the_old_or_the_new_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, limit = 0, 0

    def failing(change: Change) -> Change:
        def counted(*args: object, **keywords: object) -> object:
            nonlocal count
            count += 1
            if count == limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return change(*args, **keywords)

        return counted

    for name in ("write", "link", "mkdir", "rename", "replace"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    names, failures = list[str](), 0
    while not names or failures == len(names):
        folder = save_case(linear_case(name="old"), tmp_path / str(len(names)), inputs="full")
        count, limit = 0, len(names) + 1
        try:
            save_case(linear_case(name="new"), folder, inputs="recipe", overwrite=True)
        except StorageError as error:
            assert "No space left" in str(error)
            failures += 1
        limit = 0
        names.append(load_case(folder).name)
    assert len(names) > 10 and names == sorted(names, reverse=True)


def test_a_file_that_the_new_case_lacks_goes(tmp_path: Path) -> None:
    folder = save_case(linear_case(), tmp_path / "case", inputs="full")
    assert (folder / "inputs.safetensors").is_file()
    save_case(linear_case(), folder, inputs="none", overwrite=True)
    assert not (folder / "inputs.safetensors").exists()
    assert load_case(folder).name == linear_case().name


def test_without_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(source: str, place: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    folder = save_case(linear_case(), tmp_path / "case")
    save_case(linear_case(name="new"), folder, overwrite=True)
    assert load_case(folder).name == "new" and not (folder / NEW).exists()
