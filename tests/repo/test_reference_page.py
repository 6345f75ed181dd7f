"""The reference says what the docstrings say."""

from tests.helpers.project import ROOT
from tests.repo.reference_page import PAGE, commands_of, page, public_names


def test_the_page_is_that_of_the_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.repo.reference_page"


def test_each_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in public_names() if f"### `ctk.{name}" not in text] == []


def test_a_command_is_found_with_its_help() -> None:
    ((name, text),) = commands_of(ROOT / "toolkit" / "cli" / "commands" / "doctor.py")
    assert name == "doctor"
    assert text.endswith(".")
