"""Programs and a failing case for the tests of the command line."""

import shutil
from pathlib import Path

import pytest

from tests.cli import BROKEN_PASS, GOOD, ctk, write


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path, "good.py", GOOD)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path, "broken.py", GOOD + BROKEN_PASS)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A failing case with its repro, written once by the command itself."""
    folder = tmp_path_factory.mktemp("written")
    said = ctk("repro", write(folder, "broken.py", GOOD + BROKEN_PASS), "--out", folder / "cases")
    assert said.code == 1, said.out + said.err
    return folder / "cases" / "graph0"


@pytest.fixture
def case(written: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return shutil.copytree(written, tmp_path / "cases" / "graph0")
