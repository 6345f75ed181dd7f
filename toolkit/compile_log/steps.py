"""What a compile log says happened to the graph, as steps that can be run and compared.

A step leads from one whole graph to the next: a pass, the partition into forward and backward, or a
kernel (a graph and what its compiled form returned). This module finds the graphs
and the values to feed them; it compares nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.same import same_graph
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.observe import CallRecord, Numerics, PassRecord, Stage, StageRecord
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.graphs.value_types import size_hint


@dataclass(frozen=True, slots=True)
class CompileStep:
    """One step of the graph.

    Attributes:
        kind: What kind of step it is.
        where: `stage/pass`, `joint/partition`, or `lowered/codegen:name`.
        before: The graph before it; its values are what must survive.
        after: The graph after it; None for a kernel, whose values are in `call`.
        numerics: What the step declares to do to values.
        record: The pass that made it.
        call: The compiled graph's first call, for a kernel.
    """

    kind: Literal["pass", "partition", "kernel"]
    stage: Stage
    where: str
    before: GraphModule
    after: GraphModule | None
    numerics: Numerics
    record: PassRecord | None = None
    call: CallRecord | None = None


@dataclass(frozen=True, slots=True)
class StageValues:
    """Real values for the placeholders of the graphs of a compile, by name.

    `captured` feeds the captured graph, positionally. `dispatched` holds the inputs that the
    compiled graphs got at run time, by placeholder: a joint graph's primals come from the forward
    call, its tangents from the backward call.
    """

    captured: tuple[object, ...] = field(repr=False)
    dispatched: Mapping[Stage, Mapping[str, object]] = field(repr=False)

    def inputs_of(self, stage: Stage, graph: GraphModule) -> tuple[object, ...] | None:
        """Return one value per placeholder of a graph of `stage`; None if a value is not known."""
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        if stage in ("captured", "pre_grad"):
            return self.captured if len(placeholders) == len(self.captured) else None
        known: dict[str, object] = {}
        for source in _SOURCES[stage]:
            known = {**self.dispatched.get(source, {}), **known}
        if not known:
            return None
        if stage == "joint":
            known = {n.name: _tangent(n) for n in placeholders if n.name not in known} | known
        values = tuple(known.get(n.name, _MISSING) for n in placeholders)
        return None if any(value is _MISSING for value in values) else values


_MISSING = object()


def _tangent(node: Node) -> object:
    """Return a seeded stand-in for a joint graph's tangent when no backward pass has run."""
    value = tensor_of(node)
    if value is None:
        return _MISSING
    try:
        sizes = [size_hint(size) for size in value.shape]
    except CaseError:
        return _MISSING
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sizes, generator=generator).to(dtype=value.dtype, device=value.device)


_SOURCES: Mapping[Stage, tuple[Stage, ...]] = {
    "joint": ("forward", "backward"),
    "forward": ("forward",),
    "backward": ("backward",),
    "frozen": ("frozen", "forward"),
    "lowered": ("forward", "backward", "frozen"),
}


def stage_values(case: Case, log: CompileLog) -> StageValues:
    """Collect the run-time inputs of the compiled graphs of one compile."""
    dispatched: dict[Stage, dict[str, object]] = {}
    for call in log.calls():
        names = [n.name for n in call.graph.graph.nodes if n.op == "placeholder"]
        values = dict(zip(names, call.inputs, strict=False))
        dispatched.setdefault(call.stage, {}).update(values)
        if call.stage == "frozen":
            dispatched.setdefault("forward", {}).update(_thawed(log, call))
    return StageValues(case.inputs, dispatched)


def compile_steps(log: CompileLog) -> Iterator[CompileStep]:
    """Yield the steps of one compile in the order of the pipeline; idle passes are left out.

    The order is that of the data, not of the events: the backward graph is compiled before the
    forward kernel runs, but is fed with what that kernel saved.
    """
    yield from sorted(_in_event_order(log), key=_rank)


def _rank(step: CompileStep) -> int:
    order = ("captured", "pre_grad", "joint", "forward", "frozen", "kernel", "backward", "lowered")
    is_forward_kernel = step.kind == "kernel" and step.stage != "backward"
    rank = order.index("kernel" if is_forward_kernel else step.stage)
    is_last = step.kind == "kernel" and step.stage == "backward"
    return rank + (1 if is_last else 0)


def _in_event_order(log: CompileLog) -> Iterator[CompileStep]:
    joint: GraphModule | None = None
    for event in log.events:
        if isinstance(event, StageRecord) and event.stage == "joint":
            joint = event.graph
        if isinstance(event, StageRecord) and event.stage in ("forward", "backward") and joint:
            yield from _partition(joint, event)
        if isinstance(event, PassRecord):
            joint = event.after if event.id.stage == "joint" else joint
            if event.changed:
                yield _pass(event)
        if isinstance(event, CallRecord):
            yield _kernel(event)


def _partition(joint: GraphModule, event: StageRecord) -> Iterator[CompileStep]:
    """An inference graph goes on as it is: nothing is partitioned."""
    if not same_graph(joint, event.graph):
        yield CompileStep("partition", event.stage, "joint/partition", joint, event.graph, "exact")


def _pass(record: PassRecord) -> CompileStep:
    return CompileStep(
        "pass",
        record.id.stage,
        str(record.id),
        record.before,
        record.after,
        record.numerics,
        record=record,
    )


def _kernel(call: CallRecord) -> CompileStep:
    where = str(call.kernels[0].id) if call.kernels else f"{call.stage}/kernel"
    return CompileStep("kernel", call.stage, where, call.graph, None, "reassociates", call=call)


def _thawed(log: CompileLog, call: CallRecord) -> dict[str, object]:
    """Return the frozen parameters by the placeholder that each replaced.

    Freezing names the constant of placeholder `i` `_frozen_i` (compiler/passes/freezing).
    """
    graphs = [s.graph for s in log.stages() if s.stage == "forward"]
    if not graphs:
        return {}
    names = [n.name for n in graphs[-1].graph.nodes if n.op == "placeholder"]
    frozen = next((s.graph for s in log.stages() if s.stage == "frozen"), call.graph)
    values = ((name, getattr(frozen, f"_frozen_{i}", None)) for i, name in enumerate(names))
    return {name: value for name, value in values if value is not None}
