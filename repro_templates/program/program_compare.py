"""Compare the calls of two plays of one program: the first call that differs, and how.

Each call is compared as a case is: exceptions by exceptions.py, numbers by judging.py, with a
float64 play as the reference if the program has one. Then everything else: types of the results,
`requires_grad`, shared memory, strides, Python state. Values that eager itself does not repeat (a
time, an id) are not compared.

    eager     call 1 out0 = 3.0    call 2 out0 = 5.0
    compiled  call 1 out0 = 3.0    call 2 out0 = 3.0    ->  accuracy at call2.out0
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ctk.compiler.errors import PrecisionRefused, count_of
from ctk.compiler.observe import first_line
from ctk.repro_templates.graph.documented import NUMPY, NUMPYS_STREAM, SCALARS
from ctk.repro_templates.graph.exceptions import Raised, alike, is_missing
from ctk.repro_templates.graph.excuses import NO_VARIATION, Variation
from ctk.repro_templates.graph.judging import EXCUSES, NUMBERS, RunAnswer, RunJudgement, judge_runs
from ctk.repro_templates.graph.running import Run
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.errors import identical
from ctk.repro_templates.program.program_aliases import ALIASES
from ctk.repro_templates.program.program_nested import with_arrays
from ctk.repro_templates.program.program_play import How, Played

FAR = 0.25
"""Relative distance from eager, in float32, at which a float64 play is another program."""

TINY = 1e-6

NOISY = 10.0
"""How many times further than from itself eager may be from a float64 play of the same program."""

Eager = Callable[[How], Sequence[Played]]
"""Plays the program in eager."""


@dataclass(frozen=True, slots=True)
class CallDifference:
    """A result that differs.

    Attributes:
        kind: As of a failure (`accuracy`, `state`, `missing-error`, ...).
        exception: Type of the exception that the compiled side raised, or that only eager raises.
    """

    kind: str
    name: str
    detail: str
    exception: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two plays.

    Attributes:
        differences: Of the first call that differs, in the order of `_compare_calls`.
        call: Its number from 1; 0 when none does.
        more: The change of that call against the program's own, of `CHANGES`; empty for none.
        detail: Why it passes, is flaky or excused; for a failure, notes on its reference.
        raised: The exception of eager if no call of its own gives results. Also if a
            call lacks a module, a file, an operator or a device.
    """

    answer: RunAnswer
    differences: tuple[CallDifference, ...] = ()
    call: int = 0
    more: str = ""
    detail: str = ""
    raised: Raised | None = None

    @property
    def is_excused(self) -> bool:
        """Whether the sides differ, and the compiler is not the cause."""
        return self.answer in EXCUSES


class EagerPlays:
    """Eager as the measure of a program: played once, and again only if necessary.

    Args:
        play: Plays the program in eager; raises if it cannot be played so.
        how: How the compiled side is played: with more calls only if eager takes them.
    """

    def __init__(self, play: Eager, how: How) -> None:
        self._play = play
        self._varied: dict[Variation, Sequence[Played]] = {}
        self.first = list(play(how))
        self.how = how
        needless = needless_kinds(self.first)
        if needless:
            self.how = replace(how, more=tuple(n for n in how.more if n not in needless))
            kept = [call for call in self.first if call.more not in needless]
            is_prefix = all(a is b for a, b in zip(kept, self.first, strict=False))
            self.first = kept if is_prefix else list(play(self.how))

    @cached_property
    def again(self) -> Sequence[Played]:
        """The calls once more, from the same seed."""
        return self._play(self.how)

    def vary(self, variation: Variation) -> Sequence[Played]:
        """Return the calls under other conditions.

        Raises:
            RuntimeError: A call that gives results raises under them.
        """
        if variation == NO_VARIATION:
            return self.again
        if variation not in self._varied:
            how = replace(self.how, seed=self.how.seed + variation.seed, varied=variation)
            played = self._play(how)
            self._varied[variation] = [*map(_share_values, self.first, played)]
        played = self._varied[variation]
        for own, call in zip(self.first, played, strict=True):
            if own.error is None and call.error is not None:
                raise RuntimeError(str(call.error))
        return played

    @cached_property
    def exact(self) -> tuple[Sequence[Played] | None, str]:
        """The calls in float64, with the random numbers that eager draws in its own dtypes.

        None and the reason if there are none.
        """
        wide, tapes = replace(self.how, in_float64=True), list[list[tuple[str, Tensor]]]()
        try:
            if any(call.drew for call in self.first):
                recorded = self._play(replace(self.how, records=True))
                tapes = [call.tape or [] for call in recorded]
            played = self._play(replace(wide, tapes=tuple(tapes)))
        except PrecisionRefused as refusal:
            return None, str(refusal)
        except Exception as error:  # the program itself runs, so only float64 can be the reason
            return None, f"float64 refused: {first_line(error)}"
        refused = next((each.error for each in played if each.error is not None), None)
        return (played, "") if refused is None else (None, f"float64 refused: {refused}")

    @cached_property
    def nudged(self) -> Sequence[Sequence[Played]]:
        """The calls with inputs and weights that differ in the last bit, up and down.

        None for a call that takes only its own values.
        """
        try:
            return [self._play(replace(self.how, nudged=each)) for each in (1, -1)]
        except Exception:  # the program itself runs, so only the change can be the reason
            return []

    def is_noise(self, index: int, name: str, exact: object) -> bool:
        """Return whether rounding explains how far a value of eager is from that of a float64 play.

        A mean of numbers that cancel is only rounding, and so is a step of Adam for a bias before a
        batch norm: with neighbours of the same inputs, eager is about as far from itself.

        Args:
            index: The call, from 0.
        """
        value = self.first[index].run.values[name]
        others = [plays[index].run.values.get(name) for plays in self.nudged]
        spread = max((_distance(value, each) for each in others), default=0.0)
        return math.isfinite(spread) and spread * NOISY >= _distance(value, exact)


