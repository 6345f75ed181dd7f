"""Rewriter: the interface through which a pass changes graphs.

A pass reads a graph freely and changes it only by an edit of its `Rewriter`, which numbers the
rewrite, asks fuel and observer whether it may happen, and records the nodes touched. So any pass
can be bisected down to one rewrite without its cooperation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.error_place import place
from ctk.compiler.errors import VerifyError
from ctk.compiler.fx.restride import refresh, same_layouts
from ctk.compiler.fx.types import value_of
from ctk.compiler.observe import ErrorRecord, RewriteId, Stage
from ctk.compiler.rewriting.node_types import record_type
from ctk.compiler.rewriting.numbering import PassRun
from ctk.compiler.torch_compat.fx import graphs


class Rewriter:
    """The one way for a pass to change a graph.

    Attributes:
        module: The current graph module (the root, or a nested sub-graph). Read-only.
        config: Options of the compile.
    """

    def __init__(self, run: PassRun, module: GraphModule) -> None:
        self.module = module
        self.config = run.numbering.config
        self._run = run
        self._is_editing = False

    @property
    def graph(self) -> Graph:
        return self.module.graph

    @property
    def stage(self) -> Stage:
        """The stage whose passes run."""
        return self._run.id.stage

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in order, without nodes that a rewrite erases meanwhile."""
        for node in list(self.module.graph.nodes):
            if not graphs.is_erased(node):
                yield node

    def rewrite(self, rule: str, nodes: Sequence[Node], edit: Callable[[Graph], object]) -> bool:
        """Make one rewrite, if it is allowed.

        Args:
            rule: The rule, as `a op b -> c` or a short name.
            nodes: The matched nodes; the first is the anchor that errors name.
            edit: Changes the graph. Runs at most once, right now.

        Returns:
            Whether the rewrite was made.
        """
        run = self._run
        rewrite_id = run.next_rewrite(rule)
        if not run.numbering.allow_rewrite(rewrite_id):
            run.record(rewrite_id, [n.name for n in nodes], vetoed=True)
            return False
        run.prepare(self.module)
        observed = run.numbering.observer is not None
        names = [node.name for node in nodes]
        known = {n.name for n in self.graph.nodes} if observed else set[str]()
        self._edit(edit, rewrite_id, names[0] if names else None)
        created = [n.name for n in self.graph.nodes if n.name not in known] if observed else []
        run.record(rewrite_id, list(dict.fromkeys([*names, *created])))
        return True

    def _edit(
        self, edit: Callable[[Graph], object], rewrite: RewriteId, anchor: str | None
    ) -> None:
        self._is_editing = True
        try:
            edit(self.graph)
        except Exception as error:
            report(error, self._run, rewrite, anchor)
            raise
        finally:
            self._is_editing = False

    def contract_error(self, fault: str, advice: str, node: Node) -> VerifyError:
        """Return the error of a pass that broke its contract at a node; see `PassRun`."""
        return self._run.contract_error(fault, "", advice, module=self.module, node=node.name)

    def note(self, text: str) -> None:
        """Record a decision about a node, for `ctk show CASE --why-not PASS` and `--times`."""
        self._run.note(text)

    def insert(
        self,
        target: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        before: Node,
    ) -> Node:
        """Insert a call into the graph, inside an edit, and return its node with its type.

        A node of `graph.call_function` has no type (`meta["val"]`) until the pass ends, so that the
        guard of the next rule could not read it.

        Args:
            target: The callee, usually an operator.
            args: Operands: nodes and constants.
            kwargs: Operands by keyword.
            before: The node that follows the new one.

        Raises:
            VerifyError: The call cannot run on the types of its operands.
            RuntimeError: No edit is running: `insert` belongs inside the edit of a `rewrite`.
        """
        if not self._is_editing:
            raise RuntimeError(
                "Rewriter.insert was called outside an edit: call it in the function that "
                "rewriter.rewrite(rule, nodes, edit) gets, so that the change has a number"
            )
        with self.graph.inserting_before(before):
            node = self.graph.call_function(cast("Any", target), args, dict(kwargs or {}))  # type: ignore[arg-type]  # FX checks the types of arguments itself
        record_type(self._run, self.module, node)
        return node

    def inserter(self, before: Node) -> Callable[..., Node]:
        """Return `call(target, *args, **kwargs)`, which inserts a call in front of a node."""

        def call(target: object, *args: object, **kwargs: object) -> Node:
            return self.insert(target, args, kwargs, before=before)

        return call

    def replace_by(
        self,
        rule: str,
        nodes: Sequence[Node],
        make: Callable[[], Node],
        *,
        erase: Sequence[Node] = (),
    ) -> bool:
        """Replace the first of the matched nodes by a node that `make` inserts, and erase it.

        Args:
            rule: As for `rewrite`, like `nodes`.
            make: Inserts calls and returns the replacement. Runs at most once, right now.
            erase: More nodes to erase, each before its operands.
        """

        def edit(graph: Graph) -> None:
            _hand_over(nodes[0], make())
            for node in (nodes[0], *erase):
                graph.erase_node(node)

        return self.rewrite(rule, nodes, edit)

    def replace(self, old: Node, new: Node, *, rule: str) -> bool:
        """Replace every use of `old` by `new`, and erase `old`."""

        def edit(graph: Graph) -> None:
            _hand_over(old, new)
            graph.erase_node(old)

        return self.rewrite(rule, [old, new], edit)

    def erase(self, node: Node, *, rule: str) -> bool:
        """Erase a node that has no users."""
        return self.rewrite(rule, [node], lambda graph: graph.erase_node(node))


def _hand_over(old: Node, new: Node) -> None:
    """Let the users of a node read another one; if its layout is new, record theirs as well."""
    users = [*old.users]
    old.replace_all_uses_with(new)
    if not same_layouts(value_of(old), value_of(new)):
        refresh(users)


def report(
    error: BaseException, run: PassRun, rewrite: RewriteId | None = None, node: str | None = None
) -> None:
    """Record the place of an exception of a pass: stage, pass, rewrite and node.

    Args:
        error: The exception; a node that it names takes precedence.
    """
    if isinstance(error, VerifyError) and error.node is not None:
        node = error.node
    record = ErrorRecord(error, run.id.stage, run.id, rewrite, node=node, graph=run.root)
    place(record, run.numbering.observer, hint=f"without it: CTK_DISABLE={run.id}")
