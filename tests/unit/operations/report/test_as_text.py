"""The text of a diagnosis says what each kind of failure, place and verdict means."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from ctk.toolkit.case.failure import FailureKind, FailureOrigin
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.phrases import MEANINGS, PLACES, VERDICTS


@pytest.mark.parametrize(
    ("kinds", "sentences"),
    [(get_args(FailureKind), MEANINGS), (get_args(FailureOrigin), PLACES), (Verdict, VERDICTS)],
    ids=["kinds of failure", "places", "verdicts"],
)
def test_each_has_a_sentence_of_its_own(kinds: Any, sentences: Mapping[Any, str]) -> None:
    assert set(kinds) == set(sentences)
    assert len(set(sentences.values())) == len(sentences)
