"""Compare the metadata that the compiler assumes for each value with eager: shape, dtype, strides.

Every traced node holds the metadata of its value (`meta["val"]`), computed by the operator's fake
(meta) implementation. The graph runs on real values, and each node is compared:

    copysign   expects f32[5, 6] strides (6, 1)   eager gives strides (1, 5)    wrong
    add        expects strides (6, 1)             its operand differs: skipped

Only a node whose operands match is at fault. Symbolic sizes are compared by their hints. Numbers
and shared memory are not compared. Custom operators are left to `operator_faults.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.dispatch.fake_kernels import fake_kernel_id
from ctk.compiler.errors import CaseError
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.observe import Stage
from ctk.compiler.torch_compat.fx.custom_kernels import is_custom
from ctk.compiler.torch_compat.fx.operators import kind_of
from ctk.repro_templates.numbers.errors import Mismatch
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import FailureKind
from ctk.toolkit.case.formats.scalars import size_hint
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep, stage_values
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.execution.node_values import values_and_error


@dataclass(frozen=True, slots=True)
class MetaMismatch:
    """A node whose value differs from its metadata.

    Attributes:
        where: The step that computed the metadata: `dispatch/meta.OPERATOR`.
        mismatch: Of kind `shape`, `dtype` or `stride`.
    """

    where: str
    node: str
    operator: Callable[..., object]
    graph: GraphModule
    mismatch: Mismatch


def find_meta_mismatches(case: Case, log: CompileLog) -> Iterator[MetaMismatch]:
    """Yield each node of the traced graphs of a finished compile that differs from its metadata."""
    known = stage_values(case, log)
    done: set[str] = set()
    for record in log.stages():
        if record.stage not in ("joint", "forward", "backward"):
            continue
        inputs = known.inputs_of(record.stage, record.graph) or _as_captured(case, record.graph)
        if inputs is None:
            continue
        with apply_modes(case.modes), torch.no_grad():
            values, _ = values_and_error(record.graph, inputs)
        for wrong in _of_graph(record.graph, values):
            if wrong.node not in done:
                done.add(wrong.node)
                yield wrong


def find_meta_findings(case: Case, log: CompileLog, kind: FailureKind) -> Iterator[Finding]:
    """Yield the metadata mismatches that may cause a failure of a kind.

    Operators mismatch often and mostly without effect: they count only if the mismatch has the kind
    of the failure.
    """
    for wrong in find_meta_mismatches(case, log):
        if wrong.mismatch.kind == kind:
            graph = wrong.graph
            step = CompileStep("meta", "dispatch", wrong.where, graph, None, "exact")
            yield Finding(step, "wrong", wrong.mismatch, wrong.node, 1)


def inputs_of_graph(case: Case, log: CompileLog, graph: GraphModule) -> tuple[object, ...] | None:
    """Return the inputs of a compiled graph in its first call; None if they are not known."""
    stages: list[Stage] = [call.stage for call in log.calls() if call.graph is graph]
    known = stage_values(case, log).inputs_of(stages[0], graph) if stages else None
    return known or _as_captured(case, graph)


def _as_captured(case: Case, graph: GraphModule) -> tuple[object, ...] | None:
    """Return the captured inputs if a traced graph has the same ones; None if it has others.

    For a compiled graph that raised, whose inputs were not recorded.
    """
    expected = [tensor_of(node) for node in graph.graph.nodes if node.op == "placeholder"]
    if len(expected) != len(case.inputs):
        return None
    pairs = zip(expected, case.inputs, strict=True)
    is_same = all(isinstance(v, Tensor) and t is not None and t.shape == v.shape for t, v in pairs)
    return case.inputs if is_same else None


def _of_graph(graph: GraphModule, values: Mapping[str, object]) -> Iterator[MetaMismatch]:
    other = {node.name: _mismatch(node, values.get(node.name)) for node in graph.graph.nodes}
    for node in graph.graph.nodes:
        mismatch, operator = other[node.name], _operator(node)
        if mismatch is None or operator is None:
            continue
        if not any(other[operand.name] for operand in _operands(node)):
            yield MetaMismatch(str(fake_kernel_id(operator)), node.name, operator, graph, mismatch)


def _operator(node: Node) -> Callable[..., object] | None:
    """Return the operator that computes a value; for an element of a tuple, that of the tuple."""
    source = node
    while source.op == "call_function" and getattr(source.target, "__name__", "") == "getitem":
        source = source.all_input_nodes[0]
    target = source.target
    if not callable(target) or kind_of(target) != "overload" or is_custom(target):
        return None
    return target


def _operands(node: Node) -> list[Node]:
    operands = node.all_input_nodes
    if getattr(node.target, "__name__", "") == "getitem":
        return operands[0].all_input_nodes
    return operands


def _mismatch(node: Node, real: object) -> Mismatch | None:
    return metadata_mismatch(node.name, tensor_of(node), real)


def metadata_mismatch(name: str, expected: object, real: object) -> Mismatch | None:
    """Return the first difference in form between a value as a compiler knows it and a real one."""
    if not isinstance(expected, Tensor) or not isinstance(real, Tensor):
        return None
    if expected.layout is not torch.strided or real.layout is not torch.strided:
        return None
    try:
        sizes, strides = (
            [size_hint(s) for s in each] for each in (expected.shape, expected.stride())
        )
    except CaseError:  # a size that only run time knows
        return None
    if sizes != list(real.shape):
        return Mismatch(name, "shape", _detail(sizes, list(real.shape)))
    if expected.dtype != real.dtype:
        return Mismatch(name, "dtype", _detail(expected.dtype, real.dtype))
    if expected.device.type != real.device.type:
        return Mismatch(name, "structure", _detail(expected.device, real.device))
    seen = [i for i, size in enumerate(sizes) if size > 1] if real.numel() else []
    if any(strides[i] != real.stride(i) for i in seen):
        return Mismatch(name, "stride", _detail(tuple(strides), tuple(real.stride())))
    return None


def _detail(expected: object, real: object) -> str:
    return f"the compiler expects {expected}, the operator gives {real}"
