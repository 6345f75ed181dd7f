"""Sentences of a page."""

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.phrases import MEANINGS, PLACES
from ctk.toolkit.page.page import Tone


def sentence(text: str, *, is_name: bool = False) -> str:
    """Return a text with a full stop, and a capital unless it begins with a name."""
    text = one_line(text.strip())
    begun = text if is_name else f"{text[:1].upper()}{text[1:]}"
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def tone_of(verdict: Verdict) -> Tone:
    """Return the tone of a verdict."""
    if verdict in (Verdict.REPRODUCES, Verdict.DIFFERENT):
        return "wrong"
    return "right" if verdict.is_no_failure else "unsure"


def what_fails(signature: Signature) -> str:
    """Return the failure in two sentences: its kind, and its values."""
    return f"{sentence(MEANINGS[signature.kind].partition(':')[0])} {sentence(str(signature))}"


def where_of_program(whole: EndToEnd) -> str:
    """Return the place of a failure that no graph of a program shows alone."""
    stage = f": {PLACES[whole.layer]}" if whole.layer is not None else ""
    return sentence(f"{whole.where}{stage}{whole.line and f'; {whole.line}'}", is_name=True)


BADGES = {"wrong": "fails", "right": "no failure", "unsure": "cannot tell"}
"""The verdict in a word, by tone."""
