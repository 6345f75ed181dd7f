"""Match expression patterns in a graph and rewrite each match through the pass's rewriter.

A pattern is an expression of `Op`s over `Var`s, read from its root backwards along operands. A rule
adds a guard that looks at the types, and a replacement:

    Rule(
        "t(t(x)) -> x",
        Op(aten.t.default, (Op(aten.t.default, (Var("x"),)),)),
        lambda rewriter, match: match.node("x"),
    )

Operators in `COMMUTATIVE` match with their operands in either order. Rules are found by the
operator of their root. Does not search for the best cover: the first rule in table order whose
guard holds wins, at each node in graph order. `explain` says why a rule does not fire at a node.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat import graphs

log = logging.getLogger("ctk.patterns")
aten = torch.ops.aten

COMMUTATIVE: frozenset[object] = frozenset(
    {aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default}
)
"""Operators whose two operands may be swapped without changing a bit of the values.

The strides of the result may change: they follow the first operand.
"""


@dataclass(frozen=True, slots=True)
class Var:
    """Matches anything; the same name must match the same thing everywhere in the pattern."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """Matches a call of `target` with exactly these positional arguments and no keywords."""

    target: object
    args: tuple["Op | Var | object", ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern was found.

    Attributes:
        root: The node whose value the pattern describes.
        inner: The other nodes that the pattern covers.
        bound: What each variable stands for: nodes, or constants.
    """

    root: Node
    inner: tuple[Node, ...]
    bound: Mapping[str, object]

    def node(self, name: str) -> Node:
        """Return the node that a variable stands for; guards have made sure that it is one."""
        value = self.bound[name]
        assert isinstance(value, Node)
        return value


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A part of a pattern that does not match, and what stands there in the graph instead.

    `depth` is how many nodes matched before.
    """

    part: object
    value: object
    depth: int

    def __str__(self) -> str:
        if isinstance(self.part, Op) and isinstance(self.value, Node):
            if self.value.target is self.part.target:
                return (
                    f"{self.value} is a {self.part.target} with other arguments: "
                    f"{self.value.args} {self.value.kwargs or ''}".rstrip()
                )
            return f"{self.value} is a {self.value.target}, not a {self.part.target}"
        expected = (
            f"what {self.part.name!r} stands for" if isinstance(self.part, Var) else self.part
        )
        return f"an operand is {self.value}, not {expected}"


Guard = Callable[[Match], str | None]


def holds(match: Match) -> None:
    """The guard of a rule without preconditions."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern -> replacement` where `guard` holds.

    Attributes:
        name: For reports: `t(t(x)) -> x`.
        pattern: The expression that is replaced.
        replacement: Returns the node that replaces the root: one of the match, or one that it has
            put in with `rewriter.insert(..., before=match.root)`.
        guard: Returns None where the rule may fire, else why it must not: `the product has other
            users`.
    """

    name: str
    pattern: Op
    replacement: Callable[[Rewriter, Match], Node]
    guard: Guard = holds


class RuleTable:
    """Rules in the order in which they are tried, found by the operator of their root."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self._by_root: dict[object, list[tuple[Rule, Op]]] = {}
        for rule in rules:
            for pattern in orders(rule.pattern):
                self._by_root.setdefault(pattern.target, []).append((rule, pattern))

    def at(self, node: Node) -> Sequence[tuple[Rule, Op]]:
        """Return the rules that may match a node as their root, with the pattern to match."""
        return self._by_root.get(node.target, ()) if node.op == "call_function" else ()


def orders(pattern: Op) -> list[Op]:
    """Return a pattern with the operands of its commutative operators in each order."""
    parts = [orders(arg) if isinstance(arg, Op) else [arg] for arg in pattern.args]
    found: dict[Op, None] = {}
    for args in itertools.product(*parts):
        found[Op(pattern.target, args)] = None
        if pattern.target in COMMUTATIVE and len(args) == 2:
            found[Op(pattern.target, args[::-1])] = None
    return list(found)


def find(pattern: Op, node: Node) -> Match | Mismatch:
    """Return the match of `pattern` with its root at `node`, or what does not match."""
    bound: dict[str, object] = {}
    covered: list[Node] = []
    mismatch = _mismatch(pattern, node, bound, covered)
    if mismatch is not None:
        return mismatch
    return Match(node, tuple(n for n in covered if n is not node), bound)


def _mismatch(
    pattern: object, value: object, bound: dict[str, object], covered: list[Node]
) -> Mismatch | None:
    """Return the first part of a pattern that does not match; collect variables and nodes."""
    if not isinstance(pattern, Op):
        wanted = bound.setdefault(pattern.name, value) if isinstance(pattern, Var) else pattern
        is_same = wanted is value or (type(wanted) is type(value) and wanted == value)
        return None if is_same else Mismatch(pattern, value, len(covered))
    if (
        not isinstance(value, Node)
        or value.op != "call_function"
        or value.target is not pattern.target
        or value.kwargs
        or len(value.args) != len(pattern.args)
    ):
        return Mismatch(pattern, value, len(covered))
    covered.append(value)
    pairs = zip(pattern.args, value.args, strict=True)
    mismatches = (_mismatch(part, argument, bound, covered) for part, argument in pairs)
    return next((each for each in mismatches if each is not None), None)


def apply_rules(rewriter: Rewriter, table: RuleTable) -> None:
    """Rewrite matches of the rules of a table through the rewriter: at most one at each node.

    A node whose rewrite is vetoed is left alone: another rule there, or the same in another order
    of its operands, would undo the veto and change the numbers of all rewrites behind it.
    """
    for node in rewriter.nodes():
        for rule, match in _matches(table, node):
            reason = rule.guard(match)
            if reason is None:
                _rewrite(rewriter, rule, match)
                break
            log.debug("%s does not fire at %s: %s", rule.name, node, reason)


def _matches(table: RuleTable, node: Node) -> Iterator[tuple[Rule, Match]]:
    """Yield the rules that match at a node, as long as it is there."""
    for rule, pattern in table.at(node):
        match = None if graphs.is_erased(node) else find(pattern, node)
        if isinstance(match, Match):
            yield rule, match


def _rewrite(rewriter: Rewriter, rule: Rule, match: Match) -> None:
    def edit(graph: Graph) -> None:
        match.root.replace_all_uses_with(rule.replacement(rewriter, match))
        for node in (match.root, *match.inner):
            if not node.users and not graphs.is_erased(node):
                graph.erase_node(node)

    rewriter.rewrite(rule.name, [match.root, *match.inner], edit)


def explain(rule: Rule, node: Node) -> str | None:
    """Say why a rule does not fire at a node.

    Returns:
        None if it fires; else the reason of its guard, or, where the pattern does not match, what
        stands in the graph for the part of the pattern that got furthest.
    """
    reasons: list[str] = []
    mismatches: list[Mismatch] = []
    for pattern in orders(rule.pattern):
        match = find(pattern, node)
        if isinstance(match, Mismatch):
            mismatches.append(match)
            continue
        reason = rule.guard(match)
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0] if reasons else str(max(mismatches, key=lambda each: each.depth))
