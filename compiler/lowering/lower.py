"""Lower a functional ATen graph: a kernel (or a few) for each node, nothing fused.

For each node, in order:
1. an input, or a constant of the graph, is existing memory
2. a view is other strides on the memory of its base
3. an operator of the table `LOWERINGS` becomes kernels
4. an operator with a decomposition is decomposed, and each part becomes kernels
5. all others are library calls, never an error; `LibraryCall.why` is the reason
"""

import operator
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument, map_arg

from ctk.compiler.fx.effects import returned_argument
from ctk.compiler.fx.properties import is_pure, is_view
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.lowering.arrays import Array
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.decompose import decompose
from ctk.compiler.lowering.draft import view_within
from ctk.compiler.lowering.exact import require_exact
from ctk.compiler.lowering.flex import lower_attention
from ctk.compiler.lowering.flex_gradient import lower_attention_gradient
from ctk.compiler.lowering.ir import Allow, Dtype, LibraryCall, Program, Step, View
from ctk.compiler.lowering.operators import LOWERINGS
from ctk.compiler.lowering.order import memory_of, step_reads, step_writes, viewed
from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import NotLowered, size_of
from ctk.compiler.torch_compat.fx.operators import kind_of


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """How a graph is lowered.

    Attributes:
        exact: Kernels only of operators with the bits of eager; others are library calls.
        accumulate: The type of sums of floats of 32 bits and less.
        library: Names of nodes that stay library calls.
        attention_gradients: The generator has kernels of the gradient of attention.
    """

    exact: bool = False
    accumulate: Dtype = torch.float32
    library: frozenset[str] = field(default_factory=frozenset[str])
    devices: frozenset[str] = frozenset(("cpu", "cuda"))
    attention_gradients: bool = True


def lower(
    gm: GraphModule, options: LoweringOptions | None = None, allow: Allow = lambda *_: True
) -> Program:
    """Return the program of a graph, which is left unchanged.

    Args:
        gm: Functional ATen graph with a recorded value on each node.
        allow: Decides on the lowering of each node, by a rule and the node's name; a refused node
            is a library call.
    """
    lowering = _Lowering(gm, options or LoweringOptions(), allow)
    for node in gm.graph.nodes:
        lowering.add(node)
    return lowering.program()


_OF_ATTENTION = {
    "flex_attention": lower_attention,
    "flex_attention_backward": lower_attention_gradient,
}
"""By the name of a higher-order operator."""


