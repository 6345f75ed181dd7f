"""Build a changed copy of a graph from a `Change`.

A `Change` maps names of nodes to substitutes; all other nodes are copied with names and metadata.
Nodes and inputs that lose their last user disappear. Nodes with an effect (`effects`) stay unless
they are named, and so do nodes that were unused before. With
 `Change(substitutes={"relu": SameAs("mul")})`:

    x   = input                     x   = input
    mul = mul(x, 2.0)               mul = mul(x, 2.0)
    relu = relu(mul)                sin = sin(mul)
    sin = sin(relu)                 return sin
    return sin
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.copy import copy_node, graph_module, pause_collection
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.walk import (
    ATTRIBUTES,
    CALLS,
    attribute_targets,
    by_name,
    fetch,
    free_name,
    output_leaves,
)


@dataclass(frozen=True, slots=True)
class SameAs:
    """The value of another, earlier node."""

    name: str


@dataclass(frozen=True, slots=True)
class NewInput:
    """A new placeholder of this name."""

    name: str


Substitute = object
"""`SameAs`, `NewInput`, `Computed`, a literal, or a tuple of these."""


@dataclass(frozen=True, slots=True)
class Inline:
    """The nodes of a sub-graph in place of a call; `operands` are `SameAs` or literals."""

    graph: GraphModule
    operands: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """A new node, a call of a function or a named method; equal instances become one node."""

    target: Callable[..., object] | str
    args: "tuple[Substitute, ...]"


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a graph, by node name.

    Attributes:
        substitutes: Values in place of the value of a node, which is removed.
        gone: Nodes to remove although they have an effect or were unused. No remaining node may
            need them.
        dead: Nodes that stay although the change takes their last user.
        outputs: The new outputs, as a flat tuple; None keeps the output.
        edges: Values for one user only, by the names of user and operand; precedes `substitutes`.
        inlines: Calls to replace by the nodes of a sub-graph.
        modules: New objects for `get_attr` and `call_module` targets.
        keep_inputs: Keep every placeholder (a sub-graph's signature is fixed by its caller).
    """

    substitutes: Mapping[str, Substitute] = field(default_factory=dict[str, Substitute])
    gone: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    outputs: tuple[str, ...] | None = None
    edges: Mapping[tuple[str, str], Substitute] = field(
        default_factory=dict[tuple[str, str], Substitute]
    )
    inlines: Mapping[str, Inline] = field(default_factory=dict[str, Inline])
    modules: Mapping[str, object] = field(default_factory=dict[str, object])
    keep_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A changed graph, and for each input the old placeholder's name or the `NewInput`'s."""

    graph: GraphModule
    inputs: tuple[str, ...]


def rebuild(gm: GraphModule, change: Change) -> Rebuilt | None:
    """Return a changed copy of a graph; its Python code is generated at its first call.

    None if a remaining node needs a removed one. Sub-modules, parameters and buffers are shared
    with the old graph.
    """
    needed = _find_needed(gm, change)
    if needed is None:
        return None
    with pause_collection():
        return _build(gm, change, needed)


def _build(gm: GraphModule, change: Change, needed: frozenset[str]) -> Rebuilt:
    copy = _Copy(gm, change, needed)
    copy.add_inputs()
    for node in gm.graph.nodes:
        is_copied = node.name in needed and node.name not in change.substitutes
        if is_copied and node.op not in ("placeholder", "output"):
            copy.add(node)
    copy.add_output()
    return copy.finish()


def resolve(name: str, change: Change, user: str = "") -> Substitute:
    """Return the substitute of a node for its reader `user`, following chains of `SameAs`."""
    if (user, name) in change.edges:
        return _resolve_all(change.edges[user, name], change)
    while name in change.substitutes:  # a loop: chains are as long as the graph
        substitute = change.substitutes[name]
        if not isinstance(substitute, SameAs):
            return _resolve_all(substitute, change)
        name = substitute.name
    return SameAs(name)


def leaves(substitute: Substitute) -> Iterator[Substitute]:
    """Yield the leaves of a substitute: values that it reads, and literals."""
    if isinstance(substitute, (tuple, Computed)):
        for item in substitute.args if isinstance(substitute, Computed) else substitute:
            yield from leaves(item)
    else:
        yield substitute


def _resolve_all(substitute: Substitute, change: Change) -> Substitute:
    if isinstance(substitute, tuple):
        return tuple(_resolve_all(item, change) for item in substitute)
    if isinstance(substitute, Computed):
        return Computed(substitute.target, tuple(_resolve_all(a, change) for a in substitute.args))
    return resolve(substitute.name, change) if isinstance(substitute, SameAs) else substitute


def _roots(gm: GraphModule, change: Change) -> Iterator[str]:
    for node in gm.graph.nodes:
        is_named = node.name in change.gone or node.name in change.substitutes
        is_dead = not node.users or node.name in change.dead
        if node.op in CALLS and not is_named and (is_dead or mutated_arguments(node)):
            yield node.name
    if change.outputs is not None:
        yield from change.outputs
        return
    for leaf in output_leaves(gm):
        if isinstance(leaf, Node):
            yield leaf.name


def _find_needed(gm: GraphModule, change: Change) -> frozenset[str] | None:
    """Return the names of the nodes to copy and of the new inputs; None if a node is missing."""
    nodes = by_name(gm)
    needed: set[str] = set()
    todo = [resolve(name, change) for name in _roots(gm, change)]
    while todo:
        for leaf in leaves(todo.pop()):
            if not isinstance(leaf, (SameAs, NewInput)) or leaf.name in needed:
                continue
            if leaf.name in change.gone:
                return None
            needed.add(leaf.name)
            if isinstance(leaf, SameAs):
                todo.extend(_arguments(nodes[leaf.name], change))
    return frozenset(needed)


def _arguments(node: Node, change: Change) -> list[Substitute]:
    inline = change.inlines.get(node.name)
    if inline:
        return [
            _resolve_all(operand, change)
            for operand in inline.operands
            if isinstance(operand, SameAs)
        ]
    return [resolve(argument.name, change, node.name) for argument in node.all_input_nodes]


class _Copy:
    """The graph under construction; lives only inside `rebuild`."""

    def __init__(self, old: GraphModule, change: Change, needed: frozenset[str]) -> None:
        self.old, self.change, self.needed = old, change, needed
        self.nodes = by_name(old)
        self.graph = Graph()
        self.arguments: dict[str, Any] = {}
        self.new_inputs: dict[str, Node] = {}
        self.inputs: list[str] = []
        self.objects: dict[str, Any] = {}
        self.added: set[str] = set()
        self.computed: dict[Computed, Node] = {}

    def add_inputs(self) -> None:
        for node in self.old.graph.nodes:
            if node.op == "placeholder" and self._is_kept_input(node):
                self.arguments[node.name] = self._copy_node(node)
                self.inputs.append(node.name)
        for node in self.old.graph.nodes:
            for leaf in leaves(self.change.substitutes.get(node.name)):
                if isinstance(leaf, NewInput) and leaf.name in self.needed:
                    self._add_new_input(leaf.name, node)

    def _is_kept_input(self, node: Node) -> bool:
        if node.name in self.change.gone or node.name in self.change.substitutes:
            return False
        return self.change.keep_inputs or node.name in self.needed or not node.users

    def _add_new_input(self, name: str, node: Node) -> None:
        identifier = name.replace(".", "_")
        new = self.graph.create_node("placeholder", identifier, name=identifier)
        if name == node.name:
            new.name = node.name
            new.meta = dict(node.meta)
        self.new_inputs[name] = new
        self.inputs.append(name)

    def add(self, node: Node) -> None:
        if node.name in self.change.inlines:
            self.arguments[node.name] = self._inline(node, self.change.inlines[node.name])
            return
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            source, index = self._argument(node.args[0], node.name), node.args[1]
            if isinstance(source, (tuple, list)) and isinstance(index, (int, slice)):
                self.arguments[node.name] = source[index]
                return
        new = self._copy_node(node)
        if node.op in ATTRIBUTES:
            target = str(node.target)
            self.objects[target] = self.change.modules.get(target, fetch(self.old, target))
        self.arguments[node.name] = new

    def add_output(self) -> None:
        old = self.old.graph.output_node()
        if self.change.outputs is None:
            self._copy_node(old)
            return
        leaves_ = tuple(self._argument(self.nodes[name]) for name in self.change.outputs)
        self.graph.create_node("output", "output", (leaves_,), name=old.name)

    def finish(self) -> Rebuilt:
        return Rebuilt(graph_module(self.objects, self.graph, like=self.old), tuple(self.inputs))

    def _copy_node(self, node: Node) -> Node:
        if not self.change.edges:
            return copy_node(self.graph, node, self._argument)
        return copy_node(self.graph, node, lambda read: self._argument(read, node.name))

    def _argument(self, node: Node, user: str = "") -> Any:
        return self._build(resolve(node.name, self.change, user))

    def _build(self, substitute: Substitute) -> Any:
        if isinstance(substitute, tuple):
            return tuple(self._build(item) for item in substitute)
        if isinstance(substitute, SameAs):
            return self.arguments[substitute.name]
        if isinstance(substitute, Computed):
            return self._compute(substitute)
        return self.new_inputs[substitute.name] if isinstance(substitute, NewInput) else substitute

    def _compute(self, new: Computed) -> Node:
        if new not in self.computed:
            is_method = isinstance(new.target, str)
            base = new.target if isinstance(new.target, str) else new.target.__name__
            name = free_name(base, base, {*self.nodes, *self.added})
            self.added.add(name)
            self.computed[new] = self.graph.create_node(
                "call_method" if is_method else "call_function",
                new.target,
                tuple(self._build(argument) for argument in new.args),
                name=name,
            )
            self.computed[new].name = name
        return self.computed[new]

    def _inline(self, call: Node, inline: Inline) -> Any:
        operands = iter(inline.operands)
        inner: dict[Node, Any] = {}
        for node in inline.graph.graph.nodes:
            if node.op == "placeholder":
                operand = next(operands)
                inner[node] = self._build(_resolve_all(operand, self.change))
            elif node.op == "output":
                return map_arg(node.args[0], inner.__getitem__)
            else:
                inner[node] = new = copy_node(self.graph, node, inner.__getitem__)
                new.name = self._free_name(call, node)
                if node.op in ATTRIBUTES:
                    new.target = self._adopt(fetch(inline.graph, str(node.target)), call, node)
        raise AssertionError(f"the sub-graph of {call.name} has no output node")

    def _free_name(self, call: Node, node: Node) -> str:
        """Return the name of an inlined node: its own, if no node of the outer graph has it."""
        name = free_name(node.name, f"{call.name}_{node.name}", {*self.nodes, *self.added})
        self.added.add(name)
        return name

    def _adopt(self, found: object, call: Node, node: Node) -> str:
        """Give an object of an inlined sub-graph a target of its own in the outer graph."""
        base = f"{call.name}_{node.target}".replace(".", "_")
        target = free_name(base, base, {*attribute_targets(self.old.graph), *self.objects})
        self.objects[target] = found
        return target
