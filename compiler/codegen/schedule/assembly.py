"""A program as a schedule: library calls as they were, kernels as launches, views when needed.

A vetoed or observed unit is a call of a function, with the same values in and out; such a schedule
is not stored.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.codegen.schedule.calls import BINDINGS, PRODUCTS, views_without_calls
from ctk.compiler.codegen.schedule.units import Unit
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.extract import Extract
from ctk.compiler.fx.properties import is_mutating
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import free_name
from ctk.compiler.lowering.ir import Buffer, Kernel, Program, View
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.runtime.steps import (
    Allocation,
    Argument,
    Call,
    Launch,
    Ref,
    Schedule,
    Size,
    Step,
    leaves,
    map_leaves,
    names_read,
    symbols_read,
)
from ctk.compiler.sizes.index import Index, symbol
from ctk.compiler.sizes.size_guards import mentioned_symbols, symbols_of
from ctk.compiler.torch_compat.process import strided_tensors

Run = Callable[..., Any]

aten = torch.ops.aten


class Assembly:
    """A schedule while it is assembled."""

    def __init__(self, gm: GraphModule, program: Program, numbers: Mapping[Kernel, int]) -> None:
        self.gm = gm
        self.program = program
        self.numbers = numbers
        self.steps: list[Step] = []
        self.inputs: list[str] = []
        self.constants: dict[str, str] = {}
        self.values: dict[str, Ref] = {}
        self.memory: dict[str, Ref] = {}
        self.sizes: dict[str, Size] = {}
        self.nodes = {node.name: node for node in gm.graph.nodes}
        self._names = set(self.nodes) | set(program.buffers)
        self._known: set[str] = set()
        self._fitted: dict[str, Ref] = {}
        self._quick = views_without_calls(gm, program)
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._add_given(node)

    def add(self, node: Node) -> None:
        """Add a library call as it is."""
        if node.name in self._quick:
            return  # made when it is needed
        function = BINDINGS.get(node.target, node.target)
        assert callable(function)
        args, kwargs = map(self.argument, (node.args, node.kwargs))
        self.steps.append(Call(node.name, function, args, kwargs))
        if is_mutating(node):
            self._fitted.clear()
        self._is_there(node)

    def add_caller(self, node: Node, graphs: Mapping[str, str], run: Run | None) -> None:
        """Add the call of an operator that calls graphs.

        Args:
            graphs: Constants in the place of operands: compiled graphs by the operand's name.
            run: A function that returns the result of the operator in a list, if it is observed.
        """
        for name in graphs.values():
            self.constants[name] = name

        def value(leaf: Argument) -> Argument:
            if not isinstance(leaf, Node):
                return leaf
            return Ref(graphs[leaf.name]) if leaf.name in graphs else self.value(leaf)

        args = cast("tuple[Argument, ...]", map_leaves(node.args, value))
        if run is None:
            self.steps.append(Call(node.name, cast("Run", node.target), args))
        else:
            self._item(node.name, self._call(f"call_{node.name}", run, args), 0)
        self._is_there(node)

    def add_unit(self, unit: Unit) -> None:
        """Add the kernels of a unit, and memory for their results."""
        self.steps += self.steps_of(unit)
        self._add_results({name: self.memory[name] for name in self._made_by(unit)})

    def add_function(self, unit: Unit, part: Schedule, run: Run) -> None:
        """Add the call of a function that does the steps of a unit, `part`."""
        args = (*map(Ref, part.inputs), *map(self._symbol, outside_symbols(part)))
        call = self._call(f"call_{unit.name}", run, args)
        order = [buffer for _, buffer in self.results_of(unit)]
        items = {
            name: call if len(order) == 1 else self._item(name, call, order.index(name))
            for name in self._made_by(unit)
        }
        self._add_results(items)

    def part_of(self, unit: Unit) -> Schedule:
        """Return the steps of a unit as a schedule that returns the results of the unit."""
        steps = self.steps_of(unit)
        stored = tuple(self.memory[buffer] for _, buffer in self.results_of(unit))
        made = {step.name for step in steps if isinstance(step, Allocation)}
        read = [name for step in steps for name in names_read(step)]
        read += [ref.name for ref in stored]
        inputs = dict.fromkeys(name for name in read if name not in made)
        return Schedule(tuple(inputs), tuple(steps), stored[0] if len(stored) == 1 else stored)

    def steps_of(self, unit: Unit) -> list[Step]:
        """Return the steps of a unit's kernels; steps for their operands are added before."""
        steps = [step for name in (*unit.stores, *unit.temporary) for step in self._memory(name)]
        for kernel in unit.kernels:
            arguments = arguments_of(kernel)
            passed = [
                self.memory[name] if name in unit.stores else self.read(name)
                for name in arguments.buffers
            ]
            symbols = tuple(each.name for each in arguments.symbols)
            for each in symbols:
                self._symbol(each)
            names = tuple(ref.name for ref in passed)
            steps.append(Launch(self.numbers.get(kernel, -1), names, symbols))
        return steps

    def _memory(self, name: str) -> list[Step]:
        """Return the step that makes memory for a kernel to write; none if others have made it."""
        buffer = self.program.buffers[name]
        if buffer.role != "kernel":
            self._require(name)
            return []
        if self._is_alike(buffer):
            self.memory[name] = self.read(buffer.memory)
            return []
        shape, strides = map(self._known_sizes, (buffer.shape, buffer.strides))
        memory = self.read(buffer.memory).name if buffer.memory else ""
        self.memory[name] = Ref(name)
        return [Allocation(name, buffer.dtype, shape, strides, buffer.device, memory)]

    def _is_alike(self, buffer: Buffer) -> bool:
        """Return whether a buffer in the memory of another is the same tensor."""
        other = self.program.buffers.get(buffer.memory)
        if other is None or other.role not in ("kernel", "library"):
            return False
        return (buffer.dtype, buffer.shape, buffer.strides) == (
            other.dtype, other.shape, other.strides
        )  # fmt: skip

    def results_of(self, unit: Unit) -> list[tuple[str, str]]:
        """Return the results of a unit: for each its node's name, and its buffer."""
        origins = {store.buffer: store.origin for kernel in unit.kernels for store in kernel.stores}
        made = self._made_by(unit)
        return [(n if n in made else origins[n], n) for n in unit.stores]

    def add_eager(self, part: Extract, run: Run) -> None:
        """Add the call that runs the nodes of a vetoed unit in eager."""
        args = tuple(self.value(self.nodes[name]) for name in part.operands)
        call = self._call("call_eager", run, args)
        for position, name in enumerate(part.results):
            item = self._item(name, call, position)
            self.values[name] = item
            buffer = self.program.buffers.get(name)
            if buffer is not None and buffer.role == "kernel":  # eager's strides may be others
                self.values[name] = self.memory[name] = self._fit(name, item, buffer)

    def result(self, output: Node) -> Schedule:
        """Return the schedule, with the results of the graph."""
        result = self.argument(output.args[0])
        used = {name for step in self.steps for name in names_read(step)}
        used |= {leaf.name for leaf in leaves(result) if isinstance(leaf, Ref)}
        constants = {name: target for name, target in self.constants.items() if name in used}
        return Schedule(tuple(self.inputs), tuple(self.steps), result, constants)

    def argument(self, value: Argument) -> Argument:
        """Return an argument of the graph as one of the schedule."""
        return map_leaves(value, lambda leaf: self.value(leaf) if isinstance(leaf, Node) else leaf)

    def value(self, node: Node) -> Ref:
        """Return the value of a node of the graph; a view of memory is made when it is needed."""
        if node.name in self.values:
            return self.values[node.name]
        view = self.program.views.get(node.name)
        if view is None or view.buffer not in self.memory:
            raise CodegenUnsupported(f"the value of {node.name} is needed, and no step makes it")
        if self._is_whole(view):
            self.values[node.name] = self.memory[view.buffer]
        else:
            self.values[node.name] = self._view(node.name, view)
        return self.values[node.name]

    def read(self, name: str) -> Ref:
        """Return a buffer for a kernel: with the strides and the type that it was made for."""
        ref, buffer = self.memory[name], self.program.buffers[name]
        if buffer.role not in ("input", "library"):
            return ref
        if name in self.nodes and self.nodes[name].target in PRODUCTS:
            return ref
        if name not in self._fitted:
            self._fitted[name] = self._fit(name, ref, buffer)
        return self._fitted[name]

    def _require(self, name: str) -> None:
        """Check a buffer that a kernel writes to, and that the caller or the library made."""
        ref, buffer = self.memory[name], self.program.buffers[name]
        shape, strides = map(self._known_sizes, (buffer.shape, buffer.strides))
        self._fitted.pop(name, None)
        self.memory[name] = self._call(f"{name}_required", required, (ref, shape, strides))

    def _symbol(self, name: str) -> Index:
        if name not in self._known:
            if name not in self.sizes:
                raise CodegenUnsupported(
                    f"the size {name} cannot be read from a value of the graph"
                )
            self.steps.append(self.sizes[name])
            self._known.add(name)
        return symbol(name)

    def _known_sizes(self, sizes: Sequence[Index]) -> tuple[Index, ...]:
        for each in symbols_of(sizes):
            self._symbol(each.name)
        return tuple(sizes)

    def _call(self, name: str, function: Callable[..., Any], args: tuple[Argument, ...]) -> Ref:
        fresh = free_name(name, name, self._names)
        self._names.add(fresh)
        self.steps.append(Call(fresh, function, args))
        return Ref(fresh)

    def _item(self, name: str, call: Ref, position: int) -> Ref:
        self.steps.append(Call(name, operator.getitem, (call, position)))
        return Ref(name)

    def _view(self, name: str, view: View) -> Ref:
        shape, strides = map(self._known_sizes, (view.shape, view.strides))
        (moved,) = self._known_sizes([view.offset])
        if name in self._quick:
            args = (self.read(view.buffer), shape, strides, moved)
            self.steps.append(Call(name, strided_tensors.reinterpret(), args))
            return Ref(name)
        base = self.memory[view.buffer]
        start = self._call("storage_offset", Tensor.storage_offset, (base,))
        at = self._call("offset", operator.add, (start, moved))
        self.steps.append(Call(name, aten.as_strided.default, (base, shape, strides, at)))
        return Ref(name)

    def _fit(self, name: str, ref: Ref, buffer: Buffer) -> Ref:
        shape, strides = map(self._known_sizes, (buffer.shape, buffer.strides))
        return self._call(f"{name}_fitted", fitted, (ref, shape, strides, buffer.dtype))

    def _is_whole(self, view: View) -> bool:
        buffer = self.program.buffers[view.buffer]
        same = (buffer.shape, buffer.strides) == (view.shape, view.strides)
        return same and not view.offset.terms

    def _made_by(self, unit: Unit) -> list[str]:
        return [name for name in unit.stores if self.program.buffers[name].role == "kernel"]

    def _add_results(self, made: Mapping[str, Ref]) -> None:
        self.memory.update(made)
        self.values.update(made)

    def _add_given(self, node: Node) -> None:
        if node.op == "placeholder":
            self.inputs.append(node.name)
        else:
            self.constants[node.name] = str(node.target)
        self._is_there(node)

    def _is_there(self, node: Node) -> None:
        self.values[node.name] = Ref(node.name)
        if node.name in self.program.buffers:
            self.memory[node.name] = Ref(node.name)
        value = value_of(node)
        for name in mentioned_symbols(value):
            if isinstance(value, torch.SymInt):
                self.sizes.setdefault(name, Size(name, node.name))
            elif isinstance(value, torch.Tensor):
                axis = [str(size) for size in value.shape].index(name)
                self.sizes.setdefault(name, Size(name, node.name, axis))


def outside_symbols(part: Schedule) -> list[str]:
    """Return the size symbols that a part of a schedule does not learn itself."""
    return list(dict.fromkeys(name for step in part.steps for name in symbols_read(step)))
