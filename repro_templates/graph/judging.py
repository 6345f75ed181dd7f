"""Judge a compiled run against eager's: the rule of the toolkit and its repros.

Cheapest questions first; later ones are asked only when they matter:

1. All results equal bit for bit: passes; nothing else is run.
2. The float64 reference, then the comparison: no mismatch passes.
3. Elements that follow the contents of fresh memory in eager are `uninitialized` (excuses.py);
   they are left out of the questions below.
4. A mismatch in numbers is believed only when the program is repeatable: eager, run again with the
   same seed, must agree with itself, else the answer is flaky. This is also asked before eager's
   own error excuses a difference: a program that is not repeatable differs from its reference by
   chance.
5. Results that are not farther than eager from float64 pass. They are `ill-conditioned` if eager
   has no correct digit: such results prove nothing.
6. If the program draws random numbers, the compiled call must have drawn the same: both started
   from the same seed, so both must leave torch's generators in the same state. If not, only results
   that do not depend on the seed count (equal bit for bit in eager with another seed);
   no such mismatch is flaky, never a guess.
7. Statistics that eager updates twice in a checkpoint are `documented` (documented.py).
8. Elements that eager itself reaches with other roundings are `ill-conditioned` (excuses.py).

Mismatches of dtype, shape and structure do not depend on numbers: 3 to 8 do not apply to them. Nor
do those of layout (layout.py), which are looked at last: a failure in values comes first.

A run of eager that breaks CUDA ends the questions. With other roundings, which may leave the domain
of a kernel, the failure stays; under other conditions the answer is flaky.

Strides of equal values are a failure only if a fake tensor promised them to the compiler, wrongly:
a compiler is free to choose the layout of a result. The detail of the answer reports the others.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ctk.compiler.errors import LostAccelerator
from ctk.compiler.observe import first_line
from ctk.repro_templates.graph.excuses import (
    CONDITIONS,
    NO_VARIATION,
    Difference,
    Variation,
    Vary,
    describe_wrong_digits,
    explain_by_documentation,
    try_variation,
    vary_memory,
    vary_rounding,
)
from ctk.repro_templates.graph.running import Run, same_states
from ctk.repro_templates.numbers.compare import compare_runs, runs_identical
from ctk.repro_templates.numbers.errors import Mismatch, identical
from ctk.repro_templates.numbers.layout import (
    LAYOUT,
    compare_layouts,
    describe_strides,
    follows_fake,
)

NUMBERS = ("accuracy", "nan")
"""Kinds of mismatch that random numbers and races can cause."""

EXCUSED = "differs from eager, but is not farther than eager from the float64 run"

BREAKS_GPU = "eager breaks the GPU"

OTHER_DRAWS = "the program draws random numbers, and the target does not draw the same ones"


RunAnswer = Literal["passes", "fails", "flaky", "ill-conditioned", "uninitialized", "documented"]
"""The answer of a comparison.

`fails`: the mismatches are the compiler's. `flaky`: they may be chance. `EXCUSES`: they have
another cause than the compiler.
"""

EXCUSES = ("ill-conditioned", "uninitialized", "documented")


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The result of comparing two runs.

    Attributes:
        mismatches: In the order of the results; empty when it passes.
        detail: Why it passes, is flaky or excused; for a failure, why there is no float64
            reference.
    """

    answer: RunAnswer
    mismatches: tuple[Mismatch, ...] = ()
    detail: str = ""


def judge_runs(
    eager: Run,
    compiled: Run,
    *,
    vary: Vary,
    reference: Callable[[], tuple[Mapping[str, object] | None, str]],
    layouts: Collection[str] = LAYOUT,
    fakes: Callable[[], Mapping[str, object]] | None = None,
) -> RunJudgement:
    """Judge whether a compiled run is wrong.

    Args:
        compiled: The run under test, from the same seed.
        vary: Runs eager once more, under other conditions; may raise.
        reference: Returns the float64 results, or None and why there are none.
        layouts: The kinds of layout mismatch that count.
        fakes: Returns the results as fake tensors, by name; None: all strides count.
    """
    values = _judge_values(eager, compiled, vary=vary, reference=reference)
    both = eager.layout, compiled.layout
    found = compare_layouts(eager.values, compiled.values, both, layouts)
    free = _find_free_strides(found, compiled.values, fakes) if fakes is not None else ()
    found = tuple(mismatch for mismatch in found if mismatch not in free)
    if not found:
        is_noted = bool(free) and values.answer == "passes"
        return replace(values, detail=describe_strides(free)) if is_noted else values
    if values.answer == "fails":
        return replace(values, mismatches=(*values.mismatches, *found))
    return RunJudgement("fails", found)


def _find_free_strides(
    found: tuple[Mismatch, ...],
    compiled: Mapping[str, object],
    fakes: Callable[[], Mapping[str, object]],
) -> tuple[Mismatch, ...]:
    """Return the stride mismatches that no fake tensor explains: a choice of the compiler."""
    strides = [mismatch for mismatch in found if mismatch.kind == "stride"]
    known = fakes() if strides else {}
    return tuple(each for each in strides if not follows_fake(each, compiled, known.get(each.name)))


