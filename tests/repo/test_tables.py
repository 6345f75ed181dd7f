"""Tables against folders: a pass, step, target or command is one file and one line in its table."""

import ast
import importlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.project import PACKAGES, ROOT, imported_modules, name_of, python_files, tree_of


@dataclass(frozen=True)
class Folder:
    """A folder whose modules each define `constant`, and the module whose `table` lists them.

    A module that defines none is a helper: then another module of the packages must import it.
    """

    path: str
    constant: str
    table_module: str
    table: str


FOLDERS = (
    Folder("compiler/passes/pre_grad", "PASS", "ctk.compiler.passes", "PASSES"),
    Folder("compiler/passes/joint", "PASS", "ctk.compiler.passes", "PASSES"),
    Folder("compiler/passes/post_grad", "PASS", "ctk.compiler.passes", "PASSES"),
    Folder("toolkit/reduce/steps", "STEP", "ctk.toolkit.reduce.steps", "STEPS"),
    Folder("toolkit/targets", "TARGET", "ctk.toolkit.targets", "TARGETS"),
    Folder("toolkit/cli", "COMMAND", "ctk.toolkit.cli.main", "COMMANDS"),
)

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.path)


def constants_of(path: Path) -> set[str]:
    """Return the names that a module assigns at its top level."""
    found: set[str] = set()
    for node in tree_of(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def modules_of(folder: Folder) -> list[Path]:
    """Return the modules of a folder that are entries of its table, not helpers."""
    return [path for path in all_modules_of(folder) if folder.constant in constants_of(path)]


def all_modules_of(folder: Folder) -> list[Path]:
    return [
        path
        for path in python_files(folder.path)
        if path.parent == ROOT / folder.path and path.stem != "__init__"
    ]


def dotted_name(path: Path) -> str:
    return ".".join(("ctk", *path.relative_to(ROOT).with_suffix("").parts))


@each_folder
def test_each_module_is_listed_once(folder: Folder) -> None:
    table = getattr(importlib.import_module(folder.table_module), folder.table)
    parts = table.values() if isinstance(table, dict) else (table,)
    assert modules_of(folder), f"nothing in {folder.path}"
    for path in modules_of(folder):
        own = getattr(importlib.import_module(dotted_name(path)), folder.constant)
        counts = [sum(entry is own for entry in part) for part in parts]
        assert max(counts) == 1, f"{name_of(path)} must stand once in {folder.table}: {counts}"


@each_folder
def test_helpers_are_used(folder: Folder) -> None:
    """A module without the constant that nobody imports is a forgotten entry."""
    imported = {
        name
        for path in python_files(*PACKAGES)
        for _, module in imported_modules(tree_of(path))
        for name in (module, module.rpartition(".")[0])
    } | {each.table_module for each in FOLDERS}
    helpers = set(all_modules_of(folder)) - set(modules_of(folder))
    forgotten = [name_of(path) for path in helpers if dotted_name(path) not in imported]
    assert not forgotten, f"these define no {folder.constant} and nothing imports them"


@each_folder
def test_tables_are_not_mutable(folder: Folder) -> None:
    table = getattr(importlib.import_module(folder.table_module), folder.table)
    parts = table.values() if isinstance(table, dict) else (table,)
    assert all(isinstance(part, tuple) for part in parts)


@each_folder
def test_each_module_says_what_it_does(folder: Folder) -> None:
    for path in all_modules_of(folder):
        doc = ast.get_docstring(tree_of(path)) or ""
        assert len(doc.split()) >= 5, f"{name_of(path)} needs a docstring that says what it does"


@each_folder
def test_each_module_has_a_test(folder: Folder) -> None:
    """A test names the module: by import, by the pass's name, or by its golden file."""
    texts = [path.read_text(encoding="utf-8") for path in python_files("tests")]
    golden = {path.stem for path in (ROOT / "tests" / "golden").rglob("*") if path.is_file()}
    for path in modules_of(folder):
        spelt = path.stem.replace("_", "-")
        is_named = any(path.stem in text or f'"{spelt}"' in text for text in texts)
        assert is_named or path.stem in golden, f"no test mentions {name_of(path)}"
