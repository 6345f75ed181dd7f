"""Give inputs values that a script can build, so that the repro needs no data file.

Zeros or ones everywhere, where the failure does not depend on values; else seeded normal values (a
different seed for each input) or `arange`, input by input. Inputs that share memory keep their
values.
"""

from collections import Counter
from collections.abc import Sequence

import torch

from ctk.compiler.fx.walk import placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.formats.buildable import RECIPE_SEEDS, filling_of, is_possible
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import SetValues
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset, listed


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose zeros for all inputs, ones for all, then what else suits each."""
    tensors = _changeable(case)
    proposals: list[Proposal] = []
    for filling in ("zeros", "ones"):
        pairs = [(name, filling) for name, value in tensors.items() if is_possible(value, filling)]
        if pairs:
            proposals.append(listed(SetValues(tuple(pairs))))
    seeded = [(name, _suiting(i, value)) for i, (name, value) in enumerate(tensors.items())]
    atoms = tuple((name, filling) for name, filling in seeded if filling)
    return [*proposals, Subset(SetValues, atoms)] if atoms else proposals


def _changeable(case: Case) -> dict[str, torch.Tensor]:
    """Return the inputs that are tensors of their own and not zeros already, by name."""
    pairs = zip(placeholders(case.graph), case.inputs, strict=True)
    tensors = {n.name: value for n, value in pairs if isinstance(value, torch.Tensor)}
    owners = Counter(value.untyped_storage().data_ptr() for value in tensors.values())
    return {
        name: value
        for name, value in tensors.items()
        if owners[value.untyped_storage().data_ptr()] == 1 and filling_of(value)
    }


def _suiting(index: int, value: torch.Tensor) -> str | None:
    seeded = f"randn:{RECIPE_SEEDS[index % len(RECIPE_SEEDS)]}"
    return next((filling for filling in (seeded, "arange") if is_possible(value, filling)), None)


STEP = Step("simplify_values", propose)
