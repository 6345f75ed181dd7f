"""Imports go down: no circle, none upward, and every folder is a room that says what it is for."""

import ast
from pathlib import Path

import pytest

from tests.helpers.project import ROOT, name_of, project_files, tree_of
from tests.repo.rooms import (
    ROOMS,
    arrows,
    circle,
    house,
    imports_of,
    is_upward,
    room_of,
    table,
)


def test_each_file_stands_in_a_room() -> None:
    assert not [name_of(path) for path in house() if room_of(path) is None]


def test_each_room_exists_and_stands_once() -> None:
    paths = [room.path for room in ROOMS]
    assert len(set(paths)) == len(paths)
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_each_folder_is_a_room() -> None:
    rooms = {room.path for room in ROOMS}
    folders = {path.parent for path in house() if name_of(path).count("/") == 2}
    assert {name_of(folder) for folder in folders} <= rooms


@pytest.mark.parametrize(
    "room", [room for room in ROOMS if (ROOT / room.path).is_dir()], ids=lambda room: room.path
)
def test_the_docstring_of_a_room_is_its_purpose(room) -> None:
    docstring = ast.get_docstring(tree_of(ROOT / room.path / "__init__.py")) or ""
    assert docstring.splitlines()[:1] == [room.purpose]


def test_no_import_leads_upward() -> None:
    upward = [str(arrow) for arrow in arrows() if is_upward(arrow)]
    assert not upward, "see tests/repo/rooms.py: a room imports only rooms that stand before it"


def test_there_is_no_circle() -> None:
    assert not circle(arrows())


def test_the_table_counts_every_file_once() -> None:
    *_, total = table()
    assert total.split()[1] == str(len(house()))


def test_each_folder_of_unit_tests_is_a_room() -> None:
    rooms = {Path(room.path).stem for room in ROOMS} | {"library"}  # toolkit/*.py and ctk/
    places = {path.relative_to(ROOT / "tests" / "unit").parts for path in unit_tests()}
    assert {parts[0] for parts in places if len(parts) > 1} <= rooms
    assert {parts[0] for parts in places if len(parts) == 1} <= {"conftest.py"}


def unit_tests() -> list[Path]:
    return [path for path in project_files() if path.is_relative_to(ROOT / "tests" / "unit")]


IMPORTS = '''
"""ctk.toolkit.repro is only mentioned here"""
import ctk.toolkit.execution
from ctk.compiler import errors
if TYPE_CHECKING:
    from ctk.toolkit.case import Case
else:
    from ctk.toolkit.case import graphs
def later():
    from ..oracle.questions.judge import judge
    return import_module("ctk.toolkit.cli.main")
PLACES = {"install": "ctk.toolkit.watch.hooks:install", "text": "ctk.toolkit is nice"}
'''


def test_every_kind_of_import_is_seen() -> None:
    found = {
        (name, typing)
        for _, name, typing in imports_of(ast.parse(IMPORTS), "ctk.toolkit.execution")
    }
    assert found == {
        ("ctk.toolkit.execution", False),
        ("ctk.compiler.errors", False),
        ("ctk.toolkit.case.Case", True),
        ("ctk.toolkit.case.graphs", False),
        ("ctk.toolkit.oracle.questions.judge.judge", False),
        ("ctk.toolkit.cli.main", False),
        ("ctk.toolkit.watch.hooks", False),
    }
