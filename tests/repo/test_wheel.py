"""What is installed is one package, and it works inside a project with folders called like ours."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.cli import BROKEN_PASS, GOOD
from tests.helpers.project import PACKAGES, ROOT, copy_project, name_of, project_files

BUILD = "import sys, setuptools.build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a distribution of the project: `build_wheel`, `build_editable`, `build_sdist`."""
    command = [sys.executable, "-c", BUILD, kind, str(out)]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    (built,) = out.glob("*.tar.gz" if kind == "build_sdist" else "*.whl")
    return built


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new virtual environment that borrows torch from this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet"]
    command = [*pip, "install", *options, str(wheel)]
    subprocess.run(command, env=own_environment(), capture_output=True, check=True)
    own = site_packages(folder)
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python


def site_packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def own_environment() -> dict[str, str]:
    """Return the environment without what would show the tree under test instead of the wheel."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: object, place: Path, code: int = 0) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        cwd=place,
        env=own_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build("build_wheel", copy_project(folder / "source"), folder)


def test_every_module_and_template_is_in_the_wheel(wheel: Path) -> None:
    packages = [ROOT / name for name in PACKAGES]
    expected = {
        f"ctk/{name_of(path)}"
        for path in project_files()
        if any(path.is_relative_to(package) for package in packages)
    }
    assert len(expected) > 100
    names = zipfile.ZipFile(wheel).namelist()
    assert expected | {"ctk/__init__.py", "ctk/__init__.pyi", "ctk/py.typed"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    pages = (path for path in project_files() if path.is_relative_to(ROOT / "docs" / "errors"))
    assert {f"ctk/error_pages/{path.name}" for path in pages} <= set(names)


def test_metadata_of_the_wheel(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (entry_points,) = (name for name in names if name.endswith("dist-info/entry_points.txt"))
    text = archive.read(entry_points).decode()
    assert "ctk = ctk.toolkit.cli.main:main" in text
    assert "ctk = ctk.compiler.backend:ctk" in text
    assert any(name.endswith("licenses/LICENSE") for name in names)


TRAIN = """
import compiler, repro_templates, toolkit
import runpy, sys, torch

f = torch.compile(lambda x: x.relu() + 1, backend="ctk")
assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))
assert (compiler.OURS, toolkit.OURS, repro_templates.OURS) == ("their own",) * 3
assert [name for name in sys.modules if name.startswith("ctk.compiler.")]
sys.argv = ["ctk", "check", "program.py"]
runpy.run_path(sys.exec_prefix + "/bin/ctk", run_name="__main__")
"""


@pytest.mark.slow
def test_it_works_in_a_project_with_folders_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path / "venv")
    tops = {path.name for path in site_packages(tmp_path / "venv").iterdir()}
    assert {top for top in tops if ".dist-info" not in top} == {
        "ctk",
        "ctk_pytest.py",
        "borrowed.pth",
    }
    project = tmp_path / "project"
    for name in PACKAGES:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text('OURS = "their own"\n')
    (project / "program.py").write_text(GOOD)
    (project / "broken.py").write_text(GOOD + BROKEN_PASS)
    (project / "train.py").write_text(TRAIN)
    assert run(python, "train.py", place=project).startswith("no failure")
    said = run(
        python.with_name("ctk"), "diagnose", "broken.py", "--out", "found", place=project, code=1
    )
    assert "joint/negate_relu (confirmed)" in said
    assert "(reproduced, exit code 1)" in said  # the emitted script, run from its own folder
    assert not (project / "found" / "minimal" / "compiler").exists()


@pytest.mark.slow
def test_an_editable_install_sees_new_files(tmp_path: Path) -> None:
    source = copy_project(tmp_path / "source")
    python = install(build("build_editable", source, tmp_path), tmp_path / "venv")
    (source / "compiler" / "passes" / "added_later.py").write_text("WORD = 'seen'\n")
    code = "from ctk.compiler.passes.added_later import WORD; import ctk; print(WORD, ctk.__file__)"
    said = run(python, "-c", code, place=tmp_path)
    assert said.split() == ["seen", str(source / "ctk" / "__init__.py")]


USE = """
import torch, ctk, ctk.toolkit.cli.app
from ctk.compiler.options.config import Config
assert ctk.Config is Config
f = torch.compile(lambda x: x.relu() + 1, backend="ctk")
assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))
print(ctk.__file__, ctk.compiler.__file__)
"""


def use(checkout: Path) -> list[str]:
    """Compile with the ctk of a checkout; return the files of `ctk` and of `ctk.compiler`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", USE]
    done = subprocess.run(
        command, cwd=checkout.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_checkout_without_links_imports(tmp_path: Path) -> None:
    """Where a checkout has no symbolic links, git and zip write plain files in their place."""
    checkout = copy_project(tmp_path / "checkout")
    for name in PACKAGES:
        (checkout / "ctk" / name).unlink(missing_ok=True)
        (checkout / "ctk" / name).write_text(f"../{name}")
    own, compiler = use(checkout)
    assert own == str(checkout / "ctk" / "__init__.py")
    assert compiler == str(checkout / "compiler" / "__init__.py")


def test_the_sdist_is_the_repository(tmp_path: Path) -> None:
    """An sdist has the layout of the repository, and its own tests run from it."""
    archive = build("build_sdist", copy_project(tmp_path / "source"), tmp_path)
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if (path / "PKG-INFO").is_file())
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {name_of(path) for path in project_files()} <= held
    assert not [name for name in held if name.startswith(tuple(f"ctk/{top}/" for top in PACKAGES))]
    assert use(unpacked)[1] == str(unpacked / "compiler" / "__init__.py")
    tests = ["tests/unit/options", "tests/unit/rewriting", "tests/repo/test_files.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=unpacked, env=own_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_what_is_published_is_valid_and_installs(tmp_path: Path) -> None:
    """`python -m build` makes the sdist, and the wheel from it; both are checked, and work."""
    source, out = copy_project(tmp_path / "source"), tmp_path / "dist"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, place=source)
    sdist, wheel = sorted(out.iterdir(), key=lambda path: path.suffix == ".whl")
    checked = run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, place=tmp_path)
    assert checked.count("PASSED") == 2
    python = install(wheel, tmp_path / "venv")
    ctk = python.with_name("ctk")
    assert run(ctk, "--version", place=tmp_path).startswith("ctk ")
    assert run(ctk, "explain", "CTK104", place=tmp_path).startswith("CTK104: ")
    assert run(ctk, "doctor", place=tmp_path).startswith("everything is fine")
    loaded = run(python, "-c", "import ctk, sys; print('torch' in sys.modules)", place=tmp_path)
    assert loaded == "False\n"
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert run("make", "help", place=unpacked).startswith("usage: make TARGET")
