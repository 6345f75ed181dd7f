"""Check: compare the values before and after each step of one compile.

The rule is explained in the package's docstring. A graph that raises, because the program itself
raises, has values up to the raising node. A step after which nothing raises is wrong.

It vetoes nothing, so it proves nothing; `bisect` does that with a counterfactual.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.same import same_inputs
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import input_names
from ctk.compiler.observe import KernelId, Stage, first_line
from ctk.repro_templates.graph.covering import RUNS, cover_values
from ctk.repro_templates.graph.exceptions import alike, describe_error, is_of_a_leaf
from ctk.repro_templates.graph.rounding import random_rounding
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.errors import Mismatch, identical
from ctk.repro_templates.numbers.tolerance import TABLE
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.comparable_values import (
    draws_differ,
    find_undetermined_values,
    read_nodes,
    spoil,
    unwritten_nodes,
)
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import (
    CompileStep,
    StageValues,
    compile_steps,
    node_of,
    stage_values,
)
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.execution.node_values import NOTHING, graph_values, values_and_error
from ctk.toolkit.execution.private_copy import find_raising_node
from ctk.toolkit.processes.link import report_alive

Values = Mapping[str, object]
Inputs = tuple[object, ...] | None
"""Values for the placeholders of a graph; None: the inputs of its stage."""
Changes = Mapping[str, Callable[[object], None]]
"""By node, a change of its value in place."""
_SHAPE_KINDS = ("dtype", "shape", "structure")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of the check for one step.

    Attributes:
        status: `ok`, `wrong`, or `unknown` when it could not be run.
        mismatch: The first wrong value in graph order, for `wrong`.
    """

    step: CompileStep
    status: Literal["ok", "wrong", "unknown"]
    mismatch: Mismatch | None = None
    node: str | None = None
    compared: int = 0
    reason: str = ""

    @property
    def where(self) -> str:
        return self.step.where

    @property
    def what(self) -> str:
        """The wrong node and its mismatch, or why a step is unknown."""
        mismatch = self.mismatch
        if mismatch is None:
            return self.reason
        written = " (an input, after the call)" if mismatch.name.startswith("input.") else ""
        return f"{self.node}{written}: {mismatch.kind}: {mismatch.detail}"


def check_log(case: Case, log: CompileLog) -> Iterator[Finding]:
    """Yield one finding per step of a finished compile, in order; the log must hold calls."""
    checker = Checker(case, log)
    for step in compile_steps(log):
        report_alive()
        yield checker.check(step)


@dataclass(frozen=True, slots=True)
class ValuesAround:
    """The values before and after a step, and those to compare, in the order of the graph."""

    step: CompileStep
    before: Values
    after: Values
    names: Sequence[str]

    def node(self, name: str) -> str | None:
        """Return the node behind a value."""
        return node_of(self.step, name)


class _RoundedRuns:
    """The values of a graph under other roundings, one run for each rounding.

    A run is made when it is needed, and kept for the other values of the step, up to `_NBYTES`.

    Args:
        rerun: Returns the values of the graph; takes the roundings as `around`.
        names: The values to yield.
    """

    _NBYTES = 1 << 30

    def __init__(self, rerun: Callable[..., Values], names: Collection[str]) -> None:
        self._rerun, self._names = rerun, names
        self._kept: list[Values] = []
        self._room = self._NBYTES

    def __iter__(self) -> Iterator[Values]:
        for number in range(1, RUNS + 1):
            if number <= len(self._kept):
                yield self._kept[number - 1]
                continue
            values = self._rerun(around=random_rounding(number))
            found = {name: values[name] for name in self._names if name in values}
            tensors = (each for each in found.values() if isinstance(each, torch.Tensor))
            self._room -= sum(tensor.nbytes for tensor in tensors)
            if self._room >= 0:
                self._kept.append(found)
            yield found


