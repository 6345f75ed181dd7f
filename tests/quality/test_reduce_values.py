"""Values: the exact minimum and the questions that it may cost, then the recipe that is written."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.manifest import INPUTS
from ctk.toolkit.case.store import VALUES, load_case, save_case
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.size import is_smaller
from ctk.toolkit.repro.tensor_source import Sources, tensor_source
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops
from tests.helpers.repros import BACKENDS, fails_and_heals

STEPS = ("simplify_values", "fewest_nonzeros", "move_elements", "simplify_numbers")

Predicate = Callable[[torch.Tensor], object]


def reduced(x: torch.Tensor, needs: Predicate, *more: torch.Tensor) -> Reduction:
    """Reduce `cos(sin(x))` whose failure needs something of the values of x, and its shape."""
    case = captured(lambda x, *rest: x.sin().cos() + sum(rest), x, *more)

    def fails(case: Case) -> bool:
        return (
            has_ops("sin")(case) and case.inputs[0].shape == x.shape and bool(needs(case.inputs[0]))
        )

    oracle = FakeOracle(fails)
    result = minimize(Problem(case, oracle))
    assert result.finished and result.questions == len(oracle.asked)
    return result


def asked(result: Reduction) -> int:
    """Return the questions of the steps about values."""
    return sum(result.statistics[name].questions for name in STEPS if name in result.statistics)


def planted(side: int, *values: float) -> torch.Tensor:
    """Return normal values with some others among them."""
    x = torch.randn(side, side, generator=torch.Generator().manual_seed(side))
    for number, value in enumerate(values):
        x[side // 3 + number, side // 2 - number] = value
    return x


def set_numbers(result: Reduction) -> list[float]:
    """Return the non-zeros of the only input."""
    (x,) = result.inputs
    assert isinstance(x, torch.Tensor)
    return x[x != 0].tolist()


@pytest.mark.parametrize("side", [12, 19, 300])
@pytest.mark.parametrize(
    ("value", "needs", "left", "questions"),
    [
        (110.3, lambda x: (x > 100).any(), 101.0, 16),
        (-123.4, lambda x: (x < -100).any(), -101.0, 17),
        (3.7e35, lambda x: (x > 1e30).any(), 1e31, 14),
        (math.inf, lambda x: x.isinf().any(), math.inf, 10),
        (9.7, lambda x: ((x > 9.65) & (x < 9.75)).any(), 9.7, 14),
    ],
    ids=["above 100", "below -100", "above 1e30", "inf", "about 9.7"],
)
def test_one_value_is_left(
    side: int, value: float, needs: Predicate, left: float, questions: int
) -> None:
    result = reduced(planted(side, value), needs)
    (found,) = set_numbers(result)
    assert found == torch.tensor(left).item()
    assert asked(result) <= questions


@pytest.mark.parametrize("side", [12, 19, 300])
def test_one_nan_is_left(side: int) -> None:
    result = reduced(planted(side, math.nan), lambda x: x.isnan().any())
    (found,) = set_numbers(result)
    assert math.isnan(found) and asked(result) <= 10


@pytest.mark.parametrize("side", [19, 300])
def test_an_element_that_no_guess_finds_costs_two_logarithms(side: int) -> None:
    result = reduced(planted(side), lambda x: x.reshape(-1)[-40] != 0)
    assert set_numbers(result) == [1.0]
    assert asked(result) <= 8 + 2 * math.log2(side * side)


def test_two_elements_are_left() -> None:
    result = reduced(planted(19, 150.0, 123.4), lambda x: (x > 100).sum() >= 2)
    assert set_numbers(result) == [101.0, 101.0]
    assert asked(result) <= 62


@pytest.mark.parametrize("side", [4, 19, 300])
def test_where_all_are_needed_that_is_known_after_a_few_questions(side: int) -> None:
    x = planted(side)
    result = reduced(x, lambda y: (y != 0).all())
    assert torch.equal(result.inputs[0], torch.ones(side, side)) and asked(result) <= 14
    result = reduced(x, lambda y: torch.equal(y, x))
    assert torch.equal(result.inputs[0], x) and asked(result) <= 16


def test_indices_stay_valid() -> None:
    index = torch.randint(9, (12, 12), generator=torch.Generator().manual_seed(0))
    case = captured(lambda x, i: x[i].sin(), torch.randn(9, 3), index)
    seen: list[torch.Tensor] = []

    def needs(case: Case) -> bool:
        indices = [v for v in case.inputs if isinstance(v, torch.Tensor) and v.dtype == torch.int64]
        seen.extend(indices)
        if [each.shape for each in indices] != [(12, 12)] or not has_ops("getitem")(case):
            return False
        return bool((indices[0] >= 5).any())

    result = minimize(Problem(case, FakeOracle(needs)))
    assert all(int(each.min()) >= 0 and int(each.max()) < 9 for each in seen)
    (left,) = (v for v in result.inputs if getattr(v, "dtype", None) == torch.int64)
    assert left[left != 0].tolist() == [5] and asked(result) <= 30


# --- the recipe ----------------------------------------------------------------------------------

SPARSE = {
    "a number": 101.0, "half": 0.1, "nan": math.nan, "inf": -math.inf, "minus zero": -0.0,
}  # fmt: skip
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SPARSE)
def test_a_recipe_needs_no_data_file_and_gives_the_same_bits(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    x = torch.zeros(19, 19, dtype=dtype)
    x[3, 4] = torch.tensor(SPARSE[name], dtype=dtype)
    case = dataclasses.replace(captured(lambda x: x.sin(), torch.ones(19, 19)), inputs=(x,))
    for mode in ("full", "recipe"):
        folder = save_case(case, tmp_path / mode, inputs=mode)
        assert not (folder / VALUES).exists() and "written" in (folder / INPUTS).read_text()
        assert fingerprint(load_case(folder, trust=True)) == fingerprint(case)
        assert load_case(folder, trust=True).synthetic == ()
    sources = Sources()
    assert tensor_source(x, "x", sources).startswith("placed(torch.zeros((19, 19), dtype=torch.")
    assert not sources.data


def test_a_repro_builds_its_values(tmp_path: Path) -> None:
    backends = tmp_path / "planted_backends.py"
    backends.write_text(BACKENDS)
    x = torch.zeros(19, 19)
    x[3, 4], x[7, 1:] = 101.0, 2.0
    case = captured(lambda x: [x + 1], x)
    case = dataclasses.replace(
        case, target=f"{backends}:wrong", signature=Signature("accuracy", output="out0")
    )
    script = fails_and_heals(case, tmp_path, backends)
    assert script is None or "(3, 4): 101.0, range(134, 152): 2.0" in script


def test_a_smaller_case_is_never_claimed_that_was_not_asked() -> None:
    case = captured(lambda x: x.sin(), planted(12, 110.3))
    oracle = FakeOracle(lambda case: bool((case.inputs[0] > 100).any()))
    result = minimize(Problem(case, oracle))
    asked = [fingerprint(each) for each in oracle.asked]
    assert fingerprint(result.best) in asked and len(set(asked)) == len(asked)
    assert not any(is_smaller(each, result.best) for each in oracle.asked if oracle.predicate(each))
