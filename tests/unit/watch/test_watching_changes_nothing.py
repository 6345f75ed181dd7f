"""Two steps of a program leave the same bits, watched or not.

Quick rows: each kind of program under one backend; more where two steps were once four.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.toolkit.watch.hooks import install
from tests.helpers.training_zoo import PROGRAMS, Program, differences, steps_of

CHECKS = ("off", "output", "pass")
BACKENDS = ("ctk", "aot_eager", "inductor")
QUICK = {
    "sgd": BACKENDS[:1],
    "batch_norm_and_dropout": BACKENDS[1:2],
    "adam": BACKENDS[1:2],
    "tied_weights_shared_buffers": BACKENDS[:1],
}


def rows() -> list[Any]:
    return [
        pytest.param(program, backend, id=f"{program.name}-{backend}", marks=_marks(row))
        for program, backend, row in _numbered()
    ]


def _numbered() -> Iterator[tuple[Program, str, bool]]:
    """Yield each row, and whether it is quick: a third, by turns under `ctk` and `aot_eager`."""
    for number, program in enumerate(PROGRAMS):
        own = (BACKENDS[number % 2],) if number % 3 == 0 else ()
        for backend in (each for each in BACKENDS if each not in program.wrong_with):
            yield program, backend, backend in QUICK.get(program.name, own)


def _marks(is_quick: bool) -> list[pytest.MarkDecorator]:
    return [] if is_quick else [pytest.mark.slow]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("program", "backend"), rows())
def test_watching_changes_nothing(
    program: Program, backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    plain = steps_of(program, compiler(backend))
    for check in CHECKS:
        with install(dump=tmp_path / check, check=check) as hooks:
            watched = steps_of(program, compiler(backend))
        assert hooks.session.failures == [], check
        assert hooks.session.graphs > 0
        assert differences(plain, watched) == [], check
    said = [record.getMessage() for record in caplog.records if record.name.startswith("ctk")]
    assert [text for text in said if "not checked" in text or "no result shows it" in text] == []


def compiler(backend: str):
    return lambda function, **more: torch.compile(function, backend=backend, **more)
