"""The fusions of one graph: rewrites of the pass `lowered/fusion`, numbered, fuelled and vetoed.

A scheduler node is a loop nest or a library call. A fusion gets its number when Inductor is about
to make it. A refused one stays refused, also as part of a larger one: after `op0 + op1` was vetoed,
neither `op0 + op1` in the next round nor `op0 op2 + op1` is made, and neither has a number.

Loops that code generation writes into one function without fusing them are not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.observe import PassId, PassRecord, RewriteId, RewriteRecord
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.inductor import inductor_lowering

Names = frozenset[str]


@dataclass(slots=True)
class Fusions:
    """The fusions of one graph, made or vetoed.

    Attributes:
        numbering: That of the compile.
        named: Names of those of the given nodes that the graph has, in its order.
        is_open: Whether fusions get numbers; when the graph is lowered once more, they do not.
    """

    numbering: Numbering
    named: Callable[[tuple[Node, ...]], tuple[str, ...]]
    is_open: bool = True
    _id: PassId | None = None
    _allowed: bool = True
    _depth: int = 0
    _scouting: bool = False
    _refused: list[tuple[Names, Names]] = field(default_factory=list[tuple[Names, Names]])
    _pending: dict[tuple[Names, Names], RewriteId] = field(
        default_factory=dict[tuple[Names, Names], RewriteId]
    )
    _records: list[RewriteRecord] = field(default_factory=list[RewriteRecord])

    def can_fuse(self, first: Any, second: Any, original: Callable[[], bool]) -> bool:
        """Answer for Inductor whether two nodes may be fused."""
        if self._depth:  # a node of several asks about its parts
            return original()
        pair = (inductor_lowering.names(first), inductor_lowering.names(second))
        if not self._may_fuse() or self._is_refused(pair):
            return False
        self._depth += 1
        try:
            allowed = original()
        finally:
            self._depth -= 1
        if not allowed or self._scouting or not self.is_open or pair in self._pending:
            return allowed
        return self._ask(pair, first, second)

    def candidates(self, original: Callable[[], Any]) -> Any:
        """Let Inductor look for pairs: nothing is fused, so nothing gets a number."""
        self._scouting = True
        try:
            return original()
        finally:
            self._scouting = False

    def record_made(self, first: Any, second: Any) -> None:
        """Record a fusion that was made."""
        pair = (inductor_lowering.names(first), inductor_lowering.names(second))
        rewrite = self._pending.pop(pair, None)
        if rewrite is not None:
            self._records.append(RewriteRecord(rewrite, self._nodes(first, second)))

    def record(self, graph: GraphModule) -> PassRecord | None:
        """Return the record of the pass; None when it was never asked about."""
        if self._id is None:
            return None
        made = tuple(sorted(self._records, key=lambda record: record.id.number))
        return PassRecord(self._id, "exact", graph, graph, made, vetoed=not self._allowed)

    def _may_fuse(self) -> bool:
        if self._id is None:
            self._id = self.numbering.pass_id("lowered", "fusion")
            self._allowed = self.numbering.allow_pass(self._id)
        return self._allowed

    def _is_refused(self, pair: tuple[Names, Names]) -> bool:
        (a, b) = pair
        return any((a & c and b & d) or (a & d and b & c) for c, d in self._refused)

    def _ask(self, pair: tuple[Names, Names], first: Any, second: Any) -> bool:
        assert self._id is not None, "asked about by _may_fuse"
        rule = f"{'_'.join(sorted(pair[0]))} + {'_'.join(sorted(pair[1]))}"
        rewrite = self.numbering.rewrite_id(self._id, rule)
        if self.numbering.allow_rewrite(rewrite):
            self._pending[pair] = rewrite
            return True
        self._refused.append(pair)
        self._records.append(RewriteRecord(rewrite, self._nodes(first, second), vetoed=True))
        return False

    def _nodes(self, first: Any, second: Any) -> tuple[str, ...]:
        return self.named(inductor_lowering.origins([first, second]))
