"""The page of passes says what the tables say."""

from ctk.compiler.passes import PASSES
from tests.repo.passes_page import PAGE, STAGES, described, document_of, page


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.repo.passes_page"


def test_each_table_has_its_section() -> None:
    told = {PASSES[stage] for stage in STAGES}
    assert told == set(PASSES.values())


def test_each_pass_says_where_its_idea_comes_from_and_each_option_what_it_is() -> None:
    steps = {step for table in PASSES.values() for step in table}
    assert [s.name for s in steps if "Source:" not in document_of(s)] == []
    assert [(s.name, o) for s in steps for o, _, meaning in described(s) if not meaning] == []
