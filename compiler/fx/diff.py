"""Split the difference of two versions of a graph into independent hunks, and apply some of them.

An opaque pass (a user's plain function, most of Inductor's) says nothing of its rewrites, so they
are read off its effect. Nodes are identified by name, which FX keeps stable. A change is one of
these atoms:

1. a node was created;
2. a node was erased;
3. a surviving node was redefined: other target, or other arguments than operands;
4. an operand was substituted: some surviving users of `old` now use `new` in its place
   (`replace_all_uses_with`).

Atoms of the same data flow are one hunk: a created, erased or redefined node with the created or
erased operands it uses, and a substitution with its `old` and `new`. A user that merely got new
operands joins nothing, and a substituted operand is where one hunk ends and the next begins: two
matches that feed the same node, or each other, stay two hunks.

Source: the hunks of a textual diff; this differs by following data flow instead of adjacency.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.copy import copy_graph_module


@dataclass(frozen=True, slots=True)
class Hunk:
    """One independent change, by node names in graph order; substitutions are pairs (old, new)."""

    redefined: tuple[str, ...]
    created: tuple[str, ...]
    erased: tuple[str, ...]
    substitutions: tuple[tuple[str, str], ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes touched: those of the graph before first, then the created ones."""
        substituted = [old for old, _ in self.substitutions]
        return tuple(dict.fromkeys([*self.redefined, *self.erased, *substituted, *self.created]))


def same_graph(a: GraphModule, b: GraphModule) -> bool:
    """Return whether two graphs (and their sub-graphs) list the same definitions in one order."""
    if [_definition(n) for n in a.graph.nodes] != [_definition(n) for n in b.graph.nodes]:
        return False
    mine, others = _children(a), _children(b)
    return mine.keys() == others.keys() and all(same_graph(m, others[k]) for k, m in mine.items())


Pair = tuple[str, str]


def diff_hunks(
    before: GraphModule, after: GraphModule, replacements: Sequence[Pair] | None = None
) -> list[Hunk]:
    """Return the independent changes from `before` to `after`, in graph order.

    Args:
        before: The graph before.
        after: The graph after. Sub-graphs are not looked into.
        replacements: Pairs (old node, new node) that are known to be `replace_all_uses_with`, which
            the two graphs alone do not show when all users changed too. With them, any other
            change of an operand between nodes that both graphs have redefines its user; None
            when they were not recorded: then it counts as a replacement.
    """
    old = {n.name: n for n in before.graph.nodes}
    new = {n.name: n for n in after.graph.nodes}
    created, erased = new.keys() - old.keys(), old.keys() - new.keys()
    survivors = [name for name in old if name in new]
    redefined = {name for name in survivors if _shape(old[name]) != _shape(new[name])}
    if replacements is not None:
        fresh = created | erased
        redefined |= {
            name
            for name in survivors
            if name not in redefined
            for pair in _pairs(old[name], new[name])
            if pair not in replacements and not fresh & {*pair}
        }
    pairs = {p for n in survivors if n not in redefined for p in _pairs(old[n], new[n])}
    pairs |= _final(replacements or (), old, new)
    came_for, went = {b for _, b in pairs}, {a for a, _ in pairs}
    groups = _Groups()
    for name in created | redefined:
        groups.link(name, [op for op in _operands(new[name]) if op in created - came_for])
    for name in erased | redefined:
        groups.link(name, [op for op in _operands(old[name]) if op in erased - went])
    for a, b in pairs:
        groups.link(("substitute", a), [op for op in (a, b) if op in created | erased])
    order = {name: i for i, name in enumerate([*old, *new])}
    hunks: list[Hunk] = []
    for atoms in groups.members():
        names = sorted((a for a in atoms if isinstance(a, str)), key=order.__getitem__)
        lost = {a[1] for a in atoms if not isinstance(a, str)}
        hunks.append(
            Hunk(
                redefined=tuple(n for n in names if n in redefined),
                created=tuple(n for n in names if n in created),
                erased=tuple(n for n in names if n in erased),
                substitutions=tuple(sorted(p for p in pairs if p[0] in lost)),
            )
        )
    return sorted(hunks, key=lambda hunk: min(order[n] for n in hunk.nodes))


