"""Each pass and pattern of Inductor has a row, and the programs of the rows show ours at work."""

from fnmatch import fnmatchcase

import pytest
import torch

from ctk.compiler.passes import PASSES
from tests.helpers.inductor_rows import Row, fires, passes_that_fire, table
from tests.repo.inductor_names import names

ROWS = table()
OURS = {f"{stage}/{step.name}" for stage, steps in PASSES.items() for step in steps}
PARTS = {"dispatch", "lowering", "partition", "runtime", "cache", "options", "code generation"}
SHOWN = [row for row in ROWS if row.program is not None]


def covers(row: Row, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in row.theirs)


def test_each_pass_of_the_installed_inductor_has_a_row():
    missing = sorted(n for n in names() if not any(covers(row, n) for row in ROWS))
    assert missing == []


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="rows name the passes of torch 2.13"
)
def test_each_row_names_a_pass_of_inductor():
    known = names()
    stale = [r.theirs for r in ROWS if not r.since and not any(covers(r, n) for n in known)]
    assert stale == []


def test_each_row_names_ours_or_a_reason():
    unknown = {ours for row in ROWS for ours in row.ours} - OURS - PARTS
    assert unknown == set()
    assert [row.theirs for row in ROWS if not row.ours and not row.note] == []


OURS_SHOWN = [
    pytest.param(
        row,
        id=row.name,  # `test_attention_forms.py` runs some forms of attention always
        marks=[pytest.mark.slow] if row.name.startswith("attention_") else [],
    )
    for row in SHOWN
]


@pytest.mark.parametrize("row", OURS_SHOWN)
def test_ours_fires(row):
    expected = [ours for ours in row.ours if ours in OURS]
    fired = passes_that_fire(row, "ctk")
    assert not expected or any(ours in fired for ours in expected), fired


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")  # by Inductor
@pytest.mark.parametrize(
    "row",
    [row for row in SHOWN if row.theirs_fires and not row.gpu],
    ids=lambda row: row.name,
)
def test_theirs_fires(row):
    fired = passes_that_fire(row, "inductor")
    assert any(fires(name, fired) for name in row.seen_as or row.theirs), fired