def needless_kinds(calls: Sequence[Played]) -> set[str]:
    """Return the kinds of further calls that show nothing about a program.

    Eager refuses the sizes, values or memory; or the program writes to none of the tensors whose
    memory is another.
    """
    touched = {name for call in calls if not call.more for name in call.touches}
    kept = {"buffers"} if "buffers" in touched else set[str]()
    kept |= ALIASES.keys() if "arguments" in touched else set()
    refused = {call.more for call in calls if call.more and call.error is not None}
    return {call.more for call in calls if call.more in ALIASES.keys() - kept} | refused


def compare_plays(
    eager: EagerPlays, compiled: Sequence[Played], *, strides: bool = True
) -> Comparison:
    """Return how the first call that differs does.

    Args:
        compiled: The play under test: the same calls from the same seeds.
    """
    doubtful: list[Comparison] = []
    for index, (expected, seen) in enumerate(zip(eager.first, compiled, strict=False)):
        calls = _compare_calls(eager, index, expected, seen, strides=strides)
        if calls.answer == "passes":
            continue
        named = (replace(d, name=f"call{index + 1}.{d.name}") for d in calls.differences)
        calls = replace(calls, differences=tuple(named), call=index + 1, more=seen.more)
        if calls.answer == "fails":
            return calls
        doubtful.append(calls)
    if not doubtful and _draws_more(eager, compiled):
        detail = "draws random numbers in each call, eager draws none"
        difference = CallDifference("state", "call1.state.torch.generator", detail)
        return Comparison("fails", (difference,), call=1)
    doubtful.sort(key=lambda calls: calls.is_excused)
    raised = _exception_of_all(eager.first)
    passed = Comparison("passes", detail=_agreement(eager.first), raised=raised)
    return next(iter(doubtful), passed)


def compare_documented(
    eager: EagerPlays,
    found: Comparison,
    play_compiled: Callable[[How], Sequence[Played]],
    *,
    strides: bool,
) -> Comparison:
    """Return the answer for differing plays where torch may document the difference.

    A program that draws from numpy is played again, compiled with numpy's own stream: the
    difference is documented if it vanishes.

    Args:
        play_compiled: Plays the side under test.
    """
    if found.answer != "fails" or not _draws_from_numpy(eager, found):
        return found
    how = replace(eager.how, settings=tuple(NUMPYS_STREAM.items()))
    again = compare_plays(eager, play_compiled(how), strides=strides)
    if again.answer != "passes" and not again.is_excused:
        return found
    return replace(found, answer="documented", detail=str(NUMPY))


def _draws_from_numpy(eager: EagerPlays, found: Comparison) -> bool:
    """Return whether each value that differs depends on numpy's seed in eager."""
    if any(difference.kind not in NUMBERS for difference in found.differences):
        return False
    try:
        other = eager.vary(Variation(numpy_seed=1))[found.call - 1].run.values
    except RuntimeError:  # with other numbers the program raises
        return False
    own = eager.first[found.call - 1].run.values
    names = [difference.name.partition(".")[2] for difference in found.differences]
    return all(name in own and not identical(own[name], other.get(name)) for name in names)


