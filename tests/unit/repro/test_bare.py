"""The modules that a repro needs besides torch's: found by runs without the others."""

from pathlib import Path

import pytest

from ctk.toolkit.repro.bare import run_bare

END = '\nprint("NO FAILURE: imported")\n'
MISSING = """
import importlib
try:
    importlib.import_module("{name}")
except ModuleNotFoundError as error:
    print(f"CANNOT TELL: something is missing here: ModuleNotFoundError: {{error}}")
    raise SystemExit(125)
"""


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import json, math, numbers", ()),
        ("import setuptools, packaging.version", ()),  # setuptools has one of its own
        ("import setuptools, more_itertools, jaraco.text", ()),
        ("import sympy, networkx", ()),  # torch requires them
        (MISSING.format(name="pytest"), ("pytest",)),
        (MISSING.format(name="packaging"), ("packaging",)),
    ],
)
def test_a_repro_names_the_modules_that_torch_does_not_bring(
    tmp_path: Path, text: str, needs: tuple[str, ...]
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(text + END)
    found = run_bare(script, ())
    assert (found.run.verdict, found.needs) == ("NO FAILURE: imported", needs)
