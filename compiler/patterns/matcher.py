"""Rules as data: match expression patterns in a graph and rewrite each match through the rewriter.

A pattern is an expression of `Op`s over `Var`s (`expression.py`), read from its root backwards
along operands (`solve.py`). A rule adds a guard that looks at the types, and a replacement:

    Rule(
        "t(t(x)) -> x",
        Op(aten.t.default, (Op(aten.t.default, (Var("x"),)),)),
        lambda rewriter, match: match.node("x"),
    )

Rules are found by the operator of their root. There is no search for the best cover: the first rule
in table order whose guard holds wins, at each node in graph order. `explain` returns why a rule
does not fire at a node, `why_not` why it fires nowhere in a graph. `replacement.py` makes rules
from two traced functions.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Graph, Node

from ctk.compiler.errors import RuleError
from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import base_of, is_mutating, is_view
from ctk.compiler.fx.walk import fetch
from ctk.compiler.observe import Numerics
from ctk.compiler.patterns.checks import check_rule
from ctk.compiler.patterns.expression import (
    Match,
    Op,
    Pattern,
    PatternMismatch,
    Reshape,
    ops_of,
    roots_of,
    target_text,
)
from ctk.compiler.patterns.solve import CLONE, UNSAFE_VIEW, calls, matches
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import graphs

log = logging.getLogger("ctk.patterns")

Guard = Callable[[Match], str | None]
Results = Node | Sequence[Node]


def holds(match: Match) -> None:
    """The guard of a rule without preconditions."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern -> replacement` if `guard` holds.

    Attributes:
        name: For reports: `t(t(x)) -> x`.
        pattern: The expression to replace; a tuple of expressions for several results.
        replacement: Returns the node that replaces the root (one node for each result): a node of
            the match, or one made by `rewriter.insert`. It must not write; a `HandlerRule` may.
        guard: Returns None if the rule may fire, else why it must not: `the product has other
            users`.
        keeps_inner: The guard alone decides. Otherwise the rule does not fire if another node needs
            an inner node, unless that is a view of an operand, or if a node between the nodes of
            the match writes to their operands.
        numerics: Its effect on values; None: the numerics of its pass, or exact without one.
    """

    name: str
    pattern: Pattern
    replacement: Callable[[Rewriter, Match], Results]
    guard: Guard = holds
    keeps_inner: bool = True
    numerics: Numerics | None = None


@dataclass(frozen=True, slots=True)
class HandlerRule:
    """A pattern, and a handler that makes any number of rewrites of a match itself."""

    name: str
    pattern: Pattern
    handler: Callable[[Rewriter, Match], object]
    guard: Guard = holds
    keeps_inner: bool = True
    numerics: Numerics | None = None


AnyRule = Rule | HandlerRule

LENGTH = 4

Chain = tuple[tuple[object, ...], ...]
"""The targets that may stand at each place, the root first; none where a module may."""


class RuleTable:
    """Rules in the order in which they are tried.

    They are found by the operators of their root and of its chain of first operands, so that rules
    that cannot match cost nothing: of thirty forms of attention none is tried at a view of a sum.
    """

    def __init__(self, *rules: AnyRule) -> None:
        self._rules: list[AnyRule] = []
        self._by_root: dict[object, dict[Chain, list[int]]] = {}
        for rule in rules:
            self.add(rule)

    def __call__(self, rewriter: Rewriter) -> None:
        """Apply the rules: a table by itself is a pass that users can name in a config."""
        apply_rules(rewriter, self)

    @property
    def rules(self) -> tuple[AnyRule, ...]:
        return tuple(self._rules)

    def add(self, rule: AnyRule) -> None:
        """Put a rule behind the others.

        Raises:
            TypeError: The rule can never match, or its functions cannot be called.
        """
        function = rule.replacement if isinstance(rule, Rule) else rule.handler
        check_rule(rule.name, rule.pattern, function, rule.guard)
        root = roots_of(rule.pattern)[0]
        chain = chain_of(root)
        for target in chain[0] or root.targets:
            same = self._by_root.setdefault(target, {}).setdefault(chain, [])
            same.append(len(self._rules))
        self._rules.append(rule)

    def at(self, node: Node) -> Sequence[AnyRule]:
        """Return the rules that may match a node as their root."""
        is_module = node.op == "call_module"
        chains = self._by_class(node) if is_module else self._by_root.get(node.target)
        if chains is None or node.op in ("placeholder", "get_attr", "output"):
            return ()
        found = [
            index for chain, same in chains.items() if has_chain(node, chain) for index in same
        ]
        return [self._rules[index] for index in sorted(found)] if found else ()

    def _by_class(self, node: Node) -> dict[Chain, list[int]]:
        """Return the rules of the class of a module, and of its base classes."""
        kinds = type(fetch(node.graph.owning_module, node.target)).__mro__
        found: dict[Chain, list[int]] = {}
        for same in (self._by_root.get(kind, {}) for kind in kinds):
            for chain, rules in same.items():
                found.setdefault(chain, []).extend(rules)
        return found


def add_to(tables: "RuleTable | Sequence[RuleTable]", rule: AnyRule) -> None:
    """Put a rule into tables, behind the others.

    Raises:
        TypeError: As `RuleTable.add`, or one of them is not a table.
    """
    for table in tables if isinstance(tables, (list, tuple)) else [tables]:
        if not isinstance(table, RuleTable):
            raise TypeError(
                f"rule {rule.name}: {table!r} is not a RuleTable; make one: RuleTable()"
            )
        table.add(rule)


def apply_rules(rewriter: Rewriter, table: RuleTable) -> None:
    """Rewrite matches of the rules of a table through the rewriter: at most one at each node.

    A node whose rewrite is vetoed is left alone: another rule there, or the same in another order
    of its operands, would undo the veto and change the numbers of all rewrites behind it.
    """
    writers: list[Node] | None = None
    for node in rewriter.nodes():
        for rule, match in _matches(table, node):
            writers = writers_of(node.graph) if writers is None else writers
            with _place_faults(rewriter, rule.name, node):
                reason = refusal(rule, match, writers)
            if reason is None:
                _fire(rewriter, rule, match)
                writers = None if isinstance(rule, HandlerRule) else writers
                break
            log.debug("%s does not fire at %s: %s", rule.name, node, reason)


def _matches(table: RuleTable, node: Node) -> Iterator[tuple[AnyRule, Match]]:
    """Yield the rules that match at a node, as long as it is there."""
    for rule in table.at(node):
        if not graphs.is_erased(node):
            yield from ((rule, match) for match in matches(rule.pattern, node))


def refusal(rule: AnyRule, match: Match, writers: Sequence[Node]) -> str | None:
    """Return why a rule must not fire at a match; None if it may. `writers` write to operands."""
    reason = None if rule.keeps_inner else needed_inside(match, writers)
    reason = reason or cast("object", rule.guard(match))
    if reason is not None and not isinstance(reason, str):
        raise RuleError(
            f"has a guard that returns {reason!r}",
            "return None if the rule may fire, else the reason as text",
        )
    return reason


@contextmanager
def _place_faults(rewriter: Rewriter, name: str, node: Node) -> Generator[None]:
    """Name the pass, the rule and the node in the error of a function that misreads its match."""
    try:
        yield
    except RuleError as fault:
        raise rewriter.contract_error(
            f"cannot apply the rule {name} at {node}: it {fault}", fault.advice, node
        ) from fault


def needed_inside(match: Match, writers: Sequence[Node]) -> str | None:
    """Return why the inner nodes of a match must stay: another node reads or writes them."""
    return _outside_users(match) or _find_write(match, writers)


def writers_of(graph: Graph) -> list[Node]:
    """Return the nodes of a graph that write to operands."""
    return [node for node in graph.nodes if is_mutating(node)]


def _find_write(match: Match, writers: Sequence[Node]) -> str | None:
    """Return why a write between the nodes of a match to their operands forbids it.

    The replacement of `y = sin(x); x.add_(1); z = neg(y)` would read `x` behind the write.
    """
    covered = set(match.covered)
    first, last = min(covered), max(covered)
    between = [node for node in writers if node not in covered and first < node < last]
    read = {base_of(each) for node in covered for each in (node, *node.all_input_nodes)}
    for node in between:
        if not read.isdisjoint(map(base_of, mutated_arguments(node))):
            return f"{node} writes, between {first} and {last}, to their operands"
    return None


def _outside_users(match: Match) -> str | None:
    """Return the computed inner value that an outside node needs; views of operands may stay."""
    covered, computed = set(match.covered), set(match.outputs)
    for node in sorted(match.inner):
        is_free = is_view(node) and computed.isdisjoint(node.all_input_nodes)
        if is_free or node in match.staying:
            continue
        computed.add(node)
        outside = next((user for user in node.users if user not in covered), None)
        if outside is not None:
            return f"{outside}, outside the match, needs {node}"
    return None


def _fire(rewriter: Rewriter, rule: AnyRule, match: Match) -> None:
    if isinstance(rule, HandlerRule):
        with _place_faults(rewriter, rule.name, match.root):
            rule.handler(rewriter, match)
    else:
        replace_match(rewriter, rule.name, match, lambda: rule.replacement(rewriter, match))


def replace_match(
    rewriter: Rewriter, name: str, match: Match, replacement: Callable[[], Results]
) -> bool:
    """Make one rewrite of a match: its results become those of `replacement`, called inside it."""

    def edit(graph: Graph) -> None:
        with _place_faults(rewriter, name, match.root):
            results = _nodes_of(replacement(), len(match.outputs))
        for old, new in zip(match.outputs, results, strict=True):
            old.replace_all_uses_with(new, delete_user_cb=lambda user, new=new: user is not new)
        for node in sorted(match.covered, reverse=True):
            if not node.users:
                graph.erase_node(node)

    return rewriter.rewrite(name, match.covered, edit)


def _nodes_of(made: object, count: int) -> Sequence[Node]:
    """Return the nodes that a replacement returned, one for each result of its pattern."""
    nodes = [made] if isinstance(made, Node) else made
    if isinstance(nodes, (list, tuple)):
        nodes = cast("Sequence[object]", nodes)
        if len(nodes) == count and all(isinstance(each, Node) for each in nodes):
            return cast("Sequence[Node]", nodes)
    raise RuleError(
        f"returned {made!r}, and its pattern has {count} result{'s' * (count != 1)}",
        "return a node for each result: match.node(...), or the node of rewriter.insert(...)",
    )


def explain(rule: AnyRule, node: Node) -> str | None:
    """Return why a rule does not fire at a node; None if it fires.

    The reason of its guard, or the part of the graph in place of the furthest mismatch.
    """
    missed: list[PatternMismatch] = []
    reasons: list[str] = []
    for match in matches(rule.pattern, node, missed):
        reason = refusal(rule, match, writers_of(node.graph))
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0] if reasons else str(max(missed, key=lambda each: each.depth))


def why_not(rule: AnyRule, graph: Graph) -> str | None:
    """Return why a rule fires nowhere in a graph; None if it fires somewhere.

    The reason of its guard at the first match, or the best partial match with its mismatch.
    """
    root = roots_of(rule.pattern)[0]
    writers = writers_of(graph)
    refused: list[str] = []
    best: tuple[PatternMismatch, Node] | None = None
    for node in (each for each in graph.nodes if calls(root, each)):
        missed: list[PatternMismatch] = []
        for match in matches(rule.pattern, node, missed):
            reason = refusal(rule, match, writers)
            if reason is None:
                return None
            refused.append(f"at {node}: {reason}")
        for each in missed:
            best = (each, node) if best is None or each.depth > best[0].depth else best
    if refused:
        return refused[0]
    if best is None:
        return f"no node calls {target_text(root)}"
    count = sum(1 for _ in ops_of(*roots_of(rule.pattern)))
    return f"at {best[1]}: {best[0].depth} of {count} nodes match, then {best[0]}"


def chain_of(root: Op) -> Chain:
    """Return the anchor of a pattern: a chain of operators that every match has; a cheap check.

        view(bmm(view(softmax(...)), v))   has the chain   view, bmm, view, softmax

    From the root along first operands, up to `LENGTH` calls; it stops at swappable operands,
    because the next call may then be at either position.
    """
    found: list[tuple[object, ...]] = []
    part: object = root
    while isinstance(part, Op) and len(found) < LENGTH:
        if any(isinstance(target, type) for target in part.targets):
            return (*found, ())
        found.append((*part.targets, UNSAFE_VIEW) if isinstance(part, Reshape) else part.targets)
        is_end = part.swaps == (0, 1) or not part.operands
        part = None if is_end else part.operands[0]
    return tuple(found)


def has_chain(node: Node, chain: Chain) -> bool:
    """Return whether the calls along first operands are those of a chain.

    A copy before an `_unsafe_view` is passed over, as in a `Reshape`; an operand that is given by
    name is not looked at.
    """
    value: object = node
    for targets in chain:
        if not targets:
            return True
        if not isinstance(value, Node) or value.target not in targets:
            return False
        if not value.args:
            return True
        is_copied = value.target is UNSAFE_VIEW
        value = value.args[0]
        if is_copied and isinstance(value, Node) and value.target is CLONE:
            value = value.args[0]
    return True


Fill = Callable[[RuleTable, tuple[str, ...]], object]


class LazyTable:
    """A `RuleTable` that `fill(table, devices)` fills at the first `get`, once per process.

    Tracing patterns takes seconds in sum, and a query of devices at import would initialise them. A
    lock guards filling; if it fails, the table stays empty and the next call tries again.

    `devices` are the types of device that exist here: `("cpu",)`, `("cpu", "cuda")`.
    """

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._lock = threading.RLock()
        self._table: RuleTable | None = None

    def get(self) -> RuleTable:
        """Return the table, filled.

        Raises:
            Exception: The error of `fill`; the table stays empty.
        """
        if self._table is None:
            with self._lock:
                if self._table is None:
                    table = RuleTable()
                    self._fill(table, devices())
                    self._table = table
        return self._table


def devices() -> tuple[str, ...]:
    """Return the types of device that exist here; does not initialise them."""
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
