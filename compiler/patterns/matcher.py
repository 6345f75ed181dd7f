"""Match expression patterns in a graph and rewrite each match through the pass's rewriter.

A pattern is an expression of `Op`s over `Var`s, read from its root backwards along operands. A rule
adds a guard that looks at the types, and a replacement. Does not search for the best cover: the
first rule in table order whose guard holds wins, at each node in graph order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Graph, Node

from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat import is_erased


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
class Rule:
    """`pattern -> replacement` where `guard` holds. `name` is for reports: `t(t(x)) -> x`."""

    name: str
    pattern: Op
    replacement: Callable[[Graph, Match], Node]
    guard: Callable[[Match], bool]


def find(pattern: Op, node: Node) -> Match | None:
    """Return the match of `pattern` with its root at `node`, or None."""
    bound: dict[str, object] = {}
    covered: list[Node] = []
    if not _matches(pattern, node, bound, covered):
        return None
    return Match(node, tuple(n for n in covered if n is not node), bound)


def _matches(pattern: object, value: object, bound: dict[str, object], covered: list[Node]) -> bool:
    if isinstance(pattern, Var):
        known = bound.setdefault(pattern.name, value)
        return known is value or (not isinstance(value, Node) and known == value)
    if not isinstance(pattern, Op):
        return type(pattern) is type(value) and pattern == value
    if not isinstance(value, Node) or value.op != "call_function" or value.kwargs:
        return False
    if value.target is not pattern.target or len(value.args) != len(pattern.args):
        return False
    covered.append(value)
    pairs = zip(pattern.args, value.args, strict=True)
    return all(_matches(part, argument, bound, covered) for part, argument in pairs)


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule]) -> None:
    """Rewrite every match of every rule in a graph, through the rewriter."""
    for node in rewriter.nodes():
        for rule in rules:
            match = None if is_erased(node) else find(rule.pattern, node)
            if match is not None and rule.guard(match):
                _rewrite(rewriter, rule, match)


def _rewrite(rewriter: Rewriter, rule: Rule, match: Match) -> None:
    def edit(graph: Graph) -> None:
        with graph.inserting_before(match.root):
            new = rule.replacement(graph, match)
        if "val" not in new.meta and "val" in match.root.meta:
            new.meta["val"] = match.root.meta["val"]  # later guards read types; verify renews it
        match.root.replace_all_uses_with(new)
        for node in (match.root, *match.inner):
            if not node.users and not is_erased(node):
                graph.erase_node(node)

    rewriter.rewrite(rule.name, [match.root, *match.inner], edit)