def _draws_more(eager: EagerPlays, compiled: Sequence[Played]) -> bool:
    """Return whether the play under test draws random numbers in each call, and eager in none.

    A compiler may draw while it compiles: one call decides nothing.
    """
    if len(compiled) < 2 or not all(call.run.drew_random for call in compiled):
        return False
    return not any(call.run.drew_random for call in (*eager.first, *eager.again))


def _exception_of_all(calls: Sequence[Played]) -> Raised | None:
    """Return the exception that every call of the program raises, or that a missing part raises.

    A further call, with inputs that the program does not have, decides nothing.
    """
    errors = [call.error for call in calls if call.error is not None]
    missing = next((error for error in errors if is_missing(error)), None)
    return missing or (errors[-1] if _raise_all(calls) else None)


def _raise_all(calls: Sequence[Played]) -> bool:
    return all(call.error is not None for call in calls if not call.more)


def _agreement(calls: Sequence[Played]) -> str:
    errors = [call.error for call in calls if call.error is not None]
    if _raise_all(calls):
        return f"eager and compiled raise {errors[-1]}"
    compared = (
        f"{count_of(len(calls) - len(errors), 'call')} of the program with the results of eager"
    )
    return f"{compared}; the others raise {errors[-1]}, as in eager" if errors else compared


def _compare_calls(
    eager: EagerPlays, index: int, expected: Played, seen: Played, *, strides: bool
) -> Comparison:
    """Compare one call: exceptions, types of the results, numbers and layout, Python state."""
    outcome = _compare_errors(eager, index, expected, seen)
    if outcome is not None and outcome.answer != "passes":
        return outcome
    types = _compare_types(eager, index, expected, seen)
    if types is not None and types.answer != "documented":
        return types
    numbers = _compare_results(eager, index, expected.run, seen.run, strides=strides)
    state = tuple(_differing_state(eager, index, expected.run.values, seen.run.values))
    if state:
        wrong = numbers.differences if numbers.answer == "fails" else ()
        return Comparison("fails", (*wrong, *state), detail=numbers.detail)
    return (types or outcome or numbers) if numbers.answer == "passes" else numbers


def _compare_types(
    eager: EagerPlays, index: int, expected: Played, seen: Played
) -> Comparison | None:
    """Compare the types of the results; None if they are equal."""
    if expected.form == seen.form:
        return None
    detail = f"{seen.form}, eager gives {expected.form}"
    if eager.again[index].form != expected.form:
        return Comparison("flaky", detail=f"two eager runs differ: {detail}")
    difference = CallDifference("structure", "out", detail)
    if with_arrays(expected.form) == seen.form:
        return Comparison("documented", (difference,), detail=str(SCALARS))
    return Comparison("fails", (difference,))


def _compare_errors(
    eager: EagerPlays, index: int, expected: Played, seen: Played
) -> Comparison | None:
    """Compare a call that raises on one side or on both; None when neither does."""
    own, other = expected.error, seen.error
    if own is None:
        return None if other is None else _compare_exceptions(eager, index, seen, other)
    if other is not None:
        if alike(own, other):
            return Comparison("passes", detail=f"both raise {own}")
        detail = f"{other.message}; eager raises {own}"
        return Comparison("fails", (CallDifference("other-error", "error", detail, other.name),))
    again = eager.again[index].error
    if again is None or not alike(own, again):
        return Comparison("flaky", detail=f"eager raises {own}, but not always")
    detail = f"{own.message}; only eager does"
    return Comparison("fails", (CallDifference("missing-error", "error", detail, own.name),))


def _compare_exceptions(eager: EagerPlays, index: int, seen: Played, error: Raised) -> Comparison:
    """Compare a call that raises only on the compiled side."""
    again = eager.again[index].error
    if again is not None and alike(again, error):
        return Comparison("flaky", detail=f"eager raises {again}, but not always")
    kind = "compile-error" if seen.is_compiling else "runtime-error"
    return Comparison("fails", (CallDifference(kind, "error", error.message, error.name),))


