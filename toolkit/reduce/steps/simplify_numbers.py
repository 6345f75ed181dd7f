"""Give the remaining values simpler numbers: 1, the least whole number, round ones.

`x[3, 4] = 110.3` becomes 101 if more than 100 is needed, so that 100 is the neighbour that does not
fail. If many values are left they are rounded together.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import Content, ContentRun
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.numbers import Ladder, ladders
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Step, ladder_of_edits
from ctk.toolkit.reduce.value_edits import (
    ROUNDINGS,
    RoundValues,
    SetNumber,
    changeable,
    core_shape,
)

FEW = 8
"""Most numbers that are made simpler one by one."""


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to round tensors of many values, then simpler numbers for each run of few values."""
    found: list[Proposal] = []
    for name, tensor in changeable(case).items():
        content = facts.contents.of(tensor)
        if _is_many(content) and not tensor.is_complex() and tensor.is_floating_point():
            found.append(
                ladder_of_edits(*(RoundValues((name,), rounding) for rounding in ROUNDINGS))
            )
        if len(content.runs) <= FEW and content.kind == "zeros":
            found.extend(_runs(name, tensor, content))
    return found


def _is_many(content: Content) -> bool:
    return not content.is_recipe or (content.kind == "zeros" and len(content.runs) > FEW)


def _runs(name: str, tensor: Tensor, content: Content) -> Iterator[Proposal]:
    shape = core_shape(tensor)
    for run in content.runs:
        for ladder in ladders(run.value, tensor.dtype):
            yield _climb(name, shape, run, ladder)


def _climb(name: str, shape: tuple[int, ...], run: ContentRun, ladder: Ladder) -> Monotone:
    def edit(n: int) -> SetNumber:
        return SetNumber(name, shape, run.start, run.stop, run.value, ladder.number(n))

    return Monotone(edit, ladder.count, strongest_first=True)


STEP = Step("simplify_numbers", propose)
