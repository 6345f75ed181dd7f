"""Compare the calls of two plays of one program: the first call that differs, and how.

Each call is compared as a case is: exceptions by `repro_templates/exceptions.py`, numbers by
`repro_templates/judging.py`, with a float64 play as the reference where the program has one. Then
what is no number: types of the results, `requires_grad`, shared memory, strides, Python state. What
eager itself does not do twice (a time, an id) is not compared.

    eager     call 1 out0 = 3.0    call 2 out0 = 5.0
    compiled  call 1 out0 = 3.0    call 2 out0 = 3.0    ->  accuracy at call2.out0

What it does not do: play anything but what it is handed; say whose fault it is (layers.py).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ctk.repro_templates.compare import compare_values
from ctk.repro_templates.exceptions import alike, raised
from ctk.repro_templates.judging import Finding, judge_runs
from ctk.repro_templates.layout import LAYOUT
from ctk.repro_templates.running import Run
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.raise_site import raised_in
from ctk.toolkit.end_to_end.play import Played

COMPILING = ("BackendCompilerFailed", "InductorError")
"""What wraps an exception that was raised while a graph was compiled."""

FAR = 0.25
"""Relative distance from eager, in float32, at which a float64 play is another program."""

TINY = 1e-6

NOISY = 10.0
"""How many times further than from itself eager may be from a float64 play of the same program."""


class EagerPlays:
    """Eager as the measure of a program: played once, and again only where that matters.

    Args:
        first: The calls.
        replay: Plays eager again, with the seed raised by so much.
        upcast: Plays it in float64; returns None and the reason where that is not possible.
        nudge: Plays it with inputs and weights that differ in the last bit, more than once.
    """

    def __init__(
        self,
        first: Sequence[Played],
        replay: Callable[[int], Sequence[Played]],
        upcast: Callable[[], tuple[Sequence[Played] | None, str]],
        nudge: Callable[[], Sequence[Sequence[Played]]],
    ) -> None:
        self.first, self.replay, self.upcast, self.nudge = first, replay, upcast, nudge

    @cached_property
    def again(self) -> Sequence[Played]:
        """The calls once more, from the same seed."""
        return self.replay(0)

    @cached_property
    def other(self) -> Sequence[Played]:
        """The calls from another seed."""
        return self.replay(1)

    @cached_property
    def exact(self) -> tuple[Sequence[Played] | None, str]:
        """The calls in float64, or why there are none."""
        return self.upcast()

    @cached_property
    def nudged(self) -> Sequence[Sequence[Played]]:
        """The calls with inputs and weights that differ in the last bit."""
        return self.nudge()

    def is_noise(self, index: int, name: str, exact: object) -> bool:
        """Return whether rounding explains how far a value of eager is from a more exact one.

        A mean of numbers that cancel is nothing but rounding: with neighbours of the same inputs
        eager is about as far from itself.
        """
        value = self.first[index].run.values[name]
        others = [plays[index].run.values.get(name) for plays in self.nudged]
        spread = max(_distance(value, other) for other in others)
        return math.isfinite(spread) and spread * NOISY >= _distance(value, exact)


def compare_plays(
    eager: EagerPlays, compiled: Sequence[Played], *, strides: bool = True
) -> tuple[Judgement, int]:
    """Return the judgement of the first call that differs, and its number; 0 when none does.

    Args:
        eager: What the program gives.
        compiled: What is under test: the same calls from the same seeds.
        strides: Whether strides of results count.
    """
    flaky: tuple[Judgement, int] | None = None
    for index, (expected, seen) in enumerate(zip(eager.first, compiled, strict=True)):
        found = _judged(eager, index, expected, seen, strides=strides)
        if found.signature is not None:
            output = f"call{index + 1}.{found.signature.output or 'error'}"
            found = replace(found, signature=replace(found.signature, output=output))
        if found.fails:
            return found, index + 1
        if found.verdict is Verdict.FLAKY and flaky is None:
            flaky = found, index + 1
    return flaky or (Judgement(Verdict.PASSES, detail=_agreement(eager.first)), 0)


def _agreement(calls: Sequence[Played]) -> str:
    errors = [raised(call.error) for call in calls if call.error is not None]
    if errors:
        return f"eager and compiled raise {errors[-1]}"
    return f"{len(calls)} call(s) of the program give what eager gives"


def _judged(
    eager: EagerPlays, index: int, expected: Played, seen: Played, *, strides: bool
) -> Judgement:
    both_raise: Judgement | None = None
    if expected.error is not None or seen.error is not None:
        both_raise = _judged_errors(eager, index, expected.error, seen.error)
        if both_raise.verdict is not Verdict.PASSES:
            return both_raise
    if expected.form != seen.form:
        detail = f"{seen.form}, eager gives {expected.form}"
        if eager.again[index].form != expected.form:
            return Judgement(Verdict.FLAKY, detail=f"two eager runs differ: {detail}")
        return _fails(Signature("structure", output="out", message=detail))
    numbers = _judged_values(eager, index, expected.run, seen.run, strides=strides)
    if numbers.fails:
        return numbers
    differing = next(_differing_state(eager, index, expected.run.values, seen.run.values), None)
    return _fails(differing) if differing is not None else both_raise or numbers


def _fails(signature: Signature, detail: str = "") -> Judgement:
    return Judgement(Verdict.REPRODUCES, signature, detail)


def _judged_errors(
    eager: EagerPlays, index: int, wanted: BaseException | None, seen: BaseException | None
) -> Judgement:
    """Judge a call that raises on one side or on both."""
    if wanted is None:
        assert seen is not None
        again = eager.again[index].error
        if again is not None and alike(raised(again), raised(seen)):
            return Judgement(Verdict.FLAKY, detail=f"eager raises {raised(again)}, but not always")
        return _fails(_error(seen, "compile-error" if _is_compiling(seen) else "runtime-error"))
    own = raised(wanted)
    if seen is not None:
        if alike(own, raised(seen)):
            return Judgement(Verdict.PASSES, detail=f"both raise {own}")
        signature = _error(seen, "other-error")
        return _fails(replace(signature, message=f"{signature.message}; eager raises {own}"))
    again = eager.again[index].error
    if again is None or not alike(own, raised(again)):
        return Judgement(Verdict.FLAKY, detail=f"eager raises {own}, but not always")
    return _fails(Signature("missing-error", own.name, message=f"{own.message}; only eager does"))


def _error(error: BaseException, kind: FailureKind) -> Signature:
    said = raised(error)
    return Signature(kind, said.name, raised_in(error), message=said.message)


def _is_compiling(error: BaseException) -> bool:
    kind = type(error)
    return kind.__name__ in COMPILING or kind.__module__.startswith("torch._dynamo")


def _judged_values(
    eager: EagerPlays, index: int, expected: Run, seen: Run, *, strides: bool
) -> Judgement:
    """Judge results, and the tensors and gradients that both sides have.

    Of a program that does not repeat itself, only the values that eager gives twice count.
    """
    names = [n for n in expected.values if not n.startswith("state.") and n in seen.values]
    found = _found(eager, index, _only(expected, names), _only(seen, names), strides=strides)
    if found.answer != "passes" and eager.again[index].error is None:
        steady = [n for n in names if _is_repeated(eager, index, n)]
        if steady != names and _has_results(steady) == _has_results(names):
            ours, its = _only(expected, steady), _only(seen, steady)
            found = _found(eager, index, ours, its, strides=strides)
    if found.answer == "passes":
        return Judgement(Verdict.PASSES, detail=found.detail)
    first = found.mismatches[0]
    signature = Signature(first.kind, output=first.name, message=first.detail)
    verdict = Verdict.FLAKY if found.answer == "flaky" else Verdict.REPRODUCES
    return Judgement(verdict, signature, found.detail)


def _is_repeated(eager: EagerPlays, index: int, name: str) -> bool:
    """Return whether eager gives a value once more, from the same seed."""
    first, again = eager.first[index].run.values, eager.again[index].run.values
    return name in again and compare_values(name, first[name], again[name]) is None


def _has_results(names: Sequence[str]) -> bool:
    return any(name.startswith("out") for name in names)


def _found(eager: EagerPlays, index: int, expected: Run, seen: Run, *, strides: bool) -> Finding:
    """Judge values that both sides have, by the rule of repros."""
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
        eager_again=lambda more: _only((eager.other if more else eager.again)[index].run, names),
        reference=reference,
        layouts=[kind for kind in LAYOUT if strides or kind != "stride"],
    )


def _is_far(value: object, exact: object) -> bool:
    """Return whether a float64 value is no more exact one, but that of another program.

    A program may ask for its own dtype, draw at another place, take another branch.
    """
    if not (isinstance(value, Tensor) and isinstance(exact, Tensor)):
        return False
    if value.dtype not in (torch.float32, torch.float64) or value.shape != exact.shape:
        return False
    distance, size = _distance(value, exact), float(exact.detach().double().norm())
    return math.isfinite(distance) and distance > FAR * max(size, TINY)


def _distance(value: object, other: object) -> float:
    """Return the norm of the difference of two tensors; infinity for what is not alike."""
    if not (isinstance(value, Tensor) and isinstance(other, Tensor)) or value.shape != other.shape:
        return math.inf
    return float((value.detach().double() - other.detach().double()).norm())


def _only(run: Run, names: Sequence[str]) -> Run:
    return replace(run, values={name: run.values.get(name) for name in names})


def _differing_state(
    eager: EagerPlays, index: int, expected: Mapping[str, object], seen: Mapping[str, object]
) -> Iterator[Signature]:
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
        message = f"{_shown(seen, name)}, eager leaves {_shown(expected, name)}"
        yield Signature("state", output=name, message=message)


def _shown(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "nothing"
    value = values[name]
    text = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