def _final(
    replacements: Sequence[Pair], old: Mapping[str, Node], new: Mapping[str, Node]
) -> set[Pair]:
    """Return the recorded replacements of erased nodes by new ones, steps in between left out."""
    following = dict(replacements)
    pairs: set[Pair] = set()
    for first, step in replacements:
        seen = {first}
        while step not in new and step in following and step not in seen:
            seen.add(step)
            step = following[step]
        if first in old and first not in new and step in new:
            pairs.add((first, step))
    return pairs


def apply_hunks(
    before: GraphModule,
    after: GraphModule,
    taken: Iterable[Hunk],
    hunks: Sequence[Hunk] | None = None,
) -> GraphModule:
    """Return a new graph: `before` with only some of the changes made.

    Args:
        before: The graph before.
        after: The graph after.
        taken: The hunks to make.
        hunks: All hunks between the two; `diff_hunks(before, after)` when None.

    Raises:
        RuntimeError: The subset has no consistent order.
    """
    everything = diff_hunks(before, after) if hunks is None else hunks
    return _Mix(before, after, list(taken), everything).build()


class _Mix:
    """The definitions of a graph between two others, and their order."""

    def __init__(
        self,
        before: GraphModule,
        after: GraphModule,
        taken: Sequence[Hunk],
        hunks: Sequence[Hunk],
    ) -> None:
        self.before, self.after = before, after
        self.old = {n.name: n for n in before.graph.nodes}
        self.new = {n.name: n for n in after.graph.nodes}
        chosen = {name for hunk in taken for name in hunk.nodes}
        self.taken_pairs = {pair for hunk in taken for pair in hunk.substitutions}
        self.forward = dict(sorted(self.taken_pairs))
        left = [hunk for hunk in hunks if hunk not in taken]
        self.backward = {b: a for hunk in left for a, b in reversed(hunk.substitutions)}
        self.from_new = {name for hunk in taken for name in (*hunk.redefined, *hunk.created)}
        self.left_created = {name for hunk in left for name in hunk.created}
        self.erased = {name for hunk in taken for name in hunk.erased}
        self.names = [n for n in self.old if n not in self.erased]
        self.names += [n for n in self.new if n not in self.old and n in chosen]
        self.rank = _ranks(before, after)

    def definition(self, name: str) -> tuple[Node, dict[str, str]]:
        """Return the node that defines `name`, and what its operands are called in the mix."""
        if name in self.from_new or name not in self.old:
            node = self.new[name]
            return node, {op: self._back(op) for op in _operands(node)}
        node = self.old[name]
        newer = self.new.get(name)
        if newer is not None and _shape(node) == _shape(newer):
            pairs = dict(_pairs(node, newer))
            return node, {
                op: pairs[op] if (op, pairs.get(op)) in self.taken_pairs else op
                for op in _operands(node)
            }
        return node, {
            op: self.forward.get(op, op) if op in self.erased else op for op in _operands(node)
        }

    def _back(self, operand: str) -> str:
        return self.backward.get(operand, operand) if operand in self.left_created else operand

    def build(self) -> GraphModule:
        graph = Graph()
        made: dict[str, Node] = {}
        for name in self._order():
            node, renamed = self.definition(name)
            made[name] = graph.node_copy(node, lambda n, renamed=renamed: made[renamed[n.name]])
        result = _with_attributes_of(self.before, self.after)
        result.graph = graph
        graph.lint()
        result.recompile()
        return result

    def _order(self) -> list[str]:
        """Topological; of the free nodes the one that stands first in its own graph goes first."""
        done: dict[str, None] = {}
        for name in sorted(self.names, key=self.rank.__getitem__):
            self._visit(name, done)
        ops = {name: self.definition(name)[0].op for name in done}
        inputs = [n for n in self.names if ops[n] == "placeholder"]
        body = [n for n in done if ops[n] not in ("placeholder", "output")]
        return [*inputs, *body, *(n for n in done if ops[n] == "output")]

    def _visit(self, root: str, done: dict[str, None]) -> None:
        stack, path = [(root, False)], set[str]()
        while stack:
            name, ready = stack.pop()
            if ready:
                path.discard(name)
                done[name] = None
            elif name not in done:
                if name in path:
                    raise RuntimeError(
                        f"these rewrites cannot be separated: cycle through {name!r}"
                    )
                path.add(name)
                stack.append((name, True))
                operands = sorted(self.definition(name)[1].values(), key=self.rank.__getitem__)
                stack.extend(
                    (operand, False) for operand in reversed(operands) if operand not in done
                )


