"""Sentences of a page."""

from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.judgement import Verdict
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


BADGES = {"wrong": "fails", "right": "no failure", "unsure": "cannot tell"}
"""The verdict in a word, by tone."""
