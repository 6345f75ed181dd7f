"""The helpers notice what they are there to notice."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.hostile import Craft, assert_refused, run_on, watched


def test_a_good_case_passes_every_check(tmp_path: Path) -> None:
    run_on(Craft.new(tmp_path), "repro", codes=(0,))


def test_a_case_that_is_not_refused_fails_the_test(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        assert_refused(Craft.new(tmp_path))


def test_a_process_a_module_and_a_file_are_noticed(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    with watched(craft.canary, out=tmp_path / "out") as seen:
        subprocess.run([craft.canary.program], check=True)
        __import__(craft.canary.module)
        (tmp_path / "elsewhere").write_text("")
    del sys.modules[craft.canary.module]
    assert [event.split()[0] for event in seen.events] == [
        "subprocess.Popen",
        "import",
        "write",
        "write",
    ]
    with pytest.raises(AssertionError, match="ran"):
        craft.canary.assert_silent()


def test_a_changed_file_has_its_new_hash(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.graph(lambda data: data.update(nodes=[]))
    assert_refused(craft)
