"""Docstrings, comments, messages and documents are plain technical English (CONTRIBUTING.md)."""

import re
from pathlib import Path

import pytest

from tests.helpers.project import project_files
from tests.repo.prose import BANNED, QUOTED, Text, shares

MAX_SHARE = 0.01
MAX_COUNTS: dict[str, int] = {}
"""Texts with a banned turn that each room may hold; lower a count when it falls. Others: none."""


def held(room: str) -> int:
    """Return how many texts of a room hold a banned turn."""
    count = shares()[room]
    return count["docstring"] + count["comment"] + count["message"]


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("Return what is left.", ["what"]),
        ("Tells whoever asks.", ["Tells", "whoever"]),
        ("What does the case hold?", []),
        ("`what` is the name of a field.", []),
        ("It is no longer needed.", []),
        ("It is no number.", ["is no number"]),
        ("Those that stay, too.", ["Those that", ", too"]),
    ],
)
def test_turns_are_recognised(text: str, turns: list[str]) -> None:
    assert Text(Path(), 1, "docstring", text).turns == turns


def test_the_counts_only_fall() -> None:
    """A count above its bound is a new turn; one below it lowers the bound."""
    counts = {room: held(room) for room in shares()}
    assert {room: count for room, count in counts.items() if count} == MAX_COUNTS


def test_the_share_is_small() -> None:
    counts = shares().values()
    turns = sum(count["docstring"] + count["comment"] for count in counts)
    texts = sum(count["all docstring"] + count["all comment"] for count in counts)
    assert turns < MAX_SHARE * texts


def paragraphs(path: Path) -> list[str]:
    """Return the paragraphs, list items and rows of a document, without its code blocks."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    parts = re.split(r"\n\s*\n|\n(?=[-|#] ?)", text)
    return [" ".join(QUOTED.sub("``", part).split()) for part in parts]


DOCUMENTS = [
    path
    for path in project_files()
    if path.suffix == ".md" and "benchmarks" not in path.parts and path.name != "CHANGELOG.md"
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_documents_hold_no_banned_turn(document: Path) -> None:
    assert not [text for text in paragraphs(document) if BANNED.search(text)]
