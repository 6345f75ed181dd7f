"""Custom operators that do not keep to their declaration, and healthy ones."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.operator_faults import find_operator_faults
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check_case
from ctk.toolkit.oracle.questions.judge import judge

LIBRARY = torch.library.Library("kept", "DEF")


def define(schema: str, kernel, fake) -> None:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    LIBRARY.impl(name, fake, "Meta")


def scales(x: Tensor) -> Tensor:
    result = x + 1
    x.mul_(2)
    return result


def scales_second(xs: Sequence[Tensor], *, by: float = 1.0) -> list[Tensor]:
    xs[1].mul_(by)
    return [x * 2 for x in xs]


def writes_if_told(x: Tensor, *, w: Tensor | None = None, write: bool = False):
    if w is not None and write:
        w.add_(1)
    return x + 1, x * 2


define("scales(Tensor x) -> Tensor", scales, torch.empty_like)
define(
    "scales_second(Tensor[] xs, *, float by=1.0) -> Tensor[]",
    scales_second,
    lambda xs, by=1.0: [torch.empty_like(x) for x in xs],
)
define(
    "writes_if_told(Tensor x, *, Tensor? w=None, bool write=False) -> (Tensor, Tensor)",
    writes_if_told,
    lambda x, w=None, write=False: (torch.empty_like(x), torch.empty_like(x)),
)
define("half(Tensor x) -> Tensor", lambda x: x[:4], lambda x: x.new_empty((4, x.shape[1])))
define("same(Tensor x) -> Tensor", lambda x: x, torch.empty_like)
define("short(Tensor x) -> Tensor", lambda x: x[:, :3].clone(), torch.empty_like)
define("doubled(Tensor x) -> Tensor", lambda x: x.double(), torch.empty_like)
define("turned(Tensor x) -> Tensor", lambda x: x.t().contiguous().t(), torch.empty_like)
define("squares(Tensor x) -> Tensor", lambda x: x * x, torch.empty_like)
define("draws(Tensor x) -> Tensor", torch.rand_like, torch.empty_like)
define(
    "into(Tensor(a!) x, float by=2.0) -> ()",
    lambda x, by=2.0: [x.mul_(by)].clear(),
    lambda x, by=2.0: None,
)
define("front(Tensor(a) x) -> Tensor(a)", lambda x: x[:4], lambda x: x[:4])
define(
    "split(Tensor x) -> (Tensor, Tensor)",
    lambda x: (x.sin(), x.cos()),
    lambda x: (torch.empty_like(x), torch.empty_like(x)),
)
ops = torch.ops.kept


@torch.library.custom_op("kept_too::placed", mutates_args=())
def placed(x: Tensor) -> Tensor:
    return x + 1


@placed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, device="meta")


def scaled(x: Tensor) -> Tensor:
    y = x.cos()
    return ops.scales(y) + y.sin()


def second_scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x.cos(), x.sin()
    first, second = ops.scales_second([y, z], by=3.0)
    return first + second, z.exp()


def written_in_a_later_call(x: Tensor) -> tuple[Tensor, Tensor]:
    w = x.tanh()
    first, _ = ops.writes_if_told(x, w=w)
    second, _ = ops.writes_if_told(first, w=w, write=True)
    return second, w.exp()


def half_written(x: Tensor) -> Tensor:
    y = x.cos()
    ops.half(y).add_(1)
    return y.sin()


def same_written(x: Tensor) -> Tensor:
    y = x.cos()
    ops.same(y).mul_(3)
    return y.sin()


def shortened(x: Tensor) -> Tensor:
    return ops.short(x.cos()).sin()


def squared(x: Tensor) -> Tensor:
    return ops.squares(x.sin()).cos()


def healthy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.cos()
    ops.into(y)
    first, second = ops.split(y.exp())
    return first * second, y.sin()


def case_of(program, target: str = "ctk", *, backward: bool = False) -> Case:
    torch._dynamo.reset()
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)).requires_grad_(backward)
    own = UserProgram(program, (x,), {}, program.__name__, Path(__file__))
    (case,) = capture_cases(own, target=target, backward=backward)
    return case


@pytest.mark.parametrize(
    ("program", "operator", "evidence"),
    [
        (scaled, "scales", "mutates its argument `x`"),
        (second_scaled, "scales_second", "mutates its argument `xs`"),
        (written_in_a_later_call, "writes_if_told", "mutates its argument `w`"),
        (half_written, "half", "returns memory of its argument `x`"),
        (same_written, "same", "returns memory of its argument `x`"),
        (shortened, "short", "has a fake implementation with another shape"),
    ],
)
def test_an_operator_that_does_more_than_it_declares_is_the_culprit(program, operator, evidence):
    search = find_culprit(case_of(program))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == (f"operator/kept::{operator}", True)
    assert search.culprit.evidence.startswith(evidence)
    assert search.compiles == 2, "one to see the failure, one for the counterfactual"


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
def test_gradients_of_a_kernel_without_a_formula_are_said() -> None:
    search = find_culprit(case_of(squared, "aot_eager", backward=True))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == ("operator/kept::squares", True)
    assert search.culprit.evidence.startswith("records gradients in its kernel")


def test_a_healthy_operator_has_no_fault() -> None:
    case = case_of(healthy)
    assert judge(case).verdict is Verdict.PASSES
    assert find_operator_faults(case) == ()
    assert find_operator_faults(case_of(lambda x: ops.front(x.cos()).sin())) == ()


def test_random_numbers_are_a_fault_unless_they_are_declared() -> None:
    (fault,) = find_operator_faults(case_of(lambda x: ops.draws(x) + x))
    assert str(fault) == "kept::draws draws random numbers without the tag nondeterministic_seeded"


def test_a_fault_that_does_not_matter_is_noted_and_the_search_goes_on() -> None:
    """The fault has no reader; the backend breaks something else."""
    search = find_culprit(case_of(unread, f"{__name__}:cosine_for_sine"))
    assert search.culprit is not None
    assert (search.culprit.stage, search.confirmed) == ("lowered", True)
    note = "kept::scales mutates its argument `x`, which its schema does not declare"
    assert f"{note}; as declared, it fails too" in search.excluded


def unread(x: Tensor) -> Tensor:
    return ops.scales(x.cos()) + x.sin()


def cosine_for_sine(gm, inputs):
    for node in gm.graph.nodes:
        if node.target == "sin":
            node.target = "cos"
    gm.recompile()
    return gm


def test_a_check_says_it_first() -> None:
    report = check_case(case_of(scaled))
    assert report.wrong[0].where == "operator/kept::scales"
    assert "mutates its argument `x`" in report.wrong[0].what


def placed_elsewhere(x: Tensor) -> Tensor:
    return placed(x.cos()) * 2


def returned_wide(x: Tensor) -> Tensor:
    return ops.doubled(x.cos())


def returned_turned(x: Tensor) -> Tensor:
    return ops.turned(x.cos())


def unused(x: Tensor) -> Tensor:
    ops.short(x.cos())
    return x.sin() + ops.short(x).sum() * 0


def test_a_fake_on_another_device_is_the_culprit() -> None:
    search = find_culprit(case_of(placed_elsewhere, "inductor"))
    assert search.culprit is not None
    assert (search.culprit.where, search.confirmed) == ("operator/kept_too::placed", True)
    assert search.culprit.evidence.startswith("has a fake implementation with another device")


@pytest.mark.parametrize(
    ("program", "target", "fault"),
    [
        (
            placed_elsewhere,
            "aot_eager",
            "kept_too::placed has a fake implementation with another device",
        ),
        (returned_wide, "aot_eager", "kept::doubled has a fake implementation with another dtype"),
        (returned_turned, "ctk", "kept::turned has a fake implementation with another stride"),
        (unused, "aot_eager", "kept::short has a fake implementation with another shape"),
    ],
)
def test_a_fault_that_no_result_shows_is_a_note(program, target, fault) -> None:
    report = check_case(case_of(program, target))
    assert report.judgement.verdict is Verdict.PASSES
    (note,) = report.notes
    assert note.startswith(fault)


def test_a_healthy_operator_has_no_note() -> None:
    assert check_case(case_of(healthy)).notes == ()


def test_a_kernel_without_a_declaration_is_passed_over() -> None:
    """As torchao has kernels for operators that a library declares which is not installed."""
    library = torch.library.Library("kept_half", "IMPL")
    library.impl("undeclared", lambda x: x, "CPU")
    assert find_operator_faults(case_of(healthy)) == ()
    library._destroy()
