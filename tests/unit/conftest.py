"""Programs and a failing case for the tests of the command line; backends for those of repros."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.cli import BROKEN_PASS, GOOD, ctk, write
from tests.helpers.repros import BACKENDS
from tests.helpers.warm_python import run_repros_warm


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
    program = write(folder, "broken.py", GOOD + BROKEN_PASS)
    with pytest.MonkeyPatch.context() as patch:
        run_repros_warm(patch)
        said = ctk("repro", program, "--out", folder / "cases")
    assert said.code == 1, said.out + said.err
    return folder / "cases" / "graph0"


@pytest.fixture
def case(written: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return shutil.copytree(written, tmp_path / "cases" / "graph0")


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    """The module of planted Dynamo backends."""
    return write(tmp_path, "planted_backends.py", BACKENDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for a case."""
    path = tmp_path / "case"
    path.mkdir()
    return path
