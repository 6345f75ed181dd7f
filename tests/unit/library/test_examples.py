"""Every example in a docstring of the public face runs, and every public name has a docstring."""

import doctest
import inspect
import shutil
from pathlib import Path

import pytest

import ctk
from tests.helpers.project import ROOT

OPERATIONS = ("bisect", "check", "diagnose", "load_case", "minify", "minimize", "repro")
SLOW = {"diagnose", "minify"}


def examples_of(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(recurse=False).find(getattr(ctk, name), name)
    return [test for test in found if test.examples]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n
        for n in (*OPERATIONS, "debug_compile")
    ],
)
def test_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    (test,) = examples_of(name)
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    assert result.attempted > 1
    assert not result.failed, "".join(said)


@pytest.mark.parametrize("name", ctk.__all__)
def test_public_name_is_documented_and_found(name: str) -> None:
    assert inspect.getdoc(getattr(ctk, name))
    assert name in dir(ctk)
    assert name in (ctk.__doc__ or "") or name in {
        "Case",
        "CheckReport",
        "CtkError",
        "Verdict",
        "save_case",
    }
