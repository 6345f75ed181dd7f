"""Check: compare every value that survives a step of the compile, step by step, in one compile.

For each step the graph before it runs in float64 (the reference) and in its own dtype (eager's own
error), the graph after it in its own dtype. Nodes are matched by name. A kernel is compared with
its own nodes run in eager. So the first wrong step is found however many layers later the error
would show, or hide.

What it does not do: it vetoes nothing, so it proves nothing; bisect does that with a
counterfactual.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.properties import is_random
from ctk.compiler.observe import KernelId, RewriteRecord, Stage, first_line
from ctk.repro_templates.compare import compare_values
from ctk.repro_templates.errors import Mismatch, identical
from ctk.repro_templates.tolerance import TABLE
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep, StageValues, compile_steps, stage_values
from ctk.toolkit.processes.link import tell_alive
from ctk.toolkit.run.modes import applied
from ctk.toolkit.run.node_values import graph_values

Values = Mapping[str, object]
Inputs = tuple[object, ...] | None
"""Given values for a graph's placeholders; None for those that its stage got."""
_SHAPE_KINDS = ("dtype", "shape", "structure")


@dataclass(frozen=True, slots=True)
class Finding:
    """What the check says of one step.

    Attributes:
        step: The step.
        status: `ok`, `wrong`, or `unknown` when it could not be run.
        mismatch: The first wrong value in graph order, for `wrong`.
        node: Name of the node that has it.
        compared: How many values were compared.
        reason: Why it is unknown.
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
        """The wrong node and what is wrong with it, or why a step is unknown."""
        mismatch = self.mismatch
        if mismatch is None:
            return self.reason
        written = " (an input, after the call)" if mismatch.name.startswith("input.") else ""
        return f"{self.node}{written}: {mismatch.kind}: {mismatch.detail}"


def check_log(case: Case, log: CompileLog) -> Iterator[Finding]:
    """Yield one finding per step of a finished compile, in order. The log must hold its calls."""
    checker = Checker(case, log)
    for step in compile_steps(log):
        tell_alive()
        yield checker.check(step)


def guilty_rewrite(checker: "Checker", finding: Finding) -> RewriteRecord | None:
    """Return the first rewrite of a wrong pass after which a surviving value is wrong.

    A binary search over the graphs after each rewrite, without any compile. Needs those graphs
    (`Recorder(keep_rewrites=True)`); None without them.
    """
    record = finding.step.record
    if record is None:
        return None
    kept = [rewrite for rewrite in record.rewrites if rewrite.after is not None]

    def is_wrong(count: int) -> bool:
        build = kept[count - 1].after
        assert build is not None
        return checker.check(replace(finding.step, after=build())).status == "wrong"

    if not kept or not is_wrong(len(kept)):
        return None
    return kept[bisect_left(range(1, len(kept)), True, key=is_wrong)]


class Checker:
    """Runs the graphs of one log; keeps recent values: `after` a step is `before` the next."""

    _KEPT = 4

    def __init__(self, case: Case, log: CompileLog) -> None:
        self._case = case
        self._stage_values: StageValues = stage_values(case, log)
        self._cache: dict[tuple[int, torch.dtype | None], tuple[GraphModule, Values]] = {}
        self._wrong_kernels: set[KernelId] = set()

    def check(self, step: CompileStep) -> Finding:
        """Return the finding on one step; a graph that cannot run makes it unknown."""
        try:
            return self._check(step)
        except _Unknown as unknown:
            return Finding(step, "unknown", reason=str(unknown))

    def _check(self, step: CompileStep) -> Finding:
        before_stage: Stage = "joint" if step.kind == "partition" else step.stage
        self._refuse_if_explained(step)
        before = self._values(step.before, before_stage, step.inputs)
        after, names = self._after(step, before)
        compared = 0
        for name in names:
            compared += 1
            if identical(before[name], after[name]):
                continue  # most values: the reference is computed only when one differs
            exact = self._values(step.before, before_stage, step.inputs, torch.float64).get(name)
            rows = TABLE[step.numerics]
            mismatch = compare_values(name, before[name], after[name], exact, rows)
            if mismatch is not None and not self._excused(step, name, mismatch, before, after):
                node = _node_of(step, name)
                self._wrong_kernels.update(step.kernels)
                return Finding(step, "wrong", mismatch, node, compared)
        return Finding(step, "ok", compared=compared)

    def _after(self, step: CompileStep, before: Values) -> tuple[Values, Sequence[str]]:
        """Return the values after the step, and the names to compare in order."""
        if step.values is not None:
            after = step.values
        elif step.after is not None:
            after = self._values(step.after, step.stage)
        else:
            raise _Unknown("the graph after it was not kept")
        names = [name for name in after if name in before]
        if step.kind == "partition":  # outputs and inputs are other ones there
            names = [name for name in names if "." not in name]
        return after, names

    def _excused(
        self, step: CompileStep, name: str, mismatch: Mismatch, before: Values, after: Values
    ) -> bool:
        """A pass may give an inner node another type, or draw random numbers in another order."""
        if step.kind != "kernel" and mismatch.kind in _SHAPE_KINDS and "." not in name:
            return True
        return _draws_differ(step, before, after)

    def _refuse_if_explained(self, step: CompileStep) -> None:
        """Raise for a step whose values are wrong because a kernel is.

        1. The graph of a wrong kernel: that says nothing of what is between its kernels.
        2. The partition's backward graph: it gets what the kernels of the forward graph saved.
        """
        wrong = [kernel for kernel in step.kernels if kernel in self._wrong_kernels]
        if wrong and len(step.kernels) > 1:
            raise _Unknown(f"its kernel {wrong[0]} is wrong")
        if step.kind == "partition" and self._wrong_kernels:
            raise _Unknown(f"its inputs are what {min(map(str, self._wrong_kernels))} returned")

    def _values(
        self,
        graph: GraphModule,
        stage: Stage,
        given: Inputs = None,
        dtype: torch.dtype | None = None,
    ) -> Values:
        key = (id(graph), dtype)
        if key not in self._cache:
            values = self._compute(graph, stage, given, dtype)
            while len(self._cache) >= self._KEPT:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = (graph, values)
        return self._cache[key][1]

    def _compute(
        self, graph: GraphModule, stage: Stage, given: Inputs, dtype: torch.dtype | None
    ) -> Values:
        inputs = self._stage_values.inputs_of(stage, graph) if given is None else given
        if inputs is None:
            raise _Unknown("its inputs are not known: the compiled graph was not called")
        is_traced = stage in ("captured", "pre_grad")
        modes = self._case.modes
        try:
            with applied(modes), torch.set_grad_enabled(is_traced and modes.grad):
                return graph_values(graph, inputs, dtype=dtype)
        except Exception as error:
            if dtype is not None:  # an operator refuses it: eager's values are the reference then
                return {}
            raise _Unknown(f"{type(error).__name__}: {first_line(error)}") from error


class _Unknown(Exception):
    """A graph cannot be run here."""


def _node_of(step: CompileStep, name: str) -> str | None:
    """Return the node behind a value's name; for `output.2`, what the output node lists there."""
    head, _, index = name.partition(".")
    graph = step.after or step.before
    if not index:
        return head
    if head == "input":
        inputs = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        return inputs[int(index)] if int(index) < len(inputs) else None
    output = next(n for n in graph.graph.nodes if n.op == "output")
    operands = (
        output.all_input_nodes if not isinstance(output.args[0], (list, tuple)) else output.args[0]
    )
    node = operands[int(index)] if int(index) < len(operands) else None
    return getattr(node, "name", None)


def _draws_differ(step: CompileStep, before: Values, after: Values) -> bool:
    """Return whether a random node got the same operands but drew other numbers after the step.

    Then values behind it say nothing: the step has moved, added or removed a draw.
    """
    if step.after is None:
        return False
    for node in step.after.graph.nodes:
        if not is_random(node) or node.name not in before or node.name not in after:
            continue
        operands = [operand.name for operand in node.all_input_nodes]
        same_operands = all(_same(before.get(name), after.get(name)) for name in operands)
        if same_operands and not _same(before[node.name], after[node.name]):
            return True
    return False


def _same(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return identical(a, b)
