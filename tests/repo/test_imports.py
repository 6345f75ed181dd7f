"""Who may import whom: one direction, torch's private names in one place, and light packages."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.project import ROOT, imported_modules, name_of, python_files, tree_of
from tests.repo.torch_names import COMPAT, is_private_in_torch


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for an attribute chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else None
    return None


def named_things(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each dotted name that is used: imports, attributes, names given to import_module."""
    yield from imported_modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            yield node.lineno, name
        elif isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch._inductor.config", True),
        ("torch.fx._lazy_graph_module", True),
        ("torch.fx.experimental.proxy_tensor", True),
        ("torch.fx.GraphModule", False),
        ("torch.__version__", False),
        ("torch.ops.aten._to_copy.default", False),
        ("my_torch._private", False),
    ],
)
def test_private_names_are_recognised(name: str, expected: bool) -> None:
    assert is_private_in_torch(name) is expected


def test_compiler_never_imports_toolkit() -> None:
    found = [
        f"{name_of(path)}:{line}: {module}"
        for path in python_files("compiler")
        for line, module in imported_modules(tree_of(path))
        if module.startswith(("ctk.toolkit", "ctk.repro_templates", "tests"))
    ]
    assert not found, "compiler/ must not know the toolkit"


def test_private_torch_names_are_in_one_place() -> None:
    found = sorted(
        {
            f"{name_of(path)}:{line}: {name}"
            for path in python_files(
                "compiler", "toolkit", "repro_templates", "examples", "benchmarks"
            )
            if not path.is_relative_to(COMPAT)
            for line, name in named_things(tree_of(path))
            if is_private_in_torch(name)
        }
    )
    assert not found, f"add an accessor to {name_of(COMPAT)} instead"


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_compiler_leaves_inductor_alone() -> None:
    loaded = modules_after("import ctk.compiler")
    assert "ctk.compiler" in loaded
    assert not {name for name in loaded if name.startswith(("torch._inductor", "torch._dynamo"))}


def test_import_toolkit_is_light() -> None:
    loaded = modules_after("import ctk, ctk.toolkit")
    assert "ctk.toolkit" in loaded
    assert not loaded & {"torch", "torch._inductor", "torch._dynamo", "typer", "rich"}


def test_command_line_starts_without_torch() -> None:
    loaded = modules_after("from ctk.toolkit.cli.app import build_app; build_app()")
    assert "ctk.toolkit.cli.app" in loaded
    assert not loaded & {"torch", "numpy", "safetensors"}


def test_every_package_folder_has_an_init() -> None:
    folders = {path.parent for path in python_files("compiler", "toolkit", "repro_templates")}
    assert not [name_of(folder) for folder in folders if not Path(folder, "__init__.py").exists()]