class Checker:
    """Runs the graphs of one log; caches values, because `after` a step is `before` the next."""

    _KEPT = 4

    def __init__(self, case: Case, log: CompileLog) -> None:
        self._case = case
        self._stage_values: StageValues = stage_values(case, log)
        self._cache: dict[tuple[int, torch.dtype | None, bool], _GraphRun] = {}
        self._wrong_kernels: set[KernelId] = set()
        self._error: object = _NOT_RUN
        self._has_wrong_decomposition = False
        self._rounded: Iterable[Values] = ()
        self._undetermined: tuple[CompileStep, frozenset[str]] | None = None

    def check(self, step: CompileStep) -> Finding:
        """Return the finding on one step; a graph that cannot run makes it unknown."""
        try:
            found = self._check(step)
        except _CannotRun as unknown:
            return Finding(step, "unknown", reason=str(unknown))
        if found.status == "wrong":
            self._wrong_kernels.update(step.kernels)
            self._has_wrong_decomposition |= step.kind == "decomposition"
        return found

    def around(self, step: CompileStep) -> ValuesAround | None:
        """Return the values around a step; None if its graphs cannot run.

        Of the dispatch steps only decompositions: the values of each operator and of the node that
        replaced it.
        """
        if step.counterparts is not None and step.kind != "decomposition":
            return None
        try:
            return self._around(step)
        except _CannotRun:
            return None

    def exact(self, around: ValuesAround, name: str) -> object:
        """Return a value of the graph before a step in float64; None if it has none."""
        return self._run_before(around.step, torch.float64).values.get(name)

    def _around(self, step: CompileStep) -> ValuesAround:
        before = self._run_before(step).values
        if step.counterparts is None:
            after, names, _ = self._after(step, before)
            return ValuesAround(step, before, after, names)
        traced, pairs = self._run_traced(step).values, step.counterparts.items()
        made = {name: traced[nodes[-1]] for name, nodes in pairs if nodes[-1] in traced}
        return ValuesAround(step, before, made, [name for name in made if name in before])

    def _run_before(self, step: CompileStep, dtype: torch.dtype | None = None) -> "_GraphRun":
        return self._run(step.before, *self._before(step), dtype)

    def _before(self, step: CompileStep) -> tuple[Stage, Inputs]:
        """Return the stage of the graph before a step, and its inputs if the step has them."""
        if step.counterparts is None:
            return "joint" if step.kind == "partition" else step.stage, step.inputs
        if step.kind == "functionalize":
            return "captured", None
        traced = self._run_traced(step).values
        return step.stage, tuple(traced[name] for name in input_names(step.before))

    def _check(self, step: CompileStep) -> Finding:
        if step.counterparts is not None:
            return self._check_dispatch(step, step.counterparts)
        self._refuse_if_explained(step)
        ran = self._run_before(step)
        before = ran.values
        after, names, after_error = self._after(step, before)
        differing = [
            (number, name)
            for number, name in enumerate(names, 1)
            if not identical(before[name], after[name])
        ]
        self._rounded = _RoundedRuns(partial(self._rerun, step), {name for _, name in differing})
        for compared, name in differing:
            exact = self._run_before(step, torch.float64).values.get(name)
            rows = TABLE[step.numerics]
            mismatch = compare_values(name, before[name], after[name], exact, rows)
            if mismatch is not None and not self._is_excused(step, name, mismatch, before, after):
                return Finding(step, "wrong", mismatch, node_of(step, name), compared)
        return _check_error(step, ran.error, after_error, len(names))

    def _check_dispatch(
        self, step: CompileStep, counterparts: Mapping[str, Sequence[str]]
    ) -> Finding:
        """Compare each value with its counterparts in the traced graph: one of them must agree.

        1. Whole operators: their operands are values of the traced graph.
        2. The captured graph, unless a wrong decomposition explains the difference.
        """
        is_whole = step.kind == "decomposition"
        if not is_whole and self._has_wrong_decomposition:
            raise _CannotRun("a decomposition is wrong")
        traced, ran, compared = self._run_traced(step), self._run_before(step), 0
        for name, nodes in counterparts.items():
            values = [value for node in nodes if (value := traced.values.get(node)) is not None]
            if name not in ran.values or not values:
                continue
            value, compared = ran.values[name], compared + 1
            if any(identical(value, other) for other in values):
                continue
            exact = self._run_before(step, torch.float64).values.get(name)
            mismatch = _nearest_mismatch(step, name, value, values, exact)
            if mismatch and name not in self._find_undetermined(step, ran.values):
                return Finding(step, "wrong", mismatch, nodes[-1] if is_whole else name, compared)
        return _check_error(step, ran.error, traced.error, compared)

    def _run_traced(self, step: CompileStep) -> "_GraphRun":
        """Run the traced graph; if it raises, it has too few values to compare with."""
        assert step.after is not None
        traced = self._run(step.after, "joint")
        if traced.error is not None:
            raise _CannotRun("the traced graph raises the exception of the program")
        return traced

    def _after(
        self, step: CompileStep, before: Values
    ) -> tuple[Values, Sequence[str], Exception | None]:
        """Return the values after the step, the names to compare in order, and the exception."""
        error = None
        if step.values is not None:
            after = step.values
        elif step.after is not None:
            given = _inputs_of_part(step.after, before) if step.kind == "partition" else None
            ran = self._run(step.after, step.stage, given)
            after, error = ran.values, ran.error
        else:
            raise _CannotRun("the graph after it was not kept")
        names = [name for name in after if name in before]
        if step.kind == "partition" or not same_inputs(step.before, step.after or step.before):
            names = [
                name for name in names if "." not in name
            ]  # outputs and inputs correspond to no others
        return after, names, error

    def _is_excused(
        self, step: CompileStep, name: str, mismatch: Mismatch, before: Values, after: Values
    ) -> bool:
        """Return whether a difference does not count.

        1. The value is unused, or undetermined by the program (comparable_values.py).
        2. A pass may change the type of an inner node, or the order of random draws. A kernel has
           the dtype of the fake tensor, where that of an operator differs from its own results.
        3. Rounding explains it (excuses.py): eager moves as far with other roundings.
        """
        if step.after is not None and "." not in name and name not in read_nodes(step.after):
            return True
        if name in self._find_undetermined(step, before):
            return True
        if step.kind == "kernel" and mismatch.kind == "dtype":
            value = _in_dtype_of(_fake_of(step, name), before[name])
            exact = self._run_before(step, torch.float64).values.get(name)
            return compare_values(name, value, after[name], exact, TABLE[step.numerics]) is None
        if step.kind != "kernel" and mismatch.kind in _SHAPE_KINDS and "." not in name:
            return True
        if step.after is not None and draws_differ(step.after, before, after):
            return True
        is_rounded = mismatch.kind == "accuracy" and step.numerics == "reassociates"
        return is_rounded and self._moves_as_far(step, name, before[name], after[name])

    def _moves_as_far(self, step: CompileStep, name: str, value: object, other: object) -> bool:
        """Return whether other roundings of the graph before a step move a value as far.

        Those of the operators inside of the step: a sum that cancels has no order of its own.
        """
        exact = self._run_before(step, torch.float64).values.get(name)

        def compare(covered: Values) -> tuple[Mismatch, ...]:
            found = compare_values(name, value, covered[name], exact, TABLE[step.numerics])
            return (found,) if found is not None else ()

        try:
            seen = cover_values({name: (value, other)}, iter(self._rounded), compare)
        except _CannotRun:  # the program raises with other roundings
            return False
        return seen is not None and not seen.left

    def _find_undetermined(self, step: CompileStep, values: Values) -> frozenset[str]:
        """Return the values that follow unwritten memory or, alone, the position of a generator.

        The nodes of one kernel of many run without the draws before them.
        """
        if self._undetermined is not None and self._undetermined[0] is step:
            return self._undetermined[1]
        unwritten = unwritten_nodes(step.before)
        runs = [self._rerun(step, dict.fromkeys(unwritten, spoil))] if unwritten else []
        if step.kind == "kernel" and step.inputs is not None:
            runs.append(self._rerun(step, more=1))
        found = [find_undetermined_values(values, others) for others in runs if others]
        names = frozenset[str]().union(*found)
        self._undetermined = step, names
        return names

    def _rerun(
        self,
        step: CompileStep,
        changed: Changes = NOTHING,
        around: AbstractContextManager[None] | None = None,
        more: int = 0,
    ) -> Values:
        """Return the values of the graph before a step once more; empty if it cannot run.

        Args:
            more: Added to the seed.

        Raises:
            _CannotRun: It raises with the changed values, or other roundings.
        """
        graph, (stage, given) = step.before, self._before(step)
        modes = replace(self._case.modes, seed=self._case.modes.seed + more)
        inputs = given or self._stage_values.inputs_of(stage, graph)
        if inputs is None:
            return {}
        is_traced = stage in ("captured", "pre_grad")
        with apply_modes(modes), torch.set_grad_enabled(is_traced and modes.grad):
            try:
                with around or nullcontext():
                    return graph_values(graph, inputs, changed=changed)
            except Exception as error:
                raise _CannotRun(f"{type(error).__name__}: {first_line(error)}") from error

    def _refuse_if_explained(self, step: CompileStep) -> None:
        """Raise for the whole graph of a wrong kernel: operators between kernels stay unknown."""
        wrong = [kernel for kernel in step.kernels if kernel in self._wrong_kernels]
        if wrong and len(step.kernels) > 1:
            raise _CannotRun(f"its kernel {wrong[0]} is wrong")

    def _run(
        self,
        graph: GraphModule,
        stage: Stage,
        given: Inputs = None,
        dtype: torch.dtype | None = None,
    ) -> "_GraphRun":
        key = (id(graph), dtype, given is None)
        if key not in self._cache:
            ran = self._compute(graph, stage, given, dtype)
            while len(self._cache) >= self._KEPT:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = ran
        return self._cache[key]

    def _compute(
        self, graph: GraphModule, stage: Stage, given: Inputs, dtype: torch.dtype | None
    ) -> "_GraphRun":
        inputs = self._stage_values.inputs_of(stage, graph) if given is None else given
        if inputs is None:
            raise _CannotRun("its inputs are not known: the compiled graph was not called")
        is_traced = stage in ("captured", "pre_grad")
        modes = self._case.modes
        with apply_modes(modes), torch.set_grad_enabled(is_traced and modes.grad):
            if dtype is None:
                values, error = values_and_error(graph, inputs)
                if error is None or self._is_programs(error):
                    return _GraphRun(graph, values, error)
                raise _CannotRun(f"{type(error).__name__}: {first_line(error)}") from error
            try:
                return _GraphRun(graph, graph_values(graph, inputs, dtype=dtype))
            except Exception:  # without float64, eager's values are the reference
                return _GraphRun(graph, {})

    def _is_programs(self, error: Exception) -> bool:
        """Return whether the program raises this exception in eager.

        A graph with operators that run only in a compiler raises others.
        """
        if self._error is _NOT_RUN:
            self._error = run_eager(self._case).error
        own = self._error
        return isinstance(own, Exception) and alike(
            describe_error(own), describe_error(error, compiling=False)
        )


