"""Match a pattern at a node: return every match, or the part that does not match.

The search goes from the root backwards along operands, and backtracks over choices: the two orders
of swappable operands, unless their operators already decide (so a chain of sums is not tried in all
its orders); and for a further result, the users of a matched node.

    pattern (out, grad) over q, t       1. out at the node, backwards to q
    out = relu(q)                       2. grad is open: it uses `out`, so the users of that node
    grad = where(out, t)                   which are a `where` are tried

Source: torch/_inductor/pattern_matcher.py, which keeps a class with its own `_match` per kind of
pattern and tries no second order of operands. Here one loop works off a list of pairs (part of the
pattern, value in the graph), and arguments are compared as the schema fills them.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch.fx import Node
from torch.nn import Module

from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.patterns.expression import (
    Bindings,
    Dim,
    ListOf,
    Match,
    Op,
    Pattern,
    PatternMismatch,
    Repeated,
    Reshape,
    Size,
    Used,
    Var,
    ops_of,
    roots_of,
    target_text,
)
from ctk.compiler.torch_compat.fake import fake_tensors as fake

CLONE = torch.ops.aten.clone.default
UNSAFE_VIEW = torch.ops.aten._unsafe_view.default

Goal = tuple[object, object]
"""A part of a pattern, and the value in the graph that it must match."""


@dataclass(slots=True)
class _State:
    """The matched part."""

    bound: dict[str, object] = field(default_factory=dict[str, object])
    nodes: dict[Op, Node] = field(default_factory=dict[Op, Node])
    copies: list[Node] = field(default_factory=list[Node])
    staying: list[Node] = field(default_factory=list[Node])

    def copy(self) -> "_State":
        more = list(self.copies), list(self.staying)
        return _State(dict(self.bound), dict(self.nodes), *more)

    def mismatch(self, part: object, value: object) -> PatternMismatch:
        return PatternMismatch(part, value, len(self.nodes))


def find(pattern: Pattern, node: Node) -> Match | PatternMismatch:
    """Return the first match of `pattern` with its root at `node`, or the mismatch."""
    missed: list[PatternMismatch] = []
    match = next(matches(pattern, node, missed), None)
    return match or max(missed, key=lambda each: each.depth)


def matches(
    pattern: Pattern, node: Node, missed: list[PatternMismatch] | None = None
) -> Iterator[Match]:
    """Yield the matches with the first root at `node`; `missed` gets each mismatch on the way."""
    roots = roots_of(pattern)
    missed = [] if missed is None else missed
    if isinstance(pattern, Repeated):
        yield from _uses(pattern, node, missed)
        return
    for state in _solve([(roots[0], node)], roots, _State(), missed):
        yield _match(state, tuple(state.nodes[root] for root in roots))


def _match(state: _State, outputs: tuple[Node, ...]) -> Match:
    inner = [n for n in dict.fromkeys([*state.nodes.values(), *state.copies]) if n not in outputs]
    return Match(outputs[0], tuple(inner), Bindings(state.bound), outputs, frozenset(state.staying))


def _uses(pattern: Repeated, node: Node, missed: list[PatternMismatch]) -> Iterator[Match]:
    """Yield the match of all uses of one node, at the first of them."""
    for first in _solve([(pattern.part, node)], (), _State(), missed):
        uses = {first.nodes[pattern.of]}
        for _ in range(_distance(pattern)):
            uses = {user for each in uses for user in each.users}
        nodes = sorted(uses)
        if nodes[0] is not node:
            missed.append(PatternMismatch(pattern, nodes[0], 0))
            return
        state = _State()
        mismatch = _match_items(ListOf(pattern.part, (pattern.of,)), nodes, state)
        if mismatch is None:
            yield _match(state, tuple(nodes))
            return
        missed.append(mismatch)


def _distance(pattern: Repeated) -> int:
    """Return the number of calls from the repeated part down to the one node."""
    level: list[object] = [pattern.part]
    for distance in itertools.count():
        if pattern.of in level:
            return distance
        level = [each for part in level if isinstance(part, Op) for each in _flat(part.operands)]
    return 0


def _flat(operands: Sequence[object]) -> Iterator[object]:
    for operand in operands:
        is_list = isinstance(operand, (list, tuple))
        yield from _flat(cast("Sequence[object]", operand)) if is_list else [operand]


def _match_items(part: ListOf, values: Sequence[object], state: _State) -> PatternMismatch | None:
    """Match each item of a list, and add nodes and variables to a state; or return a mismatch."""
    same = {*ops_of(*(each for each in part.same if isinstance(each, Op)))}
    names = {each.name for each in part.same if isinstance(each, Var)}
    names |= {each.name for op in same for each in _flat(op.operands) if isinstance(each, Var)}
    own = [name for name in names_of(part.part) if name not in names]
    if not state.bound.keys().isdisjoint(own):
        return state.mismatch(part, values)
    found: list[_State | None] = []
    missed: list[PatternMismatch] = []
    for item, value in enumerate(values):
        known = {name: value for name, value in state.bound.items() if name not in own}
        nodes = {op: node for op, node in state.nodes.items() if op in same}
        reasons: list[PatternMismatch] = []
        outside = len(state.nodes) - len(nodes)
        match = next(_solve([(part.part, value)], (), _State(known, nodes), reasons), None)
        found.append(match)
        if match is None:
            missed.append(_in_list(reasons, item, outside))
            if not part.partial:
                return missed[0]
        else:
            state.nodes |= {op: node for op, node in match.nodes.items() if op in same}
            state.bound |= {n: bound for n, bound in match.bound.items() if n in names}
            others = [node for op, node in match.nodes.items() if op not in same]
            state.copies += [*others, *match.copies]
            state.staying += match.staying
    state.bound |= {name: tuple(m and m.bound.get(name) for m in found) for name in own}
    if any(found):
        return None
    return missed[0] if missed else state.mismatch(part, values)


def _in_list(reasons: list[PatternMismatch], item: int, depth: int) -> PatternMismatch:
    furthest = max(reasons, key=lambda each: each.depth)
    return replace(furthest, depth=depth + furthest.depth, item=item)


def names_of(part: object) -> list[str]:
    """Return the names of the variables of a part."""
    parts = [part, *(each for op in ops_of(part) for each in _flat(op.operands))]
    parts += [each.part for each in parts if isinstance(each, ListOf)]
    return list(dict.fromkeys(each.name for each in parts if isinstance(each, Var)))


def _solve(
    goals: list[Goal], roots: Sequence[Op], state: _State, missed: list[PatternMismatch]
) -> Iterator[_State]:
    """Yield the states in which all goals and roots match; `state` belongs to this call."""
    while goals:
        choices = _choices(*goals.pop(), state)
        if isinstance(choices, PatternMismatch):
            missed.append(choices)
            return
        if len(choices) > 1:
            for choice in choices:
                yield from _solve([*goals, *reversed(choice)], roots, state.copy(), missed)
            return
        goals.extend(reversed(choices[0]))
    open_root = next((root for root in roots if root not in state.nodes), None)
    if open_root is None:
        yield state
        return
    part, operand = _next_above(open_root, state)
    candidates = _users(operand, part) if operand is not None else []
    for candidate in candidates:
        yield from _solve([(part, candidate)], roots, state.copy(), missed)
    if not candidates:
        missed.append(state.mismatch(Used(target_text(part)), operand or "what has matched"))


def _next_above(root: Op, state: _State) -> tuple[Op, Node | None]:
    """Return a part of `root` that is open, and of its operands that have matched that with the
    fewest users."""
    for part in ops_of(root):
        known = [] if part in state.nodes else list(_resolve(part.operands, state))
        if known:
            return part, min(known, key=lambda node: len(node.users))
    return root, None


def _resolve(operands: Sequence[object], state: _State) -> Iterator[Node]:
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            yield from _resolve(cast("Sequence[object]", operand), state)
        found = state.nodes.get(operand) if isinstance(operand, Op) else None
        found = state.bound.get(operand.name) if isinstance(operand, Var) else found
        if isinstance(found, Node):
            yield found


def _users(operand: Node, part: Op) -> list[Node]:
    """Return the users of a node that may match a part; those of its copies for a `Reshape`."""
    users = list(operand.users)
    if isinstance(part, Reshape):
        users += [later for user in users if user.target is CLONE for later in user.users]
    return [user for user in dict.fromkeys(users) if calls(part, user)]


def _choices(part: object, value: object, state: _State) -> Sequence[list[Goal]] | PatternMismatch:
    """Return the goals for `part` to match `value`: one list for each choice."""
    if isinstance(part, Op):
        return _choices_of_call(part, value, state)
    if isinstance(part, (list, tuple)):
        return _choices_of_list(cast("Sequence[object]", part), value, state)
    if isinstance(part, ListOf):
        is_list = isinstance(value, (list, tuple))
        items = cast("Sequence[object]", value) if is_list else []
        return _match_items(part, items, state) or [[]]
    wanted = state.bound.setdefault(part.name, value) if isinstance(part, Var) else part
    return [[]] if _is_same(wanted, value) else state.mismatch(part, value)


def _is_same(wanted: object, value: object) -> bool:
    """Compare a constant of a pattern with an argument: 1 is not 1.0, and 0.0 is not -0.0."""
    if wanted is value:
        return True
    if isinstance(wanted, Size):
        return wanted.text is None or wanted.text == size_text(value)
    if isinstance(wanted, Dim):
        return type(value) is int and value == wanted.index
    if type(wanted) is not type(value):
        return False
    if isinstance(wanted, (float, complex)):
        return repr(wanted) == repr(value)
    return bool(wanted == value)


def size_text(value: object) -> str | None:
    """Return a size as text: `4`, `s0*2`; None for another value."""
    known = value_of(value)
    is_size = isinstance(known, int) or known is None or fake.is_symbolic(known)
    return str(known) if is_size and not (known is None and isinstance(value, Node)) else None


def _choices_of_list(
    part: Sequence[object], value: object, state: _State
) -> Sequence[list[Goal]] | PatternMismatch:
    if not isinstance(value, (list, tuple)) or len(cast("Sequence[object]", value)) != len(part):
        return state.mismatch(part, value)
    return [list(zip(part, cast("Sequence[object]", value), strict=True))]


def _choices_of_call(
    part: Op, value: object, state: _State
) -> Sequence[list[Goal]] | PatternMismatch:
    known = state.nodes.get(part)
    if known is not None:
        return [[]] if known is value else state.mismatch(known, value)
    if not isinstance(value, Node) or not calls(part, value):
        return state.mismatch(part, value)
    if value.target is UNSAFE_VIEW and isinstance(part, Reshape):
        return _choices_of_copy(part, value, state)
    target = Module if value.op == "call_module" else value.target  # which is a name there
    operands = part.operands if target is part.targets[0] else part.operands_of(target)
    values = part.fill(target, value.args, value.kwargs)
    if values is None or len(values) != len(operands):
        return state.mismatch(part, value)
    state.nodes[part] = value
    if part.may_stay:
        state.staying.append(value)
    if part.counts_dims:
        pairs = zip(operands, values, strict=True)
        values = tuple(_count_dim(*pair, value) for pair in pairs)
    return _orders(part, operands, values) or _first_mismatch(part, value, operands, values, state)


def calls(part: Op, node: Node) -> bool:
    """Return whether a node calls a target of a part of a pattern."""
    if node.op == "call_function":
        is_copy = node.target is UNSAFE_VIEW and isinstance(part, Reshape)
        return node.target in part.targets or is_copy
    if node.op == "call_method":
        return node.target in part.targets
    if node.op != "call_module":
        return False
    kinds = tuple(target for target in part.targets if isinstance(target, type))
    return bool(kinds) and isinstance(fetch(node.graph.owning_module, node.target), kinds)


def _choices_of_copy(part: Op, value: Node, state: _State) -> Sequence[list[Goal]]:
    """Return the goals for a `Reshape` to match `_unsafe_view(clone(x))`."""
    state.nodes[part] = value
    source = value.args[0]
    if isinstance(source, Node) and source.target is CLONE:
        state.copies.append(source)
        source = source.args[0]
    return [[(part.operands[0], source), (part.operands[1], value.args[1])]]


def _count_dim(part: object, value: object, call: Node) -> object:
    """Return dimensions counted from the end if the pattern counts them so."""
    if isinstance(part, Dim) and isinstance(value, int) and value >= 0:
        tensor = tensor_of(call.all_input_nodes[0]) if call.all_input_nodes else None
        return value if tensor is None else value - tensor.dim()
    if isinstance(part, (list, tuple)) and isinstance(value, (list, tuple)):
        parts, values = cast("Sequence[object]", part), cast("Sequence[object]", value)
        if len(parts) == len(values):
            return [_count_dim(*pair, call) for pair in zip(parts, values, strict=True)]
    return value


def _orders(part: Op, operands: Sequence[object], values: Sequence[object]) -> list[list[Goal]]:
    """Return the goals of a call, in each order of its operands in which all of them may match."""
    straight = list(zip(operands, values, strict=True))
    orders = [straight]
    i, j = part.swaps
    if i != j and values[i] is not values[j] and operands[i] != operands[j]:
        swapped = list(values)
        swapped[i], swapped[j] = values[j], values[i]
        orders.append(list(zip(operands, swapped, strict=True)))
    return [each for each in orders if all(_may_match(*goal) for goal in each)]


def _may_match(part: object, value: object) -> bool:
    """Return whether operator or constant are equal; operands do not count."""
    if isinstance(part, Op):
        return isinstance(value, Node) and calls(part, value)
    return isinstance(part, (Var, list, tuple, ListOf)) or _is_same(part, value)


def _first_mismatch(
    part: Op, call: Node, operands: Sequence[object], values: Sequence[object], state: _State
) -> PatternMismatch:
    """Return the argument that differs; the call itself if the pattern does not name it."""
    pairs = list(zip(operands, values, strict=True))
    places = [place for place, pair in enumerate(pairs) if not _may_match(*pair)]
    if places[-1] >= len(part.args):
        return state.mismatch(part, call)
    return state.mismatch(*pairs[places[0]])
