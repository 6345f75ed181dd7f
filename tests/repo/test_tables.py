"""Tables against folders: a pass, step, target or command is one file and one line in its table."""

import ast
import importlib
import re
from dataclasses import dataclass
from functools import cache
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
    Folder("compiler/passes/freezing", "PASS", "ctk.compiler.passes", "PASSES"),
    Folder("compiler/codegen", "CODEGEN", "ctk.compiler.codegen", "CODEGENS"),
    Folder("compiler/lowering/operators", "TABLE", "ctk.compiler.lowering.operators", "TABLES"),
    Folder("toolkit/reduce/steps", "STEP", "ctk.toolkit.reduce.steps", "STEPS"),
    Folder("toolkit/targets", "TARGET", "ctk.toolkit.targets", "TARGETS"),
    Folder("toolkit/importers", "IMPORTER", "ctk.toolkit.importers", "IMPORTERS"),
    Folder("toolkit/oracle/executors", "EXECUTOR", "ctk.toolkit.oracle.executors", "EXECUTORS"),
    Folder("toolkit/cli/commands", "COMMAND", "ctk.toolkit.cli.app", "COMMANDS"),
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
    imported |= {
        node.value
        for path in python_files(folder.path)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # `python -m MODULE`
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
    missing = [name_of(path) for path in modules_of(folder) if not is_tested(dotted_name(path))]
    assert not missing, "no test is called after these, imports them or runs their command"


def is_tested(module: str) -> bool:
    """Return whether a module of a table has a test of its own; a word in a text is none.

    Cases: 1. below `tests/unit/<room>/` there is a `test_<module>.py`; 2. a test imports the module
    itself; 3. the module is a command, and a test runs it: `ctk("<command>", ...)`; 4. a test of
    the room is parametrized with its name.
    """
    _, _, room, *_, stem = module.split(".")
    of_room = python_files(f"tests/unit/{room}")
    if any(path.name == f"test_{stem}.py" for path in of_room) or module in imported_names():
        return True
    if room == "cli":
        return stem.replace("_", "-") in run_commands()
    return any(stem in parameters(path) for path in of_room)


def parameters(path: Path) -> set[object]:
    """Return the constants that the tests of a file are parametrized with."""
    marks = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.parametrize"
    ]
    values = [inner for mark in marks for each in mark.args[1:] for inner in ast.walk(each)]
    return {value.value for value in values if isinstance(value, ast.Constant)}


@cache
def imported_names() -> frozenset[str]:
    """Return every dotted name that a test imports, a module's own name included."""
    names = {name for path in python_files("tests") for _, name in imported_modules(tree_of(path))}
    return frozenset(names | {name.rpartition(".")[0] for name in names})


@cache
def run_commands() -> frozenset[str]:
    """Return the first argument of each call of `ctk` or `invoke` in a test."""
    return frozenset(
        node.args[0].value
        for path in python_files("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ctk", "invoke")
        if node.args and isinstance(node.args[0], ast.Constant)
    )


def test_a_module_without_a_test_is_noticed() -> None:
    """The words stand in this file and in others, which does not make tests of them."""
    assert not is_tested("ctk.toolkit.reduce.steps.nothing")
    assert not is_tested("ctk.toolkit.cli.values")
    assert not is_tested("ctk.compiler.passes.joint.tensors")
    assert is_tested("ctk.toolkit.cli.commands.bisect_pass")
    assert is_tested("ctk.compiler.fx.diff")


def test_each_table_has_a_section_for_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for folder in FOLDERS:
        about = [s for s in sections if s.startswith("Add ") and f"`{folder.table}`" in s]
        assert about, f"CONTRIBUTING.md: no section 'Add ...' names the table `{folder.table}`"
