"""The schedule of a program as an FX graph: library calls as they were, kernels as calls.

FX prints it, runs it, and drops each value after its last use. A unit that was vetoed runs its
nodes in eager, with the same values in and out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.schedule.calls import BINDINGS, views_without_calls
from ctk.compiler.codegen.schedule.functions import Run, Signature, make_function
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.extract import Extract
from ctk.compiler.fx.properties import is_mutating
from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.index import Index
from ctk.compiler.lowering.ir import Buffer, Program, View
from ctk.compiler.lowering.sizes import mentioned_symbols, python_text, symbols_of
from ctk.compiler.torch_compat import allocate

aten = torch.ops.aten
_REINTERPRET = allocate.reinterpret()


class Assembly:
    """The schedule while it is put together.

    Args:
        gm: The graph that was lowered.
        program: What it became.
    """

    def __init__(self, gm: GraphModule, program: Program) -> None:
        self.gm = gm
        self.program = program
        self.graph = Graph()
        self.values: dict[str, Node] = {}
        self.memory: dict[str, Node] = {}
        self.sizes: dict[str, Callable[[], Node]] = {}
        self.nodes = {node.name: node for node in gm.graph.nodes}
        self._computed: dict[Index, Node] = {}
        self._fitted: dict[str, Node] = {}
        self._quick = views_without_calls(gm, program)
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.add(node)

    def add(self, node: Node) -> None:
        """Add a node of the graph as it is: an input, an attribute, a library call."""
        if node.name in self._quick:
            return  # made when it is needed
        copy = self.graph.node_copy(node, self.value)
        copy.target = BINDINGS.get(node.target, node.target)
        if is_mutating(node):
            self._fitted.clear()
        self.values[node.name] = copy
        self._learn_sizes(node, copy)
        if node.name in self.program.buffers:
            self.memory[node.name] = copy

    def add_unit(self, signature: Signature, run: Run) -> None:
        """Add the call of a unit's function."""
        written = {buffer for _, buffer in signature.results}
        buffers = [self.written(b) if b in written else self.read(b) for b in signature.inputs]
        args = [*buffers, *map(self.size, signature.symbols)]
        call = self._call(f"call_{run.__name__}", run, tuple(args))
        self._add_results(signature.results, call)

    def add_eager(self, part: Extract, run: Run) -> None:
        """Add the call of what runs the nodes of a vetoed unit in eager."""
        args = tuple(self.value(self.nodes[name]) for name in part.operands)
        call = self._call("call_eager", run, args)
        for position, name in enumerate(part.results):
            item = self._call(name, operator.getitem, (call, position))
            self.values[name] = item
            buffer = self.program.buffers.get(name)
            if buffer is not None and buffer.role == "kernel":  # eager's strides may be others
                self.values[name] = self.memory[name] = self._fit(name, item, buffer)

    def result(self, output: Node) -> GraphModule:
        """Return the schedule, with the results of the graph."""
        self.graph.node_copy(output, self.value)
        self.graph.eliminate_dead_code(lambda node: node.op != "get_attr")
        return GraphModule(self.gm, self.graph)

    def value(self, node: Node) -> Node:
        """Return the value of a node of the graph; a view of memory is made when it is needed."""
        if node.name in self.values:
            return self.values[node.name]
        view = self.program.views.get(node.name)
        if view is None or view.buffer not in self.memory:
            raise CodegenUnsupported(f"the value of {node.name} is needed, and nobody makes it")
        if self._is_whole(view):
            self.values[node.name] = self.memory[view.buffer]
        else:
            self.values[node.name] = self._view(node.name, view)
        return self.values[node.name]

    def read(self, name: str) -> Node:
        """Return a buffer for a kernel: with the strides and the type that it was made for."""
        node, buffer = self.memory[name], self.program.buffers[name]
        if buffer.role not in ("input", "library"):
            return node
        if name not in self._fitted:
            self._fitted[name] = self._fit(name, node, buffer)
        return self._fitted[name]

    def written(self, name: str) -> Node:
        """Return a buffer that a kernel writes to, and that the caller or the library made."""
        node, buffer = self.memory[name], self.program.buffers[name]
        shape, strides = map(self.expressions, (buffer.shape, buffer.strides))
        self._fitted.pop(name, None)
        self.memory[name] = self._call(f"{name}_required", required, (node, shape, strides))
        return self.memory[name]

    def size(self, name: str) -> Node:
        """Return the value of a symbol."""
        if name not in self.sizes:
            raise CodegenUnsupported(f"no value of the graph tells the size {name}")
        return self.sizes[name]()

    def expressions(self, sizes: Sequence[Index]) -> tuple[Any, ...]:
        return tuple(self.expression(size) for size in sizes)

    def expression(self, index: Index) -> Any:
        """Return a size as a number, or as a node that computes it."""
        if index.number is not None:
            return index.number
        if index not in self._computed:
            names = [symbol.name for symbol in symbols_of([index])]
            text = f"def size({', '.join(names)}):\n    return {python_text(index)}"
            run = make_function(text, "size", {})
            self._computed[index] = self._call("computed_size", run, tuple(map(self.size, names)))
        return self._computed[index]

    def _call(self, name: str, target: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        return self.graph.create_node("call_function", target, args, name=name)

    def _view(self, name: str, view: View) -> Node:
        """Return a node's value as a tensor in the memory of another."""
        shape, strides = map(self.expressions, (view.shape, view.strides))
        moved = self.expression(view.offset)
        if name in self._quick:
            return self._call(name, _REINTERPRET, (self.read(view.buffer), shape, strides, moved))
        base = self.memory[view.buffer]
        start = self._call("storage_offset", Tensor.storage_offset, (base,))
        at = self._call("offset", operator.add, (start, moved))
        return self._call(name, aten.as_strided.default, (base, shape, strides, at))

    def _fit(self, name: str, node: Node, buffer: Buffer) -> Node:
        shape, strides = map(self.expressions, (buffer.shape, buffer.strides))
        return self._call(f"{name}_fitted", fitted, (node, shape, strides, buffer.dtype))

    def _is_whole(self, view: View) -> bool:
        buffer = self.program.buffers[view.buffer]
        same = (buffer.shape, buffer.strides) == (view.shape, view.strides)
        return same and not view.offset.terms

    def _add_results(self, results: Sequence[tuple[str, str]], call: Node) -> None:
        for position, (name, buffer) in enumerate(results):
            if self.program.buffers[buffer].role != "kernel":
                continue
            is_single = len(results) == 1
            item = call if is_single else self._call(name, operator.getitem, (call, position))
            self.memory[buffer] = item
            self.values[name] = item

    def _learn_sizes(self, node: Node, copy: Node) -> None:
        """Note which symbols a value tells."""
        value = value_of(node)
        for name in mentioned_symbols(value):
            if isinstance(value, torch.SymInt):
                self.sizes.setdefault(name, lambda: copy)
            elif isinstance(value, torch.Tensor):
                axis = [str(size) for size in value.shape].index(name)
                self.sizes.setdefault(name, self._axis_reader(name, copy, axis))

    def _axis_reader(self, name: str, tensor: Node, axis: int) -> Callable[[], Node]:
        def read() -> Node:
            size = self._call(f"size_{name}", aten.sym_size.int, (tensor, axis))
            self.sizes[name] = lambda: size
            return size

        return read


def fitted(
    tensor: Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Return a tensor with the strides and type that kernels were made for; a copy if need be.

    What torch records of an operator is not always what the operator gives; a lazy negative becomes
    one whose memory holds its values.
    """
    if tensor.dtype is dtype and not tensor.is_neg():
        if tensor.stride() == stride and tensor.shape == size:  # as good as always, and quick
            return tensor
        if allocate.fits(tensor, size, stride):
            return tensor
    if list(tensor.shape) != list(size):
        raise _mismatch(tensor, size, stride)
    return torch.empty_strided(size, stride, dtype=dtype, device=tensor.device).copy_(tensor)


def required(tensor: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Return a tensor that a kernel writes to, if it has the strides that it was made for."""
    if tensor.is_neg():
        raise ValueError(
            "the graph writes to a tensor that is a lazy negative, and was compiled for one that "
            "is not: give it `resolve_neg()` of the tensor, or compile it again"
        )
    is_same = tensor.stride() == stride and tensor.shape == size
    if not is_same and not allocate.fits(tensor, size, stride):
        raise _mismatch(tensor, size, stride)
    return tensor


def _mismatch(tensor: Tensor, size: Sequence[int], stride: Sequence[int]) -> ValueError:
    got = f"size {list(tensor.shape)} and strides {list(tensor.stride())}"
    return ValueError(
        f"the graph was compiled for a tensor of size {list(size)} and strides {list(stride)}, "
        f"and got one of {got}: compile it again for that"
    )
