"""Functions are verbs, modules unique within a wing, and central class names mean one thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.helpers.project import PACKAGES, name_of, python_files, tree_of

PARTICIPLES = """
told held made kept given taken found shown known written seen drawn begun gone done left sent built
caught brought chosen driven fallen forgotten frozen grown hidden laid lost meant met paid spent
taught thought thrown torn understood won bound said
"""
VERBS = "need embed feed seed speed shed exceed proceed breed heed"
IRREGULAR = frozenset(PARTICIPLES.split())
NO_PARTICIPLES = frozenset(VERBS.split())
MAX_PARTICIPLES = 0.04
UNIQUE_CLASSES = ("Session", "Program", "CompiledGraph", "Difference", "Signature", "Finding")


def is_participle(name: str) -> bool:
    """Return whether the first word of a function's name is a participle (`opened`, `held_by`)."""
    word = name.strip("_").split("_")[0]
    regular = re.fullmatch(r"[a-z]{2,}ed", word) is not None and word not in NO_PARTICIPLES
    return regular or word in IRREGULAR


def functions() -> list[tuple[Path, ast.FunctionDef]]:
    """Return the functions and methods of the packages; properties are nouns and do not count."""
    return [
        (path, node)
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("__")
        and not any("property" in ast.unparse(mark) for mark in node.decorator_list)
    ]


def wing_of(path: Path) -> str:
    """Return the second-level folder of a file: `toolkit/oracle`."""
    return "/".join(name_of(path).split("/")[:2])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("opened", True), ("_held_by", True), ("open_oracle", False), ("feed", False), ("ed", False)],
)
def test_participles_are_recognised(name: str, expected: bool) -> None:
    assert is_participle(name) is expected


def test_functions_are_verbs() -> None:
    every = functions()
    wrong = [
        f"{name_of(p)}:{node.lineno}: {node.name}" for p, node in every if is_participle(node.name)
    ]
    assert len(wrong) < MAX_PARTICIPLES * len(every), "\n".join(wrong)


def test_module_names_are_unique_within_a_wing() -> None:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in python_files(*PACKAGES):
        if path.stem != "__init__" and name_of(path).count("/") > 1:
            places[wing_of(path), path.stem].append(name_of(path))
    assert not [names for names in places.values() if len(names) > 1]


@pytest.mark.parametrize("name", UNIQUE_CLASSES)
def test_a_class_name_means_one_thing(name: str) -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert len(found) <= 1, found