def _judge_values(
    eager: Run,
    compiled: Run,
    *,
    vary: Vary,
    reference: Callable[[], tuple[Mapping[str, object] | None, str]],
) -> RunJudgement:
    if runs_identical(eager.values, compiled.values):
        return RunJudgement("passes", detail="equal to eager, bit for bit")
    exact, note = reference()
    runs = compare_runs(eager.values, compiled.values, exact)
    apart = runs or compare_runs(eager.values, compiled.values)
    if not apart:
        return RunJudgement("passes", detail=note)
    difference = Difference(eager, compiled, apart, exact)
    try:
        return _judge_difference(difference, runs, note, vary)
    except LostAccelerator as lost:
        return _judge_chance(runs, apart, note, f"{BREAKS_GPU} under other conditions: {lost}")


def _judge_difference(
    difference: Difference, wrong: tuple[Mismatch, ...], note: str, vary: Vary
) -> RunJudgement:
    """Judge two runs that differ, by more runs of eager.

    Args:
        difference: With all mismatches.
        wrong: The mismatches that the error of eager does not excuse.
        note: Why there is no float64 reference; empty if there is one.

    Raises:
        LostAccelerator: Eager breaks CUDA, other than by roundings.
    """
    certain, apart = _certain(wrong), difference.mismatches
    if certain and len(certain) == len(wrong):
        return RunJudgement("fails", certain, note)
    fresh = vary_memory(difference, vary)
    if fresh is not None:
        if not fresh.rest.mismatches:
            return RunJudgement("uninitialized", apart, fresh.detail)
        difference, wrong = fresh.rest, fresh.rest.mismatches
    elif unsteady := _unsteady(difference.eager, vary):
        return _judge_chance(wrong, apart, note, unsteady)
    if not wrong:
        digits = describe_wrong_digits(difference)
        if digits:
            return RunJudgement("ill-conditioned", apart, digits)
        return RunJudgement("passes", detail=EXCUSED)
    believed = _believe(difference.eager, difference.compiled, wrong, vary)
    if not believed:
        return RunJudgement("flaky", wrong, OTHER_DRAWS)
    return _excuse(replace(difference, mismatches=believed), note, vary)


def _judge_chance(
    wrong: tuple[Mismatch, ...], apart: tuple[Mismatch, ...], note: str, why: str
) -> RunJudgement:
    """Judge runs whose numbers may differ by chance: only the other mismatches count."""
    certain = _certain(wrong)
    return RunJudgement("fails", certain, note) if certain else RunJudgement("flaky", apart, why)


def _excuse(difference: Difference, note: str, vary: Vary) -> RunJudgement:
    """Leave out the mismatches that eager makes itself; without any other they are excused.

    Of two excuses the documented difference is the answer: it may be refused.
    """
    found, excuses = difference.mismatches, dict[RunAnswer, str]()
    for condition in CONDITIONS:
        told = explain_by_documentation(condition, difference, vary)
        if told is not None:
            difference, excuses["documented"] = told.rest, told.detail
    wrong = difference.mismatches
    numbers = tuple(mismatch for mismatch in wrong if mismatch.kind in NUMBERS)
    try:
        rounded = vary_rounding(replace(difference, mismatches=numbers), vary) if numbers else None
    except LostAccelerator as lost:
        rounded, note = None, f"{BREAKS_GPU} with other roundings: {lost}"
    if rounded is not None:
        left = {mismatch.name for mismatch in rounded.rest.mismatches}
        wrong = tuple(m for m in wrong if m.kind not in NUMBERS or m.name in left)
        excuses["ill-conditioned"] = rounded.detail
    if wrong or not excuses:
        return RunJudgement("fails", wrong, note)
    return RunJudgement(next(iter(excuses)), found, "; ".join(excuses.values()))


def _certain(found: tuple[Mismatch, ...]) -> tuple[Mismatch, ...]:
    """Return the mismatches that do not depend on numbers."""
    return tuple(mismatch for mismatch in found if mismatch.kind not in NUMBERS)


def _unsteady(eager: Run, vary: Vary) -> str:
    """Return why the program is not repeatable in eager under one seed; empty if it is."""
    try:
        again = vary(NO_VARIATION)
    except Exception as error:
        return f"a second eager run raises {type(error).__name__}: {first_line(error)}"
    runs = compare_runs(eager.values, again.values)
    return f"two eager runs differ at {runs[0].name}: {runs[0].detail}" if runs else ""


def _believe(
    eager: Run, compiled: Run, found: tuple[Mismatch, ...], vary: Vary
) -> tuple[Mismatch, ...]:
    """Return the mismatches that other random draws cannot explain."""
    if not eager.drew_random or same_states(eager.generators, compiled.generators):
        return found
    other = try_variation(vary, Variation(seed=1))
    if other is None:  # the results are not steady
        return _certain(found)
    return tuple(
        mismatch
        for mismatch in found
        if mismatch.kind not in NUMBERS
        or identical(eager.values.get(mismatch.name), other.values.get(mismatch.name))
    )