@dataclass(frozen=True, slots=True)
class _GraphRun:
    """The values of a graph, up to the raising node if it raises as the program does."""

    graph: GraphModule
    values: Values
    error: Exception | None = None


_NOT_RUN = object()


class _CannotRun(Exception):
    """A graph cannot be run here."""


def _inputs_of_part(part: GraphModule, joint: Values) -> Inputs:
    """Return the inputs of a part of a joint graph, as eager computes them; None if one is new.

    Kernels of the forward graph round the values that they save for backward in their own way.
    """
    names = input_names(part)
    return tuple(joint[name] for name in names) if all(name in joint for name in names) else None


def _fake_of(step: CompileStep, name: str) -> object:
    """Return the fake value of the node behind a value; None if it has none."""
    node = node_of(step, name)
    fakes = (value_of(each) for each in step.before.graph.nodes if each.name == node)
    return next(fakes, None)


def _check_error(
    step: CompileStep, before: Exception | None, after: Exception | None, compared: int
) -> Finding:
    """Return the finding on a step of equal values: wrong if it loses the program's exception."""
    if before is None or after is not None or is_of_a_leaf(before):
        return Finding(step, "ok", compared=compared)
    node, detail = find_raising_node(before), describe_error(before)
    text = f"{detail}; nothing is raised after this step"
    return Finding(step, "wrong", Mismatch(node or "", "missing-error", text), node, compared)


def _nearest_mismatch(
    step: CompileStep, name: str, value: object, others: Sequence[object], exact: object
) -> Mismatch | None:
    """Return the mismatch of a value with all of the others; None if one of them agrees.

    Of the traced values of a captured node only those of its shape and dtype are candidates. A
    decomposition may give an inner value another float dtype, as a pass may: on the CPU that of
    `native_layer_norm` computes the mean of bfloat16 in bfloat16 also if the weights are float32.
    """
    if step.kind == "functionalize":
        others = [other for other in others if _is_alike(value, other)]
    rows = TABLE[step.numerics]
    mismatches = [
        compare_values(name, _in_dtype_of(other, value), other, exact, rows) for other in others
    ]
    return mismatches[-1] if mismatches and all(mismatches) else None


def _in_dtype_of(other: object, value: object) -> object:
    """Return a value in the dtype of another one of its kind: floats, complex numbers, integers."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return value
    kinds = {(each.is_floating_point(), each.is_complex()) for each in (value, other)}
    return value.to(other.dtype) if len(kinds) == 1 else value


def _is_alike(value: object, other: object) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return value.shape == other.shape and value.dtype == other.dtype
