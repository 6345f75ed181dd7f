"""Give tensors values that a script can build: zeros, ones, seeded ones; all together first."""

from collections.abc import Mapping, Sequence

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.fillings import RECIPE_SEEDS, is_possible
from ctk.toolkit.case.formats.tensor_content import Content, ContentRun
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposal, Proposals, Step, Subset, ladder_of_edits
from ctk.toolkit.reduce.value_edits import SetValues, changeable, core_shape


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose zeros for all, ones for all; zeros for any, ones for any; seeded values for any.

    Ones only if the current values are more complex, seeded values (normal ones, a different seed
    for each, or `arange`) only if a script could not build the current values.
    """
    tensors = changeable(case)
    known = {name: facts.contents.of(tensor) for name, tensor in tensors.items()}
    nothing = _pairs(tensors, [name for name in tensors if known[name].nonzeros], "zeros")
    rough = [name for name, tensor in tensors.items() if known[name].rank > _rank_of_ones(tensor)]
    ones = _pairs(tensors, rough, "ones")
    seeded = [
        (name, filling)
        for index, (name, tensor) in enumerate(tensors.items())
        if not known[name].is_recipe and (filling := _suiting(index, tensor))
    ]
    whole: list[Proposal] = [
        ladder_of_edits(SetValues(pairs)) for pairs in (nothing, ones) if pairs
    ]
    single: list[Proposal] = [Subset(SetValues, pairs) for pairs in (nothing, ones) if pairs[1:]]
    return [*whole, *single, *([Subset(SetValues, tuple(seeded))] if seeded else [])]


def zeros(case: Case, facts: Facts) -> SetValues | None:
    """Return the edit that sets all that can be to zeros; None if nothing is left to set."""
    tensors = changeable(case)
    names = [name for name, tensor in tensors.items() if facts.contents.of(tensor).nonzeros]
    pairs = _pairs(tensors, names, "zeros")
    return SetValues(pairs) if pairs else None


def _pairs(
    tensors: Mapping[str, torch.Tensor], names: Sequence[str], filling: str
) -> tuple[tuple[str, str], ...]:
    return tuple((name, filling) for name in names if is_possible(tensors[name], filling))


def _rank_of_ones(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the rank of ones: a few non-zeros are less to say, other fillings are more."""
    count = torch.Size(core_shape(tensor)).numel()
    return Content("zeros", (ContentRun(0, count, 1.0),), count).rank


def _suiting(index: int, value: torch.Tensor) -> str | None:
    seeded = f"randn:{RECIPE_SEEDS[index % len(RECIPE_SEEDS)]}"
    return next((filling for filling in (seeded, "arange") if is_possible(value, filling)), None)


STEP = Step("simplify_values", propose, detail="values")
