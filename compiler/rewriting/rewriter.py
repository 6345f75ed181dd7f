"""Rewriter: what a pass changes graphs through.

A pass reads a graph freely and changes it only by handing an edit to its `Rewriter`. That numbers
the rewrite, asks whether it may happen (fuel, observer) and records the nodes touched. So any pass
can be bisected down to one rewrite without knowing it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument

from ctk.compiler.error_place import place
from ctk.compiler.errors import VerifyError
from ctk.compiler.observe import ErrorRecord, RewriteId
from ctk.compiler.rewriting.node_types import record_type
from ctk.compiler.rewriting.numbering import PassRun
from ctk.compiler.torch_compat.fx import graphs


class Rewriter:
    """The one way for a pass to change a graph.

    Attributes:
        module: The graph module at hand (the root, or a nested sub-graph). Read it, do not change
            it.
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

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in order; those that a rewrite erases meanwhile are skipped."""
        for node in list(self.module.graph.nodes):
            if not graphs.is_erased(node):
                yield node

    def rewrite(self, rule: str, nodes: Sequence[Node], edit: Callable[[Graph], object]) -> bool:
        """Make one rewrite, if it is allowed.

        Args:
            rule: What is applied, as `a op b -> c` or a short name.
            nodes: The nodes that were matched; the first is the anchor that errors name.
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

    def note(self, text: str) -> None:
        """Say what was decided of a node, for `ctk show CASE --why-not PASS` and `--times`."""
        self._run.note(text)

    def insert(
        self,
        target: Callable[..., object],
        args: tuple[Argument, ...] = (),
        kwargs: Mapping[str, Argument] | None = None,
        *,
        before: Node,
    ) -> Node:
        """Add a call to the graph, inside an edit, and return its node, which has its type at once.

        `graph.call_function` gives a node without a type (`meta["val"]`) until the pass is over:
        what reads types meanwhile, such as the guard of the next rule, would see nothing there.

        Args:
            target: What is called, an operator mostly.
            args: Operands: nodes and constants.
            kwargs: Operands by keyword.
            before: The node in front of which the new one goes.

        Raises:
            VerifyError: The call cannot run on the types of its operands.
            RuntimeError: No edit is running: `insert` belongs inside the edit of a `rewrite`.
        """
        if not self._is_editing:
            raise RuntimeError(
                "Rewriter.insert was called outside an edit: call it in the function that "
                "rewriter.rewrite(rule, nodes, edit) is given, so that the change has a number"
            )
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, args, dict(kwargs or {}))
        record_type(self._run, self.module, node)
        return node

    def replace(self, old: Node, new: Node, *, rule: str) -> bool:
        """Use `new` for every use of `old` and erase `old`."""

        def edit(graph: Graph) -> None:
            old.replace_all_uses_with(new)
            graph.erase_node(old)

        return self.rewrite(rule, [old, new], edit)

    def erase(self, node: Node, *, rule: str) -> bool:
        """Erase a node that has no users."""
        return self.rewrite(rule, [node], lambda graph: graph.erase_node(node))


def report(
    error: BaseException, run: PassRun, rewrite: RewriteId | None = None, node: str | None = None
) -> None:
    """Write on an exception of a pass its place: stage, pass, rewrite and node.

    Args:
        error: What was raised.
        run: The run of the pass.
        rewrite: The rewrite that was being made.
        node: The node that it is anchored at; an error that names a node itself knows better.
    """
    if isinstance(error, VerifyError) and error.node is not None:
        node = error.node
    record = ErrorRecord(error, run.id.stage, run.id, rewrite, node=node, graph=run.root)
    place(record, run.numbering.observer, hint=f"without it: CTK_DISABLE={run.id}")
