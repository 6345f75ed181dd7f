"""A case carries the user's own files: it opens and fails wherever it lies and ctk is started."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import CaseError, StorageError
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.repro.run import write_repro
from tests.helpers.case_folders import linear_case
from tests.helpers.case_zoo import capture
from tests.helpers.project import ROOT

BACKEND = """
from scale import FACTOR
def backend(gm, example_inputs):
    return lambda *args: tuple(value * FACTOR for value in gm(*args))
"""

PASS = """
import torch
from scale import FACTOR
def double(gm):
    for node in list(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)):
        node.target = torch.ops.aten.cos.default
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, in which everything is named relative to it."""
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "my.py").write_text(BACKEND)
    (folder / "scale.py").write_text("FACTOR = 1.5\n")
    (folder / "my_pass.py").write_text(PASS)
    monkeypatch.chdir(folder)
    return folder


def sine(**changes: object) -> Case:
    (case,) = capture(lambda x: x.sin(), torch.ones(3))
    return dataclasses.replace(case, **changes)  # type: ignore[arg-type]  # any field


def moved_case(case: Case, there: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a case, move its folder, and delete the folder that it was made in."""
    elsewhere = there.parent / "elsewhere"
    save_case(case, there / "case", inputs="full").rename(elsewhere)
    for path in there.iterdir():
        path.unlink()
    monkeypatch.chdir(there.parent)
    there.rmdir()
    return elsewhere


JUDGE = """
import sys
from pathlib import Path
from ctk.toolkit.case.store import load_case
from ctk.toolkit.oracle.questions.judge import judge
print(judge(load_case(Path(sys.argv[1]), trust=True)).verdict.value)
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "my.py:backend"},
        {"target": "ctk", "config": {"custom_passes": {"joint": ["my_pass.py:double"]}}},
    ],
    ids=["target", "pass"],
)
def test_a_moved_case_fails_without_the_files_it_was_made_of(
    changes: dict[str, object], there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = moved_case(sine(**changes), there, monkeypatch)
    case = load_case(folder.relative_to(Path.cwd()), trust=True)
    monkeypatch.chdir("/")
    assert judge(case).verdict is Verdict.REPRODUCES
    again = load_case(save_case(case, folder.parent / "again", inputs="full"), trust=True)
    assert read_manifest(folder.parent / "again").target == read_manifest(folder).target
    assert judge(again).verdict is Verdict.REPRODUCES


@pytest.mark.slow
def test_a_moved_case_fails_in_a_child_process_and_in_a_fresh_one(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = moved_case(sine(target="my.py:backend"), there, monkeypatch)
    with ChildProcess(60) as child:
        assert child.ask(Question(load_case(folder, trust=True))).verdict is Verdict.REPRODUCES
    command = [sys.executable, "-c", JUDGE, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "reproduces", done.stderr


def test_where_a_file_raises_does_not_depend_on_where_it_lies(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there / "raises.py").write_text("def backend(gm, example_inputs):\n    raise KeyError('x')\n")
    case = sine(target="raises.py:backend")
    found = judge(case).signature
    assert found is not None and found.where == "raises.py:backend"
    folder = moved_case(dataclasses.replace(case, signature=found), there, monkeypatch)
    loaded = load_case(folder, trust=True)
    assert judge(loaded, expected=loaded.signature).verdict is Verdict.REPRODUCES


def test_a_module_that_cannot_be_imported_there_is_found_in_the_case(there: Path) -> None:
    case = linear_case(target="my_unknown_backend:make", sources=(there / "my.py",))
    (there / "my_unknown_backend.py").write_text(BACKEND)
    case = dataclasses.replace(case, sources=(there / "my_unknown_backend.py",))
    folder = save_case(case, there / "case")
    assert read_manifest(folder).target == "my_unknown_backend:make"
    assert load_case(folder, trust=True).target == f"{folder}/sources/my_unknown_backend.py:make"


def test_what_is_no_file_of_the_user_keeps_its_name(there: Path) -> None:
    config = {"a": ["json:loads", "no.py", "gone.py:f", "C: x"], "b": "~/gone.py:f"}
    loaded = load_case(
        save_case(linear_case(target="inductor", config=config), there / "case"), trust=True
    )
    assert loaded.target == "inductor"
    assert loaded.config == {**config, "b": str(Path("~/gone.py:f").expanduser())}


def test_neighbours_of_two_folders_do_not_meet(there: Path) -> None:
    other = there / "other"
    other.mkdir()
    (other / "my.py").write_text("import scale\n")
    (other / "scale.py").write_text("FACTOR = 2\n")
    case = linear_case(target="my.py:backend", sources=(there / "my.py", other / "my.py"))
    plan = plan_sources(dataclasses.replace(case, config={"f": f"{other}/my.py:g"}))
    assert {name: path.parent.name for name, path in plan.copies.items()} == {
        "sources/my.py": "there",
        "sources/scale.py": "there",
        "sources/1/my.py": "other",
        "sources/1/scale.py": "other",
    }
    assert (plan.target, plan.config["f"]) == ("sources/my.py:backend", "sources/1/my.py:g")


def test_a_source_that_is_gone_is_a_clear_error(there: Path) -> None:
    with pytest.raises(CaseError, match=r"source .*gone\.py of case graph0 does not exist"):
        save_case(linear_case(sources=(there / "gone.py",)), there / "case")


def test_a_case_carries_what_its_pass_needs_and_no_more(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = "\nKEY = 'hush-hush'\ndef inputs(): return open('/private/inputs')\n"
    (there / "my_pass.py").write_text(PASS + private)
    (there / "scale.py").write_text("FACTOR = 1.5\n" + private)
    config = {"custom_passes": {"joint": ["my_pass.py:double"]}}
    folder = moved_case(sine(target="ctk", config=config), there, monkeypatch)
    copies = {path.name: path.read_text() for path in (folder / "sources").iterdir()}
    assert set(copies) == {"my_pass.py", "scale.py"}
    assert not [name for name, text in copies.items() if "hush" in text or "private" in text]
    loaded = load_case(folder, trust=True)  # the manifest has the hash of what was written
    assert judge(loaded).verdict is Verdict.REPRODUCES
    again = save_case(loaded, folder.parent / "again")
    assert (again / "sources/my_pass.py").read_text() == copies["my_pass.py"]


def test_copies_are_not_written_through_a_link(there: Path) -> None:
    case = sine(target="my.py:backend")
    (there / "out").mkdir()
    (there / "elsewhere").mkdir()
    (there / "out/sources").symlink_to(there / "elsewhere")
    with pytest.raises(StorageError, match=r"sources is a link.*\n?.*next: remove it"):
        write_repro(case, there / "out")
    assert not list((there / "elsewhere").iterdir())
