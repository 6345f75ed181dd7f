"""docs/architecture.md names only what exists, and draws the rooms as they stand in their table."""

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from tests.helpers.project import PACKAGES, ROOT, python_files, tree_of
from tests.repo.rooms import drawing

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
SPANS = sorted({re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", PROSE)})
CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)")
FOREIGN = {"torch.compile", "pytest.mark.clean_process", "ctk --help", "python -m tests.repo.rooms"}
WRITTEN = {"repro.py", "diagnosis.json"}  # files that ctk writes, not files of the project


@cache
def known() -> dict[str, set[str]]:
    """Return the parameters, fields and methods of each function and class of the packages."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in python_files("ctk", *PACKAGES):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                found[node.name] |= {each.arg for each in parameters}
            elif isinstance(node, ast.ClassDef):
                found[node.name] |= set(members(node))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    found.setdefault(ast.unparse(target), set())
    return found


def members(node: ast.ClassDef) -> list[str]:
    """Return the fields and methods of a class."""
    fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    return [*methods, *(ast.unparse(field) for field in fields)]


def problem_of(span: str) -> str | None:
    """Return what a span of code says that is not so."""
    call = CALL.fullmatch(span)
    name, arguments = (call[1], call[2]) if call else (span, "")
    if span in FOREIGN | WRITTEN or name in FOREIGN or span.startswith("--"):
        return None
    if "/" in span or span.endswith(".py"):
        is_there = (ROOT / span).exists() or any((ROOT / each / span).exists() for each in PACKAGES)
        return None if is_there else f"no such file: {span}"
    if name.startswith("ctk."):
        return None if (ROOT / "ctk" / name[4:].replace(".", "/")).exists() else f"no module {name}"
    owner, _, member = name.rpartition(".")
    if (member or name) not in known() and member not in known().get(owner, set()):
        return f"no such name: {name}"
    if owner and member not in known().get(owner, set()):
        return f"{owner} has no {member}"
    wanted = {each.split("=")[0].strip() for each in arguments.split(",") if each.strip()}
    missing = wanted - known()[member or name]
    return f"{name} has no {', '.join(sorted(missing))}" if missing else None


@pytest.mark.parametrize("span", SPANS)
def test_what_the_page_names_exists(span: str) -> None:
    assert problem_of(span) is None


@pytest.mark.parametrize(
    ("span", "says"),
    [
        ("Pass(name, run, numerics, enabled)", "Pass has no enabled"),
        ("Rewriter.remove", "no such name"),
        ("Config.numerics", "Config has no numerics"),
        ("compiler/passes/base.py", "no such file"),
        ("ctk.compilers", "no module"),
        ("Doorway", "no such name"),
        ("Case(graph, inputs)", None),
        ("Compile.joint", None),
    ],
)
def test_a_wrong_name_is_noticed(span: str, says: str | None) -> None:
    found = problem_of(span)
    assert (found is None) if says is None else (found is not None and says in found)


def test_the_rooms_are_drawn_as_they_are() -> None:
    (block,) = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert block.splitlines() == list(drawing()), "python -m tests.repo.rooms --drawing"
