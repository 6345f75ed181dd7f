"""Links, pipes, devices and files that nobody listed: not followed, not opened, not copied."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import ctk as library
from ctk.compiler.errors import CaseError
from tests.helpers.hostile import Craft, assert_refused, listing, run_on

FILES = ("graph.json", "inputs.json", "inputs.safetensors", "manifest.json", "graph.py")

SECRET = "the secret of somebody"


def to_a_secret(path: Path) -> None:
    """A link to a file outside, which is valid in the place of the one it stands for."""
    secret = path.parent.parent / f"secret-{path.name}"
    shutil.move(path, secret)
    path.symlink_to(secret)


def to_a_neighbour(path: Path) -> None:
    """A link to a file inside the folder."""
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("no_such_file")


def to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def to_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def to_a_process(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/environ")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


KINDS = (
    *(to_a_secret, to_a_neighbour, to_nothing, to_itself, to_a_device, to_a_process),
    *(pipe, folder),
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", KINDS, ids=lambda kind: kind.__name__)
def test_a_file_that_is_no_plain_file(
    name: str, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    craft = Craft.new(tmp_path)
    spoil(craft.folder / name)
    assert_refused(craft)
    assert_refused(craft, options=["--trust"])


@pytest.mark.parametrize("inside", [True, False])
def test_a_folder_of_sources_that_is_a_link(tmp_path: Path, inside: bool) -> None:
    craft = Craft.new(tmp_path)
    craft.put("sources/mine.py", craft.canary.file.read_text())
    craft.list("sources/mine.py", source=True)
    craft.manifest(lambda data: data.update(target="sources/mine.py:function"))
    elsewhere = (craft.folder if inside else craft.folder.parent) / "elsewhere"
    (craft.folder / "sources").rename(elsewhere)
    (craft.folder / "sources").symlink_to(elsewhere)
    assert_refused(craft)
    assert_refused(craft, says="is a link, or lies behind one", options=["--trust"])


@pytest.mark.parametrize("name", ["sources/more.py", "sources/mine/__init__.py", "sources/x/y.py"])
def test_a_source_that_is_not_listed(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.put("sources/mine.py", f"import {Path(name).parts[1].removesuffix('.py')}\n")
    craft.list("sources/mine.py", source=True)
    craft.manifest(lambda data: data.update(target="sources/mine.py:function"))
    craft.put(name, craft.canary.file.read_text(), listed=False)
    assert_refused(craft, says=f"does not list {name}", options=["--trust"])


@pytest.mark.parametrize("name", ["graph.json", "inputs.json", "sources/mine.py"])
def test_a_file_that_is_read_is_listed(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.put("sources/mine.py", "")
    craft.list("sources/mine.py", source=True)
    craft.manifest(lambda data: data["files"].pop(name))
    assert_refused(craft, says=f"does not list {name}", options=["--trust"])


def test_values_that_are_not_listed_are_not_read(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.manifest(lambda data: data["files"].pop("inputs.safetensors"))
    (craft.folder / "inputs.safetensors").write_bytes(b"no safetensors at all")
    assert_refused(craft)


@pytest.mark.parametrize("name", ["events.jsonl", "graph.py", "passes/000_x.diff"])
def test_show_follows_no_link_in_a_dump(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    line = '{"event": "pass", "pass": "joint/x", "number": 0, "changed": true, "vetoed": false, '
    line += '"rewrites": 1, "vetoed_rewrites": 0, "seconds": 0.1}\n'
    craft.put("events.jsonl", line, listed=False)
    place = craft.put(name, line, listed=False)
    (craft.folder.parent / "secret").write_text(line.replace("joint/x", SECRET) + SECRET)
    place.unlink()
    place.symlink_to(craft.folder.parent / "secret")
    for options in ([], ["--pass", "0"]):
        said = run_on(craft, "show", *options, codes=(0, 2))
        assert SECRET not in said.out + said.err


def test_show_follows_no_linked_folder_in_a_dump(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    line = '{"event": "pass", "pass": "joint/x", "number": 0, "changed": true, "vetoed": false, '
    line += '"rewrites": 1, "vetoed_rewrites": 0, "seconds": 0.1}\n'
    craft.put("events.jsonl", line, listed=False)
    elsewhere = craft.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000_x.diff").write_text(SECRET)
    (craft.folder / "passes").symlink_to(elsewhere)
    said = run_on(craft, "show", "--pass", "0", codes=(0, 2))
    assert SECRET not in said.out + said.err


def test_saving_a_loaded_case_again_copies_listed_files_only(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.put("sources/mine.py", "def function(gm): ...\n")
    craft.list("sources/mine.py", source=True)
    craft.manifest(
        lambda data: data.update(config={"custom_passes": {"joint": ["sources/mine.py:function"]}})
    )
    craft.put("notes.txt", SECRET, listed=False)
    (craft.folder / "link").symlink_to("/etc/passwd")
    case = library.load_case(craft.folder, trust=True)
    again = library.save_case(case, tmp_path / "again", inputs="full")
    assert "sources/mine.py" in listing(again)
    assert {"notes.txt", "link"}.isdisjoint(listing(again))


def test_ls_walks_into_no_link(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "linked").symlink_to(craft.folder)
    with pytest.raises(CaseError, match="no case in"):
        library.repro(dump)
