"""Split the difference of two versions of a graph into independent hunks (`mix` applies some).

An opaque pass (a user's plain function, most of Inductor's) does not announce its rewrites, so they
are read off its effect. Nodes are identified by name, which FX keeps stable. The difference
consists of these atoms:

1. a node was created;
2. a node was erased;
3. a node that both graphs have was redefined: other target, or other arguments than operands;
4. an operand was substituted: nodes that both graphs have use `new` where they used `old`
   (`replace_all_uses_with`).

Atoms of the same data flow are one hunk. These are linked: a created or redefined node with the
created nodes that it reads; an erased or redefined node with the erased nodes that it read; a
substitution with its `old` if that was erased and with its `new` if that was created. A node that
only reads other operands than before is part of no hunk, and neither end of a substitution is
linked with its readers: so two matches that feed the same node, or each other, stay two hunks.

Example. A pass rewrites products by a constant into divisions:

    before                      after
    mul   = mul(x, 2.0)         div   = div(x, 0.5)
    mul_1 = mul(x, 4.0)         div_1 = div(x, 0.25)
    add   = add(mul, mul_1)     add   = add(div, div_1)

Atoms: `mul` and `mul_1` were erased, `div` and `div_1` created, and in `add` two operands were
substituted. `add` itself is linked to nothing, so there are two hunks:

    Hunk(erased=("mul",), created=("div",), substitutions=(("mul", "div"),))
    Hunk(erased=("mul_1",), created=("div_1",), substitutions=(("mul_1", "div_1"),))

Source: the hunks of a textual diff; this differs by following data flow instead of adjacency.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.walk import by_name

Pair = tuple[str, str]
"""Names of an operand and of its substitute."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One independent change, by node names in graph order; substitutions are pairs (old, new)."""

    redefined: tuple[str, ...]
    created: tuple[str, ...]
    erased: tuple[str, ...]
    substitutions: tuple[Pair, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The touched nodes: first the nodes of the graph before, then the created ones."""
        substituted = [old for old, _ in self.substitutions]
        return tuple(dict.fromkeys([*self.redefined, *self.erased, *substituted, *self.created]))


def diff_hunks(
    before: GraphModule, after: GraphModule, replacements: Sequence[Pair] | None = None
) -> list[Hunk]:
    """Return the independent changes from `before` to `after`, in graph order.

    Args:
        after: The graph after. Sub-graphs do not count.
        replacements: Recorded pairs (old node, new node) of `replace_all_uses_with`, which the two
            graphs do not show if all users changed as well. With them, any other change of an
            operand between common nodes redefines its user. None if they were not recorded: then
            such a change counts as a substitution.
    """
    atoms = _atoms(before, after, replacements)
    order = {name: place for place, name in enumerate([*atoms.old, *atoms.new])}
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for pair in atoms.pairs:
        pairs[pair[0]].append(pair)
    groups = _components(_links(atoms))
    hunks = [_hunk(atoms, group, order, pairs) for group in groups]
    return sorted(hunks, key=lambda hunk: min(order[name] for name in hunk.nodes))


@dataclass(frozen=True, slots=True)
class _Atoms:
    """The difference between two graphs; the nodes of each by name."""

    old: Mapping[str, Node]
    new: Mapping[str, Node]
    created: Set[str]
    erased: Set[str]
    redefined: Set[str]
    pairs: tuple[Pair, ...]


def _atoms(before: GraphModule, after: GraphModule, replacements: Sequence[Pair] | None) -> _Atoms:
    old, new = by_name(before), by_name(after)
    both = [(name, node, new[name]) for name, node in old.items() if name in new]
    redefined = {name for name, a, b in both if shape(a) != shape(b)}
    found = {name: find_substitutions(a, b) for name, a, b in both if name not in redefined}
    if replacements is not None:
        lasting = old.keys() & new.keys()
        known = {*replacements}
        for name, pairs in found.items():
            if any(pair not in known and lasting >= {*pair} for pair in pairs):
                redefined.add(name)
    kept = [pair for name, pairs in found.items() if name not in redefined for pair in pairs]
    kept += _final(replacements or (), old, new)
    created, erased = new.keys() - old.keys(), old.keys() - new.keys()
    return _Atoms(old, new, created, erased, redefined, tuple(dict.fromkeys(kept)))


def _final(
    replacements: Sequence[Pair], old: Mapping[str, Node], new: Mapping[str, Node]
) -> Iterator[Pair]:
    """Yield the recorded replacements of erased nodes by new ones, without intermediate steps."""
    following = dict(replacements)
    for first, step in replacements:
        seen = {first}
        while step not in new and step in following and step not in seen:
            seen.add(step)
            step = following[step]
        if first in old and first not in new and step in new:
            yield (first, step)


Atom = str | tuple[str]
"""The name of a node that was created, erased or redefined; `(old,)` for a substitution of it."""


def _links(atoms: _Atoms) -> dict[Atom, list[Atom]]:
    """Return each atom with the atoms linked to it, in graph order."""
    created, erased = atoms.created, atoms.erased
    came, went = {b for _, b in atoms.pairs}, {a for a, _ in atoms.pairs}
    links: dict[Atom, list[Atom]] = defaultdict(list)
    for nodes, changed, replaced in ((atoms.old, erased, went), (atoms.new, created, came)):
        for name, node in nodes.items():
            if name in changed or name in atoms.redefined:
                reads = [operand.name for operand in node.all_input_nodes]
                links[name] += [o for o in reads if o in changed and o not in replaced]
    for a, b in atoms.pairs:
        links[(a,)] += [name for name in (a, b) if name in created or name in erased]
    return links


def _components(links: Mapping[Atom, Sequence[Atom]]) -> Iterator[set[Atom]]:
    """Yield the groups of atoms that are linked, directly or through others."""
    neighbours: dict[Atom, set[Atom]] = {atom: {*others} for atom, others in links.items()}
    for atom, others in links.items():
        for other in others:
            neighbours[other].add(atom)
    seen: set[Atom] = set()
    for atom in links:
        group, todo = set[Atom](), [atom]
        while todo:
            each = todo.pop()
            if each not in seen:
                seen.add(each)
                group.add(each)
                todo.extend(neighbours[each])
        if group:
            yield group


def _hunk(
    atoms: _Atoms,
    group: set[Atom],
    order: Mapping[str, int],
    pairs: Mapping[str, Sequence[Pair]],
) -> Hunk:
    olds = [atom[0] for atom in group if isinstance(atom, tuple)]
    names = sorted((atom for atom in group if isinstance(atom, str)), key=order.__getitem__)
    return Hunk(
        redefined=tuple(name for name in names if name in atoms.redefined),
        created=tuple(name for name in names if name in atoms.created),
        erased=tuple(name for name in names if name in atoms.erased),
        substitutions=tuple(sorted(pair for old in olds for pair in pairs[old])),
    )


def shape(node: Node) -> tuple[object, ...]:
    """Return the definition of a node with blank operands."""
    blank = map_arg((node.args, node.kwargs), lambda _: _BLANK)
    return (node.op, str(node.target), repr(blank))


class _Blank:
    def __repr__(self) -> str:
        return "%"


_BLANK: Any = _Blank()


def find_substitutions(old: Node, new: Node) -> list[Pair]:
    """Return the operand substitutions between two definitions of one `shape`."""
    return [(a, b) for a, b in zip(_uses(old), _uses(new), strict=True) if a != b]


def _uses(node: Node) -> Iterable[str]:
    """Return the operands in argument order, with repetitions."""
    names: list[str] = []
    map_arg((node.args, node.kwargs), lambda n: names.append(n.name))
    return names


def align_names(before: GraphModule, after: GraphModule) -> None:
    """Rename nodes of `after` in place to the names of their counterparts in `before`.

    A pass that returns a new graph module (an FX Transformer, a retrace) gives every node a new
    name, so that the difference by name would be one change of the whole graph. Nodes of only one
    side are aligned in order by operator. Wrong pairs do no harm: their definitions differ, so they
    show as changed.

    Source: Ratcliff and Obershelp's matching as in `difflib`, over operators instead of lines.
    """
    known = {node.name for node in before.graph.nodes}
    named = {node.name for node in after.graph.nodes}
    lost = [node for node in before.graph.nodes if node.name not in named]
    new = [node for node in after.graph.nodes if node.name not in known]
    matcher = SequenceMatcher(
        None, [_kind(n) for n in lost], [_kind(n) for n in new], autojunk=False
    )
    for start, other, length in matcher.get_matching_blocks():
        for old, node in zip(
            lost[start : start + length], new[other : other + length], strict=True
        ):
            node.name = old.name
    after.recompile()


def _kind(node: Node) -> str:
    return f"{node.op} {node.target}"
