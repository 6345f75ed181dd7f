"""Where the project's files are, for the tests that hold them to the rules."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "toolkit", "repro_templates")


UNTRACKED = {".venv", ".git", "build", "dist", "__pycache__"}


@cache
def project_files() -> tuple[Path, ...]:
    """Return every file that git tracks or would track; in an unpacked sdist, every file."""
    if not (ROOT / ".git").exists():
        paths = (Path(folder, name) for folder, _, names in walk(ROOT) for name in names)
        return tuple(sorted(paths))
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (ROOT / name for name in done.stdout.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk the folders below `top` without those that git never tracks."""
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in UNTRACKED and "egg" not in name]
        yield folder, folders, names


def copy_project(place: Path) -> Path:
    """Copy the project's files to a folder; links stay links."""
    links = (ROOT / "ctk" / name for name in PACKAGES)
    for path in (*project_files(), *(link for link in links if link.is_symlink())):
        copy = place / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
    return place


def python_files(*folders: str) -> list[Path]:
    """Return the project's Python files below some folders of its root."""
    roots = [ROOT / folder for folder in folders]
    return [
        path
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    ]


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """Return a path relative to the root, for messages."""
    return path.relative_to(ROOT).as_posix()


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each absolute import; `a.b` also for `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
