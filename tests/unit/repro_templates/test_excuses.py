"""Differences that eager itself makes: other roundings, other contents of fresh memory."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor

from ctk.compiler.fx.clone import clone_value
from ctk.repro_templates.graph.documented import recomputing_once
from ctk.repro_templates.graph.excuses import NO_VARIATION, Variation, varied
from ctk.repro_templates.graph.judging import RunJudgement, judge_runs
from ctk.repro_templates.graph.rounding import moved_at_random, random_rounding
from ctk.repro_templates.graph.running import Run, generators_kept

Program = Callable[..., object]


def run(program: Program, args: list[Tensor], variation: Variation = NO_VARIATION) -> Run:
    allocated: list[str] = []
    copies = [clone_value(each) for each in args]
    with generators_kept(), varied(variation, allocated) if variation else nullcontext():
        torch.manual_seed(variation.seed)
        out = program(*copies)
    values = out if isinstance(out, tuple) else (out,)
    named = {f"out{i}": value for i, value in enumerate(values)}
    return Run(named, (), drew_random=False, allocated=tuple(allocated))


def judged(eager: Program, compiled: Program, *args: Tensor) -> RunJudgement:
    """Judge a function that stands for the compiled program; eager is the reference."""
    return judge_runs(
        run(eager, list(args)),
        run(compiled, list(args)),
        vary=lambda variation: run(eager, list(args), variation),
        reference=lambda: (None, "none"),
    )


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def singular(size: int) -> Tensor:
    matrix = drawn(size, size)
    matrix[-1] = matrix[:-1].sum(0)
    return matrix


def logistic(x: Tensor) -> Tensor:
    for _ in range(60):
        x = 3.9 * x * (1 - x)
    return x


ILL_CONDITIONED: dict[str, tuple[Program, Program, tuple[Tensor, ...]]] = {
    "condition of a singular matrix": (
        lambda x: torch.linalg.cond(x.atan()),
        lambda x: torch.full((), torch.inf),
        (torch.ones(2, 2),),
    ),
    "solution with a singular matrix": (
        lambda x: torch.linalg.solve(x @ x.T, torch.ones(5)),
        lambda x: torch.linalg.solve(x.flip(-1) @ x.flip(-1).T * 0.3, torch.full((5,), 0.3)),
        (singular(5),),
    ),
    "rest of a sum": (
        lambda x: (x.softmax(-1).sum(-1) - 1) * 1e6,
        lambda x: (x.softmax(-1).flip(-1).cumsum(-1)[..., -1] - 1) * 1e6,
        (drawn(8, 100),),
    ),
    "rest of a cosine": (
        lambda x: (1 - x.cos()) / x**2,
        lambda x: (1 - (x.cos() - (x > 0) * 6e-8)) / x**2,
        (torch.linspace(-1e-3, 1e-3, 64),),
    ),
    "variance of numbers far from zero": (
        lambda x: (x**2).mean() - x.mean() ** 2,
        lambda x: x.double().var(correction=0).float(),
        (drawn(3000) + 4000,),
    ),
    "chaos": (logistic, lambda x: logistic(x.double()).float(), (drawn(100).sigmoid(),)),
    "arc cosine near 1": (
        lambda x: torch.acos(x.square().sum(-1) / x.norm(dim=-1).square()),
        lambda x: torch.zeros(50),
        (drawn(50, 7),),
    ),
    "argmax of a near tie": (
        lambda x: (x.softmax(-1).flip(-1) @ torch.ones(40, 6) * 7).argmax(-1),
        lambda x: torch.full((3,), 4),
        (drawn(3, 40),),
    ),
    "norm of equal numbers": (
        lambda x: torch.nn.functional.layer_norm(x, (64,)),
        lambda x: torch.nn.functional.layer_norm(x.double(), (64,)).float() * 0.99,
        (1e4 + 0.001 * drawn(2, 64),),
    ),
    "rest of a product with a bias of zeros": (
        lambda x: (torch.addmm(torch.zeros(4), x, x.T) - (x.double() @ x.T.double()).float()) * 1e6,
        lambda x: torch.zeros(4, 4),
        (drawn(4, 300).abs(),),
    ),
    "float64": (
        lambda x: (x.sum() - x.flip(0).sum()) * 1e12,
        lambda x: (x.sum() - x.sort().values.cumsum(0)[-1]) * 1e12,
        (drawn(1000).double().exp(),),
    ),
}

WRONG: dict[str, tuple[Program, Program, tuple[Tensor, ...]]] = {
    "last of equal maxima": (
        lambda x: x.argmax(-1),
        lambda x: x.shape[-1] - 1 - x.flip(-1).argmax(-1),
        (drawn(20, 50).round(),),
    ),
    "maxima of zeros": (
        lambda x: (x.relu() * 0.3).argmax(-1),
        lambda x: torch.ones(20, dtype=torch.int64),
        (-drawn(20, 50).abs(),),
    ),
    "other rounding to integers": (
        lambda x: (x * 0.5).round(),
        lambda x: (x * 0.5 + 0.5).floor(),
        (torch.arange(40.0),),
    ),
    "rounded quotient": (
        lambda a, b: a // b,
        lambda a, b: (a / b).floor(),
        (torch.tensor([1.0, 0.5, 6.0]), torch.tensor([0.1, 0.1, 0.2])),
    ),
    "comparison": (lambda x: x >= x.flip(0), lambda x: x > x.flip(0), (torch.ones(4),)),
    "NaN lost": (lambda x: x.log(), lambda x: x.abs().log(), (drawn(50),)),
    "infinity lost": (lambda x: 1 / x.relu(), lambda x: 1 / (x.relu() + 1e-20), (drawn(50),)),
    "sign of an infinity": (
        lambda x: x.relu().log(),
        lambda x: x.relu().log().abs(),
        (-drawn(9).abs(),),
    ),
    "count": (lambda x: x.sum(), lambda x: x.sum() + 1, (drawn(1000).round(),)),
    "one part in a thousand": (
        lambda x: x.softmax(-1),
        lambda x: x.softmax(-1) * 1.001,
        (drawn(8, 100),),
    ),
    "beside an inverse": (
        lambda x: (torch.linalg.inv(x @ x), x.sin()),
        lambda x: (torch.linalg.inv(x @ x + 1e-7), x.sin() * 1.001),
        (singular(5),),
    ),
    "lost digits": (
        lambda x: torch.log1p(x) / x,
        lambda x: torch.log(1 + x) / x,
        (drawn(99).abs() * 1e-5,),
    ),
}


@pytest.mark.parametrize("name", ILL_CONDITIONED)
def test_a_difference_that_other_roundings_make_is_excused(name: str) -> None:
    eager, compiled, args = ILL_CONDITIONED[name]
    found = judged(eager, compiled, *args)
    assert found.answer == "ill-conditioned", found
    assert "other roundings" in found.detail


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_a_failure(name: str) -> None:
    eager, compiled, args = WRONG[name]
    assert judged(eager, compiled, *args).answer == "fails"


def test_only_what_is_not_excused_is_reported() -> None:
    eager, compiled, args = WRONG["beside an inverse"]
    assert [m.name for m in judged(eager, compiled, *args).mismatches] == ["out1"]


def test_one_wrong_element_beside_excused_ones() -> None:
    def wrong(x: Tensor) -> Tensor:
        values = logistic(x.double()).float()
        return torch.cat([values, x.new_full((1,), 2.5)])

    def eager(x: Tensor) -> Tensor:
        return torch.cat([logistic(x), x.new_full((1,), 2.0)])

    assert judged(eager, wrong, drawn(50).sigmoid()).answer == "fails"


def test_exact_operators_do_not_move() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        halves = x.mul(0.5).add_(1)
        table = torch.zeros(8).index_add_(0, torch.arange(4), x)
        return halves, x @ x.outer(x), table, x.sort().values, x.cumsum(0), x.to(torch.bfloat16)

    x = torch.tensor([3.0, 1.0, -2.0, 8.0])
    own = program(x.clone())
    for seed in range(1, 6):
        with random_rounding(seed):
            assert all(map(torch.equal, own, program(x.clone())))


BOUNDARIES: dict[str, tuple[Program, float]] = {
    "hardsigmoid": (torch.nn.functional.hardsigmoid, 3),
    "hardtanh": (torch.nn.functional.hardtanh, 1),
    "relu6": (torch.nn.functional.relu6, 6),
    "hardshrink": (torch.nn.functional.hardshrink, 0.5),
    "smooth_l1": (lambda x: torch.nn.functional.smooth_l1_loss(x, x.detach() * 0, beta=3), 3),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_operands_at_a_boundary_stay_on_their_side(name: str) -> None:
    function, boundary = BOUNDARIES[name]
    at = torch.tensor([boundary, -boundary, 9.0, 8, -7, -9, 7, boundary])

    def gradient() -> Tensor:
        x = at.clone().requires_grad_()
        out: Tensor = function(x)  # type: ignore[assignment]  # an object, and here a tensor
        (out * torch.linspace(0.3, 0.7, 8)).sum().backward()
        assert x.grad is not None
        return x.grad

    own = gradient()
    for seed in range(1, 9):
        with random_rounding(seed):
            torch.testing.assert_close(gradient(), own)


def test_custom_operators_are_called_once_with_their_own_operands() -> None:
    calls: list[Tensor] = []

    @torch.library.custom_op("ctk_test_excuses::halve", mutates_args=())
    def halve(x: Tensor) -> Tensor:
        calls.append(x.clone())
        return torch.where(x >= 3, x / 2, x / 7)

    x = torch.tensor([3.0, 3.0, 3.0, 1.0])
    own = halve(x)
    for seed in range(1, 4):
        with random_rounding(seed):
            assert torch.equal(halve(x), own)
    assert len(calls) == 4
    assert all(torch.equal(each, x) for each in calls)


def test_the_backward_pass_is_rounded_as_well() -> None:
    def gradient() -> Tensor:
        x = drawn(30).requires_grad_()
        (x.sigmoid() * x).sum().backward()
        assert x.grad is not None
        return x.grad

    own = gradient()
    with random_rounding(1):
        other = gradient()
    assert not torch.equal(own, other)
    torch.testing.assert_close(own, other)


def padded(x: Tensor) -> Tensor:
    rows = torch.empty(x.shape[0] + 2, x.shape[1])
    rows[: x.shape[0]] = x.sin()
    return rows


def gathered(x: Tensor) -> Tensor:
    index = torch.empty_like(x[:, 0], dtype=torch.int64)
    index[:2] = 1
    return x[index.remainder(6)]


def masked(x: Tensor) -> Tensor:
    return torch.where(x > 0, x.new_empty(x.shape), x)


FRESH: dict[str, tuple[Program, str]] = {
    "rows": (padded, "torch.empty"),
    "indices": (gathered, "torch.empty_like"),
    "elements": (masked, "torch.new_empty"),
}


@pytest.mark.parametrize("name", FRESH)
def test_memory_that_is_never_written_is_excused(name: str) -> None:
    program, operator = FRESH[name]
    x = drawn(6, 4)

    def compiled(x: Tensor) -> object:
        with varied(Variation(contents=1), []):
            return program(x)

    found = judged(program, compiled, x)
    assert found.answer == "uninitialized", found
    assert operator in found.detail


def test_a_wrong_value_beside_memory_that_is_never_written() -> None:
    def compiled(x: Tensor) -> Tensor:
        with varied(Variation(contents=1), []):
            return padded(x * 1.01)

    found = judged(padded, compiled, drawn(6, 4))
    assert found.answer == "fails"
    assert "24 of 32" in found.mismatches[0].detail


def test_a_wrong_value_beside_memory_whose_float64_form_differs() -> None:
    def compiled(x: Tensor) -> Tensor:
        rows = padded(x)
        rows[1, 2] += 0.3
        return rows

    x = drawn(6, 4)
    with varied(Variation(contents=1), []):
        exact = padded(x.double()).double()
    found = judge_runs(
        run(padded, [x]),
        run(compiled, [x]),
        vary=lambda variation: run(padded, [x], variation),
        reference=lambda: ({"out0": exact}, ""),
    )
    assert found.answer == "fails", found
    assert "1 of 32" in found.mismatches[0].detail


def test_a_program_that_is_not_repeatable_does_not_follow_its_memory() -> None:
    draws = count()

    def program(x: Tensor) -> Tensor:
        return torch.empty(4).copy_(x) + next(draws)

    found = judged(program, lambda x: x - 50, drawn(4))
    assert found.answer == "flaky", found


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(
            lambda x: self.norm(x).relu(), x, use_reentrant=False
        )


def trained(x: Tensor) -> tuple[object, ...]:
    torch.manual_seed(0)
    model = Normed()
    model(x.requires_grad_()).sum().backward()
    return x.grad, *model.norm.buffers()


def judged_state(compiled: Program, x: Tensor) -> RunJudgement:
    def named(run: Run) -> Run:
        names = ("grad_in0", "held_mean", "held_var", "held_count")
        return replace(run, values=dict(zip(names, run.values.values(), strict=True)))

    return judge_runs(
        named(run(trained, [x])),
        named(run(compiled, [x])),
        vary=lambda variation: named(run(trained, [x], variation)),
        reference=lambda: (None, "none"),
    )


def test_statistics_of_a_checkpoint_are_documented() -> None:
    def compiled(x: Tensor) -> tuple[object, ...]:
        with recomputing_once():
            return trained(x)

    found = judged_state(compiled, drawn(8, 4))
    assert found.answer == "documented"
    assert "checkpoint-statistics" in found.detail


def test_a_documented_difference_beside_an_ill_conditioned_one() -> None:
    """The documented one may be refused, so it is the answer."""

    def both(x: Tensor) -> tuple[object, ...]:
        return logistic(drawn(3).abs() / 4), *trained(x)[1:]

    def compiled(x: Tensor) -> tuple[object, ...]:
        with recomputing_once():
            chaotic, *state = both(x)
        assert isinstance(chaotic, Tensor)
        return chaotic.flip(0), *state

    def named(run: Run) -> Run:
        names = ("out0", "held_mean", "held_var", "held_count")
        return replace(run, values=dict(zip(names, run.values.values(), strict=True)))

    x = drawn(8, 4)
    found = judge_runs(
        named(run(both, [x])),
        named(run(compiled, [x])),
        vary=lambda variation: named(run(both, [x], variation)),
        reference=lambda: (None, "none"),
    )
    assert found.answer == "documented", found
    assert "checkpoint-statistics" in found.detail and "roundings" in found.detail


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_wrong_value_beside_statistics_of_a_checkpoint(place: int) -> None:
    def compiled(x: Tensor) -> tuple[object, ...]:
        with recomputing_once():
            values = list(trained(x))
        values[place] = values[place] + 5  # type: ignore[operator]  # a tensor
        return tuple(values)

    found = judged_state(compiled, drawn(8, 4))
    assert found.answer == "fails"
    assert len(found.mismatches) == 1


def test_statistics_that_are_not_updated_are_a_failure() -> None:
    def compiled(x: Tensor) -> tuple[object, ...]:
        grad, *_ = trained(x)
        return grad, *Normed().norm.buffers()

    assert judged_state(compiled, drawn(8, 4)).answer == "fails"


def test_the_guilty_allocation_is_named() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        written = torch.empty(4).copy_(x)
        return written, torch.empty_like(x)

    def compiled(x: Tensor) -> object:
        with varied(Variation(contents=1), []):
            return program(x)

    found = judged(program, compiled, drawn(4))
    assert "torch.empty_like" in found.detail


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_ones_stay_in_the_domains_that_end_there(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, -1, 0, 0.3, -0.7], dtype=dtype).repeat(20)
    moved = moved_at_random(x, torch.Generator().manual_seed(0))
    assert float(moved.abs().max()) == 1
    assert set(moved[x.abs() != 1].tolist()) > set(x[x.abs() != 1].tolist())
    assert (moved[x.abs() == 1].abs() < 1).any()
    with random_rounding(3):  # a probability above 1 raises, and a GPU is lost
        torch.nn.functional.binary_cross_entropy(x.abs(), x.relu())


def test_eager_is_wrong_in_all_digits_of_a_zero() -> None:
    x = torch.tensor([0.1])
    found = judge_runs(
        run(lambda x: x, [x]),
        run(lambda x: x / 2, [x]),
        vary=lambda variation: run(lambda x: x, [x], variation),
        reference=lambda: ({"out0": torch.zeros(1, dtype=torch.float64)}, ""),
    )
    assert found.answer == "ill-conditioned", found


LOST_DIGITS: dict[str, tuple[Program, Program]] = {
    "logistic": (logistic, lambda x: logistic(x * (1 + 1e-7))),
    "tent": (
        lambda x: iterate(lambda y: 1.99 * torch.minimum(y, 1 - y), x),
        lambda x: iterate(lambda y: torch.minimum(1.99 * y, 1.99 - 1.99 * y), x),
    ),
    "cubic": (
        lambda x: iterate(lambda y: 2.59 * y * (1 - y * y), x),
        lambda x: iterate(lambda y: 2.59 * (y - y * y * y), x),
    ),
}


def iterate(step: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    for _ in range(60):
        x = step(x)
    return x


@pytest.mark.parametrize("name", LOST_DIGITS)
def test_eager_without_a_correct_digit_proves_nothing(name: str) -> None:
    program, compiled = LOST_DIGITS[name]
    x = drawn(64).sigmoid()
    exact = {"out0": program(x.double())}
    found = judge_runs(
        run(program, [x]),
        run(compiled, [x]),
        vary=lambda variation: run(program, [x], variation),
        reference=lambda: (exact, ""),
    )
    assert found.answer == "ill-conditioned", found
    assert "of its own size away from the float64 run" in found.detail