def _with_attributes_of(before: GraphModule, after: GraphModule) -> GraphModule:
    """Return a copy of `after` that also has the modules and tensors that only `before` has."""
    result = copy_graph_module(after)
    for key, value in [*before.named_children(), *before.named_parameters(recurse=False)]:
        if not hasattr(result, key):
            setattr(result, key, value)
    for key, value in before.named_buffers(recurse=False):
        if not hasattr(result, key):
            result.register_buffer(key, value)
    return result


def _ranks(before: GraphModule, after: GraphModule) -> Mapping[str, float]:
    """Positions in `after`; a node that only `before` has stands right behind its predecessor."""
    rank = {n.name: float(i) for i, n in enumerate(after.graph.nodes)}
    previous, step = -1.0, 1.0 / (len(before.graph.nodes) + 1)
    for node in before.graph.nodes:
        rank.setdefault(node.name, previous + step)
        previous = rank[node.name]
    return rank


def _children(module: GraphModule) -> dict[str, GraphModule]:
    return {name: m for name, m in module.named_children() if isinstance(m, GraphModule)}


def _operands(node: Node) -> list[str]:
    return [n.name for n in node.all_input_nodes]


def _uses(node: Node) -> list[str]:
    """Operands in argument order, repeated ones as often as they are used."""
    names: list[str] = []
    map_arg((node.args, node.kwargs), lambda n: names.append(n.name))
    return names


def _shape(node: Node) -> tuple[object, ...]:
    """What a node computes, with its operands left blank."""
    return (
        node.op,
        str(node.target),
        repr(map_arg((node.args, node.kwargs), lambda _: _BLANK)),
    )


class _Blank:
    def __repr__(self) -> str:
        return "%"


_BLANK: Any = _Blank()


def _definition(node: Node) -> tuple[object, ...]:
    return (node.name, *_shape(node), tuple(_uses(node)))


def _pairs(old: Node, new: Node) -> list[tuple[str, str]]:
    """Return the operand substitutions between two definitions of one node."""
    return [(a, b) for a, b in zip(_uses(old), _uses(new), strict=True) if a != b]


Atom = str | tuple[str, str]


class _Groups:
    """Union-find over atoms."""

    def __init__(self) -> None:
        self._parent: dict[Atom, Atom] = {}

    def _find(self, atom: Atom) -> Atom:
        self._parent.setdefault(atom, atom)
        while atom != self._parent[atom]:
            self._parent[atom] = self._parent[self._parent[atom]]
            atom = self._parent[atom]
        return atom

    def link(self, atom: Atom, others: Iterable[Atom]) -> None:
        root = self._find(atom)
        for other in others:
            self._parent[self._find(other)] = root
            root = self._find(root)

    def members(self) -> list[list[Atom]]:
        groups: dict[Atom, list[Atom]] = {}
        for atom in list(self._parent):
            groups.setdefault(self._find(atom), []).append(atom)
        return list(groups.values())
