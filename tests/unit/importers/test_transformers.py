"""Models of `transformers` are captured, kept, and compiled without a false alarm."""

from typing import Any

import pytest

import ctk
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from tests.helpers.kept import KEPT, how_kept
from tests.helpers.transformer_models import MODELS, Model, build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
TRAINED = ("GPT2", "T5", "Mixtral")


@pytest.fixture
def transformers() -> Any:
    """The package, if it is installed."""
    why = "needs the package transformers: pip install -e '.[ecosystem]'"
    return pytest.importorskip("transformers", reason=why)


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.name)
def test_ctk_compiles_it_and_the_case_is_kept(model: Model, train: bool, transformers: Any) -> None:
    program, inputs = build(model, transformers, train=train)
    for case in load_cases(program, inputs, CaseOptions(target="ctk", backward=train)):
        assert how_kept(case) == KEPT
        report = ctk.check(case)
        assert report.ok, report


@pytest.mark.parametrize("name", TRAINED)
def test_inductor_compiles_it(name: str, transformers: Any) -> None:
    (model,) = (each for each in MODELS if each.name == name)
    program, inputs = build(model, transformers, train=True)
    report = ctk.check(program, inputs, target="inductor", backward=True)
    assert report.ok, report
