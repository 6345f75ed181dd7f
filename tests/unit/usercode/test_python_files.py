"""load_file: what a user's file can import, when, and what it leaves alone."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.compiler.usercode import python_files
from ctk.compiler.usercode.python_files import is_installed, is_neighbour, load_file


def write(folder: Path, **files: str) -> Path:
    """Write files (`__` in a name is a folder) and return the first."""
    paths = [folder / f"{name.replace('__', '/')}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def test_a_file_runs_once_under_a_name_that_nobody_imports(tmp_path: Path):
    file = write(tmp_path, fold="count = [0]\ncount[0] += 1\n")
    module = load_file(file)
    assert load_file(file) is module
    assert module.count == [1]
    assert sys.modules[module.__name__] is module
    assert "fold" not in sys.modules


def test_a_fresh_load_runs_it_again(tmp_path: Path):
    file = write(tmp_path, fold="value = 1\n")
    first = load_file(file)
    file.write_text("value = 22\n")
    assert (load_file(file, fresh=True).value, load_file(file).value, first.value) == (22, 1, 1)


def test_two_folders_with_a_neighbour_of_the_same_name(tmp_path: Path):
    text = "import helper\nfrom helper import name\ndef late():\n    import late_helper as l\n"
    text += "    return l.name\n"
    before = set(sys.modules), list(sys.path)
    loaded = []
    for folder in ("a", "b"):
        late = "from helper import name as h\nname = h + '-late'\n"
        file = write(tmp_path / folder, fold=text, helper=f"name = {folder!r}\n", late_helper=late)
        loaded.append(load_file(file))
    assert [module.helper.name for module in loaded] == ["a", "b"]
    assert [module.name for module in loaded] == ["a", "b"]
    assert [module.late() for module in loaded] == ["a-late", "b-late"]
    left = set(sys.modules) - before[0]
    assert all(name.startswith("ctk_folder_") for name in left)
    assert sys.path == before[1]


def test_packages_beside_a_file(tmp_path: Path):
    file = write(
        tmp_path,
        fold="import rules.linear\nfrom rules import views\n"
        "from .rules.linear import SIZE as again\n"
        "total = rules.linear.SIZE + views.SIZE + again\n",
        rules____init__="",
        rules__linear="from .base import ONE\nimport common\nSIZE = ONE + common.TEN\n",
        rules__views="from rules.base import ONE as SIZE\n",
        rules__base="ONE = 1\n",
        common="TEN = 10\n",
    )
    assert load_file(file).total == 23


def test_an_installed_module_wins(tmp_path: Path):
    file = write(
        tmp_path,
        fold="import queue, numpy, builtins\n",
        queue="raise RuntimeError('the wrong one')\n",
        numpy____init__="raise RuntimeError('the wrong one')\n",
        builtins="raise RuntimeError('the wrong one')\n",
    )
    import numpy

    assert load_file(file).numpy is numpy
    assert not any(is_neighbour(name, tmp_path) for name in ("queue", "numpy", "sys", "nothing"))


def test_what_python_finds_by_itself_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = write(tmp_path, fold="import shared_4711\n", shared_4711="")
    monkeypatch.syspath_prepend(str(tmp_path))
    import shared_4711  # pyright: ignore[reportMissingImports]  # written above

    assert load_file(file).shared_4711 is shared_4711
    monkeypatch.delitem(sys.modules, "shared_4711")


def test_a_module_of_another_folder_does_not_stand_in_for_a_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "script", helper_4711="name = 'the script'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "script"))
    import helper_4711  # pyright: ignore[reportMissingImports]  # written above

    file = write(tmp_path / "a", fold="import helper_4711\n", helper_4711="name = 'a'\n")
    assert load_file(file).helper_4711.name == "a"
    assert helper_4711.name == "the script"
    monkeypatch.delitem(sys.modules, "helper_4711")


@pytest.mark.parametrize("name", ["my-pass", "01.v2", "class"])
def test_any_file_name_will_do(tmp_path: Path, name: str):
    file = tmp_path / f"{name}.py"
    file.write_text("import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int = 1\n")
    assert load_file(file).Point().x == 1


def test_a_file_that_raises_is_loaded_anew_the_next_time(tmp_path: Path):
    file = write(tmp_path, fold="1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_file(file)
    file.write_text("import sys\nvalue = 1\n")
    assert load_file(file).value == 1


def test_dynamo_traces_a_function_of_a_neighbour(tmp_path: Path):
    import torch

    file = write(
        tmp_path,
        fold="from helper import scaled\ndef f(x):\n    return scaled(x) + len([x])\n",
        helper="FACTOR = 3\ndef scaled(x):\n    return x * FACTOR\n",
    )
    f = load_file(file).f
    compiled = torch.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))


def test_the_text_of_the_module_is_a_loader_for_scripts(tmp_path: Path):
    text = inspect.getsource(python_files)
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    write(tmp_path / "sources", fold="import helper\nvalue = helper.VALUE\n", helper="VALUE = 42\n")
    script = write(
        tmp_path,
        script=f"{text}\nprint(load_file(Path(__file__).parent / 'sources/fold.py').value)",
    )
    done = subprocess.run(
        [sys.executable, "-I", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_is_installed(tmp_path: Path):
    assert is_installed(Path(ast.__file__))
    assert is_installed(Path(pytest.__file__))
    assert not is_installed(tmp_path / "fold.py")
