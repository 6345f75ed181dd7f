"""A wheel holds what users need and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.project import PACKAGES, ROOT, copy_project, name_of, project_files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy of the tracked files, with the installed setuptools."""
    copy = tmp_path_factory.mktemp("source")
    copy_project(copy)
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(copy / "out")], cwd=copy, capture_output=True, check=True
    )
    (built,) = Path(copy / "out").glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_module_and_template_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    packages = [ROOT / name for name in PACKAGES]
    expected = {
        f"ctk/{name_of(path)}"
        for path in project_files()
        if any(path.is_relative_to(package) for package in packages)
    }
    assert expected | {"ctk/__init__.py", "ctk/py.typed"} <= set(wheel.namelist())
    assert any(name.endswith(".j2") for name in expected)


def test_nothing_else_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    info = {top for top in tops if top.endswith(".dist-info")}
    assert tops - info == {"ctk"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (n for n in wheel.namelist() if n.endswith("dist-info/entry_points.txt"))
    text = wheel.read(entry_points).decode()
    assert "ctk = ctk.toolkit.cli.main:main" in text
    assert "ctk = ctk.compiler.backend:ctk" in text
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
