"""Convert a compile log to steps that can be run and compared.

A step leads from one graph to the next: a pass, the partition into forward and backward, or a
kernel: some or all nodes of a graph, and the values that the compiled kernel returned. The nodes of
one kernel of many read the values that the other kernels returned in that call, so that an error of
another kernel is not attributed to it.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.freezing.freeze import frozen_parameters
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.extract import extract
from ctk.compiler.fx.properties import base_of
from ctk.compiler.fx.same import same_graph
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import input_names
from ctk.compiler.observe import (
    CallRecord,
    KernelCall,
    KernelId,
    Numerics,
    PassRecord,
    Stage,
    StageRecord,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.scalars import size_hint
from ctk.toolkit.compile_log.dispatch_graphs import (
    DispatchTrace,
    build_whole_operators,
    map_origins,
)
from ctk.toolkit.compile_log.recorder import CompileLog, Event

StepKind = Literal[
    "stage", "pass", "partition", "kernel", "decomposition", "functionalize", "meta", "operator"
]


@dataclass(frozen=True, slots=True)
class CompileStep:
    """One step of the graph.

    Attributes:
        kind: `decomposition`: whole operators and the nodes that replaced them. `functionalize`:
            the captured graph and the traced one. `meta`: the metadata from an operator's fake
            implementation; it changes no graph. `operator`: a custom operator; likewise. `stage`:
            a graph on entry to a stage.
        where: `stage/pass`, `joint/partition`, or `lowered/codegen:name`.
        before: The graph before it, whose values must survive. For one kernel of many: its nodes.
        after: The graph after it; None for a kernel, which has `values`.
        kernels: For a kernel: its id; for the call of a graph with many kernels: all their ids.
        inputs: Values for the placeholders of `before`; None: those of the stage.
        values: The results of a kernel by node; for a whole graph its results as `output.0` and
            its inputs after the call as `input.0`.
        counterparts: For a step of dispatch: for each value of `before` to compare, the nodes of
            `after`, one of which must agree.
    """

    kind: StepKind
    stage: Stage
    where: str
    before: GraphModule
    after: GraphModule | None
    numerics: Numerics
    record: PassRecord | None = None
    kernels: tuple[KernelId, ...] = ()
    inputs: tuple[object, ...] | None = field(default=None, repr=False)
    values: Mapping[str, object] | None = field(default=None, repr=False)
    counterparts: Mapping[str, Sequence[str]] | None = field(default=None, repr=False)


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
            tangents = (n for n in placeholders if n.name.startswith("tangents"))
            known = {n.name: _tangent(n) for n in tangents} | known
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
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randn(sizes, generator=generator, device="cpu").to(
        dtype=value.dtype, device=value.device
    )


_SOURCES: Mapping[Stage, tuple[Stage, ...]] = {
    "joint": ("forward", "backward", "frozen"),
    "forward": ("forward", "frozen"),
    "backward": ("backward",),
    "frozen": ("frozen", "forward"),
    "lowered": ("forward", "backward", "frozen"),
}


def stage_values(case: Case, log: CompileLog) -> StageValues:
    """Collect the run-time inputs of the compiled graphs of one compile."""
    dispatched: dict[Stage, dict[str, object]] = {}
    for call in log.calls():
        values = dict(zip(input_names(call.graph), call.inputs, strict=False))
        dispatched.setdefault(call.stage, {}).update(values)
        if frozen := frozen_parameters(call.graph):
            dispatched.setdefault("forward", {}).update(frozen)
    return StageValues(case.inputs, dispatched)


_ORDER = (
    "captured", "pre_grad", "dispatch", "joint", "forward", "frozen", "lowered", "kernel",
    "backward",
)  # fmt: skip
_FREEZES_FIRST = tuple(
    {"forward": "frozen", "frozen": "forward"}.get(stage, stage) for stage in _ORDER
)


def compile_steps(log: CompileLog) -> Iterator[CompileStep]:
    """Yield the steps of one compile that may change a value, in the order of the pipeline."""
    return (step for step in every_step(log) if step.before is not step.after)


def every_step(log: CompileLog) -> Iterator[CompileStep]:
    """Yield the steps of one compile in the order of the pipeline, stages and idle passes too.

    The order is that of the data, not of the events: the backward graph is compiled before the
    forward kernel runs, but reads values that this kernel saved.
    """
    stages = [record.stage for record in log.stages()]
    # Inductor freezes the graph from dispatch; ctk freezes after its own passes.
    freezes_first = "frozen" in stages and "forward" not in stages[: stages.index("frozen")]
    order = _FREEZES_FIRST if freezes_first else _ORDER
    yield from sorted(_in_event_order(log), key=partial(_rank, order))


def _rank(order: Sequence[str], step: CompileStep) -> int:
    is_forward_kernel = step.kind == "kernel" and step.stage != "backward"
    rank = order.index("kernel" if is_forward_kernel else step.stage)
    is_last = step.kind == "kernel" and step.stage == "backward"
    return rank + (1 if is_last else 0)


def _in_event_order(log: CompileLog) -> Iterator[CompileStep]:
    joint: GraphModule | None = None
    trace = DispatchTrace()
    for event in log.events:
        yield from _dispatch(trace, event)
        if isinstance(event, StageRecord) and event.stage in ("joint", "frozen"):
            joint = event.graph
        if isinstance(event, StageRecord) and event.stage in ("forward", "backward") and joint:
            yield from _partition(joint, event)
        if isinstance(event, StageRecord):
            yield CompileStep("stage", event.stage, event.stage, event.graph, event.graph, "exact")
        if isinstance(event, PassRecord):
            joint = event.after if event.id.stage in ("joint", "frozen") else joint
            if event.id.stage != "dispatch":
                yield CompileStep(
                    "pass", event.id.stage, str(event.id), event.before, event.after,
                    event.numerics, record=event,
                )  # fmt: skip
        if isinstance(event, CallRecord):
            yield from _kernels(event, log)


def _dispatch(trace: DispatchTrace, event: Event) -> Iterator[CompileStep]:
    """Yield the steps of dispatch when the event holds the first traced graph."""
    traced = trace.see(event)
    if traced is None:
        return
    for record in trace.decompositions:
        whole = build_whole_operators(record, traced)
        if whole is not None:
            yield CompileStep(
                "decomposition", "dispatch", str(record.id), whole.graph, traced, record.numerics,
                record=record, counterparts=whole.results,
            )  # fmt: skip
    if trace.captured is not None:
        yield CompileStep(
            "functionalize", "dispatch", "dispatch/functionalize", trace.captured, traced,
            "reassociates", counterparts=map_origins(traced, trace.captured),
        )  # fmt: skip


def _partition(joint: GraphModule, event: StageRecord) -> Iterator[CompileStep]:
    """Yield the partition; an inference graph is not partitioned."""
    if not same_graph(joint, event.graph):
        yield CompileStep("partition", event.stage, "joint/partition", joint, event.graph, "exact")


def _kernels(call: CallRecord, log: CompileLog) -> Iterator[CompileStep]:
    """Yield each kernel with recorded values, then the whole graph."""
    nodes = {record.id: record.nodes for record in log.kernels()}
    known = dict(zip(input_names(call.graph), call.inputs, strict=False))
    for kernel in call.kernels:
        known.update(kernel.values)
    for kernel in call.kernels:
        if kernel.values:
            yield _one_of_many(call, kernel, nodes[kernel.id], {**known, **kernel.read})
    values = {f"output.{i}": value for i, value in enumerate(call.outputs)}
    values |= {f"input.{i}": value for i, value in enumerate(call.inputs_after)}
    yield _kernel(call, call.graph, tuple(each.id for each in call.kernels), values)


def _one_of_many(
    call: CallRecord, kernel: KernelCall, nodes: Iterable[str], known: Mapping[str, object]
) -> CompileStep:
    """Return the step of one kernel, with three kinds of nodes besides its own.

    1. Nodes outside of all kernels, whose values were not recorded.
    2. `getitem` of a result that is a tuple, because only elements are compared.
    3. Nodes that write into an operand before the kernel reads it, such as custom operators.
    """
    elements = dict(_elements(call.graph, kernel.values))
    wanted, read = {*nodes, *elements}, set[Node]()
    for node in reversed(call.graph.graph.nodes):
        is_writer = any(base_of(argument) in read for argument in mutated_arguments(node))
        if node.name in wanted or is_writer:
            operands = node.all_input_nodes
            wanted |= {node.name, *(each.name for each in operands if each.name not in known)}
            read |= {base_of(each) for each in operands if each.name not in kernel.read}
    part = extract(call.graph, wanted)
    inputs = tuple(known[name] for name in part.operands)
    return _kernel(call, part.module, (kernel.id,), {**elements, **kernel.values}, inputs)


def _elements(graph: GraphModule, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the nodes that take an element of one of the tuples in `values`, with the element."""
    for node in graph.graph.find_nodes(op="call_function", target=operator.getitem):
        source, index = node.args
        value = values.get(source.name) if isinstance(source, Node) else None
        if isinstance(value, (list, tuple)) and isinstance(index, int) and node.name not in values:
            yield node.name, cast("Sequence[object]", value)[index]


def _kernel(
    call: CallRecord,
    graph: GraphModule,
    kernels: tuple[KernelId, ...],
    values: Mapping[str, object],
    inputs: tuple[object, ...] | None = None,
) -> CompileStep:
    where = str(kernels[0]) if kernels else f"{call.stage}/kernel"
    if len(kernels) > 1:
        where = f"lowered/{kernels[0].codegen}:{call.stage}"
    return CompileStep(
        "kernel", call.stage, where, graph, None, "reassociates",
        kernels=kernels, inputs=inputs, values=values,
    )  # fmt: skip


def node_of(step: CompileStep, name: str) -> str | None:
    """Return the node of a value's name; for `output.2`, the third operand of the output node."""
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