def _compare_results(
    eager: EagerPlays, index: int, expected: Run, seen: Run, *, strides: bool
) -> Comparison:
    """Compare results, and the tensors and gradients of both sides.

    Of a program that is not repeatable, only the values that eager repeats count.
    """

    def judged(names: Sequence[str]) -> RunJudgement:
        ours, its = _only(expected, names), _only(seen, names)
        return _judge_numbers(eager, index, ours, its, strides=strides)

    names = [n for n in expected.values if not n.startswith("state.") and n in seen.values]
    results = judged(names)
    if results.answer != "passes" and eager.again[index].error is None:
        steady = [n for n in names if _is_repeated(eager, index, n)]
        if steady != names and _has_results(steady) == _has_results(names):
            names, results = steady, judged(steady)
    differences = tuple(CallDifference(m.kind, m.name, m.detail) for m in results.mismatches)
    return Comparison(results.answer, differences, detail=results.detail)


def _is_repeated(eager: EagerPlays, index: int, name: str) -> bool:
    """Return whether eager repeats a value from the same seed."""
    first, again = eager.first[index].run.values, eager.again[index].run.values
    return name in again and compare_values(name, first[name], again[name]) is None


def _has_results(names: Sequence[str]) -> bool:
    return any(name.startswith("out") for name in names)


def _share_values(own: Played, call: Played) -> Played:
    """Return a varied call that holds the tensors of the first play where they are equal.

    Weights are mostly equal in all plays, and as large as the memory allows.
    """
    first = own.run.values
    values = {
        name: first[name] if name in first and identical(first[name], value) else value
        for name, value in call.run.values.items()
    }
    return replace(call, run=replace(call.run, values=values))


def _judge_numbers(
    eager: EagerPlays, index: int, expected: Run, seen: Run, *, strides: bool
) -> RunJudgement:
    """Judge the values of both sides by the rule of repros."""
    names = list(expected.values)

    def reference() -> tuple[Mapping[str, object] | None, str]:
        plays, note = eager.exact
        if plays is None:
            return None, note
        values = plays[index].run.values
        pairs = [(name, expected.values[name], values.get(name)) for name in names]
        far = [name for name, value, exact in pairs if _is_far(value, exact)]
        other = next((n for n in far if not eager.is_noise(index, n, values[n])), None)
        return (values, "") if other is None else (None, f"the float64 play gives another {other}")

    return judge_runs(
        expected,
        seen,
        vary=lambda variation: _only(eager.vary(variation)[index].run, names),
        reference=reference,
        fakes=None if strides else dict,
    )


def _is_far(value: object, exact: object) -> bool:
    """Return whether a float64 value belongs to another program, and is not a more exact one.

    A program may request its own dtype, draw at another place, take another branch.
    """
    if not (isinstance(value, Tensor) and isinstance(exact, Tensor)):
        return False
    if value.dtype not in (torch.float32, torch.float64) or value.shape != exact.shape:
        return False
    distance, size = _distance(value, exact), float(exact.detach().double().norm())
    return math.isfinite(distance) and distance > FAR * max(size, TINY)


def _distance(value: object, other: object) -> float:
    """Return the norm of the difference of two tensors; infinity if they are not alike.

    Integers are subtracted as such: large ones have no float64 form, and their difference has.
    """
    if not (isinstance(value, Tensor) and isinstance(other, Tensor)) or value.shape != other.shape:
        return math.inf
    if not any(each.is_floating_point() or each.is_complex() for each in (value, other)):
        return float((value.to(torch.int64) - other.to(torch.int64)).double().norm())
    wide = torch.complex128 if value.is_complex() or other.is_complex() else torch.float64
    return float((value.detach().to(wide) - other.detach().to(wide)).norm())


def _only(run: Run, names: Sequence[str]) -> Run:
    return replace(run, values={name: run.values.get(name) for name in names})


def _differing_state(
    eager: EagerPlays, index: int, expected: Mapping[str, object], seen: Mapping[str, object]
) -> Iterator[CallDifference]:
    for name in dict.fromkeys([*expected, *seen]):
        is_one_sided = (name in expected) != (name in seen)
        if name.startswith("out") or not (is_one_sided or name.startswith("state.")):
            continue
        if not is_one_sided and compare_values(name, expected[name], seen[name]) is None:
            continue
        again = eager.again[index].run.values
        if (name in again) != (name in expected):
            continue
        if name in expected and compare_values(name, expected[name], again[name]) is not None:
            continue
        message = f"{_show(seen, name)}, eager leaves {_show(expected, name)}"
        yield CallDifference("state", name, message)


def _show(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "nothing"
    value = values[name]
    text = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
