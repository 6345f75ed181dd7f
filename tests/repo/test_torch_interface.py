"""The table of torch's private interface: its names, and that it fits the installed torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.project import ROOT, name_of, python_files, tree_of
from tests.repo import torch_interface
from tests.repo.test_imports import named_things
from tests.repo.torch_interface import Row, differences, main, read_table, rows, tables
from tests.repo.torch_names import Module, is_private_in_torch
from tests.repo.torch_uses import Uses, Visitor, uses

HINT = "python -m tests.repo.torch_interface --update"


def names_in(code: str) -> dict[str, bool]:
    """Return the names in a source text; true for those that may be absent."""
    module, found = Module("code.py", ast.parse(code)), Uses()
    Visitor(module.scope, found).visit_all(module.tree.body)
    return {name: use.is_optional for name, use in found.by_name.items()}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from torch._guards import tracing as t\nt(None)", "torch._guards.tracing"),
        ("import torch\ntorch._C._autograd._f(1)", "torch._C._autograd._f"),
        ('m = import_module("torch._dynamo.exc")\nm.Unsupported', "torch._dynamo.exc.Unsupported"),
        ('def f(n): return import_module(f"torch._a.{n}")\nf("b").c', "torch._a.b.c"),
        ("import torch\nSite(torch._ops.OpOverload, 'g')", "torch._ops.OpOverload.g"),
        ("import torch\nfor n in ('a', 'b'): getattr(torch._C, n)", "torch._C.b"),
        ("import torch\nx = torch._f()\nx.field", ".field"),
        ("import torch\ntorch.ops.mkldnn._linear.default", "torch.ops.mkldnn._linear.default"),
        ("def f(mode): return mode._hidden", "._hidden"),
    ],
)
def test_ways_to_write_a_name(code: str, expected: str) -> None:
    assert names_in(code)[expected] is False


@pytest.mark.parametrize(
    "code",
    [
        "import torch\nhasattr(torch._C, 'f') and torch._C.f()",
        "import torch\ngetattr(torch._C, 'f', None)",
        "import torch\ntry: torch._C.f\nexcept AttributeError: pass",
    ],
)
def test_a_name_that_is_looked_for_may_be_absent(code: str) -> None:
    assert names_in(code)["torch._C.f"] is True


def test_public_names_and_own_names_are_left_out() -> None:
    code = "import torch\ntorch.add\ntorch.ops.aten._to_copy.default\nself._own\nf.__name__"
    assert names_in(code) == {}


def test_no_private_name_is_missed() -> None:
    known = {use.name for use in uses()}
    prefixes = {name.rpartition(".")[0] for name in known}
    missed = [
        f"{name_of(path)}:{line}: {name}"
        for path in python_files("compiler/torch_compat")
        for line, name in named_things(tree_of(path))
        if is_private_in_torch(name) and name not in known
        if not any(prefix == name or prefix.startswith(f"{name}.") for prefix in prefixes)
        if "__" not in name
    ]
    assert not missed


def test_the_installed_torch_has_every_name() -> None:
    assert not [row for row in rows() if row.is_missing]


def test_the_table_of_the_installed_torch_is_current() -> None:
    version = torch_interface.version_of_torch()
    if version not in tables():
        pytest.skip(f"torch {version} has no table yet: {HINT}")
    build, table = read_table(version)
    is_same_build = build == torch_interface.build_of_torch()
    now = {row.name: row for row in rows()}
    assert now.keys() == table.keys(), HINT
    changed = {name for name, row in now.items() if row != table[name]}
    assert not {name for name in changed if is_same_build or not name.startswith("torch._C")}, HINT


def test_a_name_that_may_be_absent_is_in_some_release() -> None:
    known = [row for version in tables() for row in read_table(version)[1].values()]
    present = {row.name for row in known if not row.form.startswith(torch_interface.MISSING)}
    assert {row.name for row in known} == present


def test_differences_of_two_versions() -> None:
    old = {"f": Row("f", "function", "(a)"), "g": Row("g", "function", "()")}
    new = {"f": Row("f", "function", "(a, b)"), "h": Row("h", "class", "-")}
    told = ["f\n    (a)\n    (a, b)", "g\n    ()\n    ?", "h\n    ?\n    -"]
    assert list(differences(old, new)) == told


def test_a_missing_keyword_is_missing() -> None:
    assert Row("f", "function", "(a) lacks b").is_missing
    assert Row("f", "?", "-").is_missing
    assert not Row("f", "?", "- (optional)").is_missing


def test_update_writes_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_interface, "FOLDER", tmp_path)
    table = [Row("f", "function", "(a)"), Row("m", "module", "")]
    torch_interface.write_table(table)
    build, read = read_table(torch_interface.version_of_torch())
    assert build == torch_interface.build_of_torch()
    assert list(read.values()) == table


def test_an_unknown_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--diff", "1.0.0", "2.13.0"])
    assert "no table of torch 1.0.0; there are " in capsys.readouterr().err


IMPORT_ALL = """
import importlib, pkgutil, sys, types
import torch, torch._dynamo, torch._inductor.compile_fx

class Watched(types.ModuleType):
    def __getattribute__(self, name):
        file = sys._getframe(1).f_code.co_filename
        if "/torch_compat/" in file and name.startswith("_") and not name.startswith("__"):
            print(file, sys._getframe(1).f_lineno, name)
        return super().__getattribute__(name)

for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in ("torch", "functorch") and type(module) is types.ModuleType:
        module.__class__ = Watched
for package in ("ctk.compiler", "ctk.toolkit", "ctk.repro_templates"):
    folder = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(folder, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


def test_no_import_of_ctk_reads_a_private_name() -> None:
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout, "read it in the function that needs it"
