"""Compile one operator alone, on eager's operands: is it wrong by itself?

A case may pass without the lowering of a producer, and also without that of its consumer:

    x.t() -> add -> argmin     without lower.aten.add     passes: memory is laid out in another way
                               without lower.aten.argmin  passes

Each is compiled alone, with the values that its operands have in eager:

    add      of x.t()                             right: innocent
    argmin   of an intermediate with add's value  wrong: guilty

An operand has the value and the strides of eager. A computed operand is computed here too, as
`maximum(v, v)`: an input of a graph has a fixed layout, and is not fused. Views of an operand are
taken by the operator's own graph. An operator that writes, draws random numbers, or has an operand
without a known value cannot be compiled alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.copy import copy_node, graph_module
from ctk.compiler.fx.properties import is_effect, is_random, is_view
from ctk.compiler.fx.walk import attribute_targets, fetch
from ctk.toolkit.bisect.questions import Questions
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.compile_log.meta_values import inputs_of_graph
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.execution.node_values import values_and_error
from ctk.toolkit.oracle.questions.judge import raises_alike

_ERRORS = ("compile-error", "runtime-error")
_MOST_NODES = 4


@dataclass(slots=True)
class Isolation:
    """Compiles operators of one graph of a compile alone."""

    ask: Questions
    log: CompileLog
    graph: GraphModule
    _values: Mapping[str, object] | None = None

    def is_wrong(self, names: Sequence[str]) -> bool | None:
        """Return whether one of the named nodes fails by itself; None if that is not known.

        Of many nodes the first few are asked: that these are right does not clear the others.
        """
        nodes = [node for node in self.graph.graph.nodes if node.name in names]
        answers = [self._is_wrong(node) for node in nodes[:_MOST_NODES]]
        if any(answers):
            return True
        is_known = bool(answers) and None not in answers and len(nodes) <= _MOST_NODES
        return False if is_known else None

    def _is_wrong(self, node: Node) -> bool | None:
        if self._values is None:
            self._values = self._run()
        alone = isolate(self.ask.case, self.graph, node, self._values)
        if alone is None:
            return None
        judgement = self.ask.ask_other(alone, f"{node.name} alone, on eager's operands")
        expected, seen = self.ask.case.signature, judgement.signature
        if judgement.is_no_failure:
            return None if raises_alike(judgement) else False
        is_alike = expected is None or (seen is not None and _is_alike(expected, seen))
        return True if judgement.fails and is_alike else None

    def _run(self) -> Mapping[str, object]:
        inputs = inputs_of_graph(self.ask.case, self.log, self.graph)
        if inputs is None:
            return {}
        with apply_modes(self.ask.case.modes), torch.no_grad():
            return values_and_error(self.graph, inputs)[0]


def _is_alike(expected: Signature, seen: Signature) -> bool:
    """Return whether an operator alone fails like the case: in its values, or with an exception."""
    if expected.kind in _ERRORS:
        return seen.kind in _ERRORS
    return seen.kind == expected.kind or seen.kind not in _ERRORS


def isolate(case: Case, gm: GraphModule, node: Node, values: Mapping[str, object]) -> Case | None:
    """Return the case of one node of a lowered graph alone; None if it cannot be alone."""
    if node.op != "call_function" or is_effect(node) or is_random(node):
        return None
    builder = _Builder(values)
    if not builder.add(node):
        return None
    root = {target: fetch(gm, target) for target in attribute_targets(builder.graph)}
    modes = replace(case.modes, grad=False, backward=False, autocast=())
    if case.signature is None or case.signature.kind != "stride":
        modes = replace(modes, strides=False)
    return replace(
        case,
        graph=graph_module(root, builder.graph, like=gm),
        inputs=tuple(builder.inputs),
        modes=modes,
        signature=None,
        name=f"{case.name}.{node.name}",
        dynamic={},
        synthetic=(),
        roles={},
    )


@dataclass(slots=True)
class _Builder:
    values: Mapping[str, object]
    graph: Graph = field(default_factory=Graph)
    inputs: list[object] = field(default_factory=list[object])
    _made: dict[Node, Any] = field(default_factory=dict[Node, Any])

    def add(self, node: Node) -> bool:
        """Add a node, its operands as inputs, and its result as output."""
        sources = list(dict.fromkeys(values_read_by(node)))
        if any(s.op != "get_attr" and s.name not in self.values for s in sources):
            return False
        given = [(source, self._give(source)) for source in sources]
        self._made = {source: self._as_in_compile(source, value) for source, value in given}
        result = self._copy(node)
        self.graph.output((result,))
        return True

    def _give(self, source: Node) -> Any:
        """Return an input with the value of a node; a number is a constant."""
        value = self.values.get(source.name)
        if not isinstance(value, Tensor):
            return value
        self.inputs.append(value)
        return self.graph.placeholder(f"given_{source.name}")

    def _as_in_compile(self, source: Node, given: Any) -> Any:
        """Return an operand as the compile has it: an input, an attribute, or computed."""
        if source.op == "get_attr":
            return self._copy(source)
        value = self.values[source.name]
        if source.op == "placeholder" or not isinstance(value, Tensor) or value.is_complex():
            return given
        return self.graph.call_function(torch.ops.aten.maximum.default, (given, given))

    def _copy(self, node: Node) -> Node:
        for operand in node.all_input_nodes:
            if operand not in self._made:
                self._made[operand] = self._copy(operand)
        copied = copy_node(self.graph, node, self._made.__getitem__)
        copied.meta = {}
        return copied


def values_read_by(node: Node) -> list[Node]:
    """Return the nodes whose values a node reads, itself or through views."""
    views = views_read_by(node)
    readers = (node, *views)
    return [o for each in readers for o in each.all_input_nodes if o not in views]


def views_read_by(node: Node) -> list[Node]:
    """Return the views between a node and the values that it reads."""
    views = [o for o in node.all_input_nodes if _is_reread(o)]
    return [*views, *(each for view in views for each in views_read_by(view))]


def _is_reread(node: Node) -> bool:
    return node.op == "call_function" and is_view(node) and node.target is not getitem
