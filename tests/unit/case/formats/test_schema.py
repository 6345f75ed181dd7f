"""Documents: each mistake is said with its place, what was found and what is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.schema import decode, document, encode, write_document


@document
@dataclass(frozen=True, slots=True)
class Part:
    count: int
    mode: Literal["fast", "slow"] = "fast"
    pass_: str | None = None


@document
@dataclass(frozen=True, slots=True)
class Whole:
    parts: tuple[Part, ...] = ()
    named: Mapping[str, Part] = field(default_factory=dict[str, Part])
    ratio: float = 0.5
    free: object = None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"parts": [{"count": 1}, {"count": "2"}]}', r"\$\.parts\[1\]\.count: .*integer.*'2'"),
        ('{"parts": [{"count": true}]}', r"\$\.parts\[0\]\.count: .*integer, found True"),
        ('{"parts": [{"cuont": 1}]}', r"\$\.parts\[0\]: 'count' is missing.*'cuont'"),
        ('{"parts": [{"count": 1, "mod": 2}]}', r"\[0\]: unknown key 'mod'.*'mode'.*; allowed:"),
        ('{"named": {"a b": {"count": null}}}', r"\$\.named\['a b'\]\.count: .*found null"),
        ('{"named": {"a": {"count": 1, "mode": "fats"}}}', r"'fast' or 'slow', found 'fats'.*fast"),
        ('{"parts": [{"count": 1, "pass_": "x"}]}', r"unknown key 'pass_'.*allowed: .*pass"),
        ('{"ratio": 1e999}', r"\$\.ratio: .*finite"),
        ('{"free": NaN}', "not valid JSON.*NaN"),
        ('{"ratio": 1.0, "ratio": 2.0}', "key 'ratio' is given twice"),
        ('{"free": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 100 deep"),
        ("[]", "expected an object, found a list"),
        ('{"parts"', "perhaps cut short"),
    ],
)
def test_a_mistake_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CaseError, match=rf"(?s)^a\.json.*{message}"):
        decode(Whole, text, where="a.json")


def test_what_is_written_is_read_back() -> None:
    whole = Whole((Part(2**70, "slow", "cse"),), {"a b": Part(-1)}, -0.0, [1, {"x": [None, 2.5]}])
    assert encode(whole)["parts"][0]["pass"] == "cse"
    back = decode(Whole, write_document(whole), where="a.json")
    assert repr(back) == repr(whole)
