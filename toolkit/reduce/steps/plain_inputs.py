"""Make all inputs plain at once: usual dtypes, contiguous, no gradients, zeros, one per shape."""

from collections.abc import Iterator
from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step, Subset
from ctk.toolkit.reduce.steps import (
    drop_gradients,
    merge_inputs,
    simplify_dtypes,
    simplify_layouts,
    simplify_values,
)

LEAST = 2
"""One idea alone is left to its own step."""


@dataclass(frozen=True, slots=True)
class Together:
    """Several edits, one after the other."""

    edits: tuple[Edit, ...]

    def says(self) -> str:
        return "; ".join(edit.says() for edit in self.edits)

    def apply(self, case: Case, facts: Facts) -> Case | None:
        result: Case | None = case
        for edit in self.edits:
            result = result and edit.apply(result, facts)
        return result


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose all that other steps would do to all inputs, if it is several; then not to merge."""
    edits = tuple(_strongest(case, facts))
    merged = merge_inputs.all_merged(case, facts)
    choices = [(*edits, merged), edits] if merged else [edits]
    found = tuple(Together(chosen) for chosen in choices if len(chosen) >= LEAST)
    return [Guesses(found)] if found else []


def _strongest(case: Case, facts: Facts) -> Iterator[Edit]:
    for step in (simplify_dtypes.STEP, simplify_layouts.STEP, drop_gradients.STEP):
        if step is drop_gradients.STEP and case.modes.backward:
            continue
        for proposal in step.propose(case, facts)[:1]:
            match proposal:
                case Guesses(edits):
                    yield from edits
                case Subset(make, atoms):
                    yield make(tuple(atoms))
                case _:
                    pass
    zeros = simplify_values.zeros(case, facts)
    if zeros is not None:
        yield zeros


STEP = Step("plain_inputs", propose, detail="values")