class _Lowering:
    """One graph on its way."""

    def __init__(self, gm: GraphModule, options: LoweringOptions, allow: Allow) -> None:
        self.gm = gm
        self.options = options
        self.allow = allow
        self.builder = Builder(
            exact=options.exact,
            accumulate=options.accumulate,
            attention_gradients=options.attention_gradients,
        )
        self.draft = self.builder.draft
        self.outputs: list[Node] = []

    def add(self, node: Node) -> None:
        if node.op == "placeholder":
            self._existing(node, value_of(node), "input")
        elif node.op == "get_attr":
            self._existing(node, fetch(self.gm, node.target), "constant")
        elif node.op == "output":
            self.outputs = list(node.all_input_nodes)
        else:
            self._call(node)

    def program(self) -> Program:
        """Return the program, without unused views and sizes."""
        draft, views = self.draft, self.draft.views
        program = Program(draft.buffers, [], views, frozenset())
        needed, steps = set(self.outputs), list[Step]()
        read: set[str] = set()  # by kernels: memory, and sizes that are known at the call only
        for step in reversed(draft.steps):
            if isinstance(step, LibraryCall):
                wanted = step.node in needed or not read.isdisjoint(step_writes(program, step))
                if not wanted and is_pure(step.node):
                    continue
                needed.update(step.node.all_input_nodes)
            else:
                read |= step_reads(program, step)
            steps.append(step)
        outputs = {views[n.name].buffer for n in needed if n.name in views}
        results = {name for n in self.outputs for name in memory_of(n, views, draft.buffers)}
        return Program(draft.buffers, steps[::-1], views, frozenset(outputs), frozenset(results))

    def _existing(self, node: Node, value: object, role: Any) -> None:
        if isinstance(value, torch.Tensor):
            with suppress(NotLowered):  # then its readers are library calls
                self.draft.add_tensor(node.name, value, role)

    def _call(self, node: Node) -> None:
        builder = self.builder
        builder.node, builder.origin = node, node.name
        is_item = node.target is operator.getitem and node.name in self.draft.views
        if is_item or self._is_alias(node):  # an item is made with the other results
            return
        mark = self.draft.mark()
        try:
            if node.name in self.options.library:
                raise NotLowered("it is in LoweringOptions.library")
            self._lower(node)
            self.draft.settle(mark)
            if self.options.exact:
                require_exact(self.draft.steps[mark.steps :])
        except NotLowered as error:
            self.draft.undo(mark)
            self._library(node, str(error))

    def _lower(self, node: Node) -> None:
        device = self.builder.device
        if device.type not in self.options.devices:
            raise NotLowered(f"kernels do not run on {device}")
        if is_view(node):
            raise NotLowered("it is a view")
        lowering, kind = LOWERINGS.get(node.target), kind_of(node.target)
        attention = None if kind != "higher_order" else _OF_ATTENTION.get(str(node.target))
        if attention is not None:
            self._ask(node)
            attention(self.builder, node, self._operand)
            return
        if lowering is None:
            self._write(node, decompose(self.builder, node))
            self._ask(node)
            return
        self._ask(node)  # first: a lowering that raises can be left out
        args = [self._operand(arg) for arg in node.args]
        kwargs = {name: self._operand(each) for name, each in node.kwargs.items()}
        try:
            result = lowering(self.builder, *args, **kwargs)
        except TypeError as error:
            if not any(isinstance(each, Index) for each in (*args, *kwargs.values())):
                raise
            raise NotLowered("it asks for a number that only the call knows") from error
        if isinstance(result, View):
            self.draft.views[node.name] = result
        else:
            self._write(node, result if isinstance(result, (list, tuple)) else (result,))

    def _ask(self, node: Node) -> None:
        if not self.allow(f"lower {node.name}: {node.target}", (node.name,)):
            raise NotLowered("its lowering is left out")

    def _write(self, node: Node, results: Sequence[Array | View | None]) -> None:
        recorded = value_of(node)
        if isinstance(recorded, (list, tuple)):
            self._write_items(node, results, cast("Sequence[object]", recorded))
        else:
            self._write_one(node.name, results[0], recorded)

    def _write_items(
        self, node: Node, results: Sequence[Array | View | None], recorded: Sequence[object]
    ) -> None:
        first: dict[int, str] = {}
        for user in node.users:
            index = user.args[1] if user.target is operator.getitem else None
            if not isinstance(index, int):
                raise NotLowered(f"{user.name} reads its results as a whole")
            if index in first:
                self.draft.views[user.name] = self.draft.views[first[index]]
                continue
            first[index] = user.name
            self._write_one(user.name, results[index], recorded[index])

    def _write_one(self, name: str, result: Array | View | None, recorded: object) -> None:
        if result is None or not isinstance(recorded, torch.Tensor):
            raise NotLowered(f"{name} is not computed")
        if isinstance(result, View):
            self.builder.keep_result(name, result, recorded)
        else:
            self.builder.write_result(name, result, recorded)

    def _is_alias(self, node: Node) -> bool:
        """Add a view, and its call for steps that need it as a tensor; False for other nodes."""
        tensor, base = tensor_of(node), viewed(node)
        known = self.draft.views.get(base.name) if base is not None else None
        if tensor is None or base is None or known is None or tensor.dtype != known.dtype:
            return False
        source = cast("torch.Tensor", tensor_of(base))
        if tensor.is_neg():  # its memory holds the values of other signs
            return False
        try:
            self.draft.views[node.name] = view_within(known, source, tensor)
        except NotLowered:
            return False
        self.draft.steps.append(LibraryCall(node, "it is a view"))
        return True

    def _operand(self, argument: Argument) -> Any:
        return map_arg(argument, self._value)

    def _value(self, node: Node) -> Any:
        value = value_of(node)
        if node.op == "get_attr" and value is None:
            value = fetch(self.gm, node.target)
        if isinstance(value, GraphModule):
            return value
        if isinstance(value, torch.Tensor):
            if node.name not in self.draft.views:
                raise NotLowered(f"its operand {node.name} is memory that kernels do not read")
            if value.device != self.builder.device:
                raise NotLowered(f"its operand {node.name} is on {value.device}")
            return self.builder.read(self.draft.views[node.name])
        if isinstance(value, (int, torch.SymInt)):
            return size_of(value) if isinstance(value, torch.SymInt) else value
        raise NotLowered(f"its operand {node.name} is a {type(value).__name__}")

    def _library(self, node: Node, why: str) -> None:
        self.draft.steps.append(LibraryCall(node, why))
        tensor = tensor_of(node)
        if tensor is None:
            return
        written = returned_argument(node)
        alias = self.draft.views.get(written.name) if written is not None else None
        if alias is not None:
            self.draft.views[node.name] = alias
            return
        *_, memory = memory_of(node, self.draft.views, self.draft.buffers)
        with suppress(NotLowered):
            base = memory if memory != node.name else ""
            self.draft.add_tensor(node.name, tensor, "library", base)
