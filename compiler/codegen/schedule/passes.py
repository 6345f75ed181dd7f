"""Passes over a program: lowering, fusion and memory planning, as passes of the stage `lowered`.

Their rewrites (a node that becomes a kernel, two kernels that become one, a buffer that takes the
memory of another) have numbers, may be vetoed and are announced, though they change the program and
not the graph.

A vetoed fusion enables others that were impossible before, so the numbers of rewrites would depend
on the vetoes. Such a pass first runs with every rewrite allowed, which gives a numbered plan. If
one of these is vetoed the pass runs again, restricted to the rest of the plan. So the n-th rewrite
is the same one in every compile, with any vetoes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from torch.fx import GraphModule

from ctk.compiler.error_place import place
from ctk.compiler.lowering.ir import Allow, Program
from ctk.compiler.observe import (
    ErrorRecord,
    PassId,
    PassRecord,
    RewriteId,
    RewriteRecord,
    is_observers,
)
from ctk.compiler.phases import phase
from ctk.compiler.rewriting.numbering import Numbering

Run: TypeAlias = Callable[[Allow], Program]


@dataclass(slots=True)
class Passes:
    """Runs passes of the stage `lowered`."""

    numbering: Numbering
    graph: GraphModule

    def run(self, name: str, run: Run) -> Program:
        """Run a pass whose rewrites do not depend on vetoes."""
        return self._announce(name, lambda rewrites: run(rewrites.allow), run)

    def run_planned(self, name: str, run: Run) -> Program:
        """Run a pass whose rewrites depend on each other."""

        def run_in_two_steps(rewrites: _Rewrites) -> Program:
            plan: dict[str, Sequence[str]] = {}
            program = run(lambda rule, nodes: plan.setdefault(rule, nodes) is nodes)
            allowed = {_pair(rule) for rule, nodes in plan.items() if rewrites.allow(rule, nodes)}
            if len(allowed) == len(plan):
                return program
            return run(lambda rule, _: _pair(rule) in allowed)

        return self._announce(name, run_in_two_steps, run)

    def _announce(self, name: str, act: Callable[["_Rewrites"], Program], run: Run) -> Program:
        started = time.perf_counter()
        rewrites = _Rewrites(self.numbering, self.numbering.pass_id("lowered", name))
        vetoed = not self.numbering.allow_pass(rewrites.id)
        try:
            with phase("lowered", name):
                program = run(lambda *_: False) if vetoed else act(rewrites)
        except Exception as error:
            if not is_observers(error):
                place(rewrites.error(error, self.graph), self.numbering.observer)
            raise
        if self.numbering.observer is not None:
            seconds = time.perf_counter() - started
            made, graph = tuple(rewrites.records), self.graph
            record = PassRecord(rewrites.id, "reassociates", graph, graph, made, vetoed, seconds)
            self.numbering.observer.on_pass(record)
        return program


@dataclass(slots=True)
class _Rewrites:
    """The rewrites of one run of a pass."""

    numbering: Numbering
    id: PassId
    records: list[RewriteRecord] = field(default_factory=list[RewriteRecord])
    last: RewriteId | None = None
    nodes: tuple[str, ...] = ()

    def allow(self, rule: str, nodes: Sequence[str]) -> bool:
        """Number a rewrite, and return whether it is allowed."""
        self.last, self.nodes = self.numbering.rewrite_id(self.id, rule), tuple(nodes)
        allowed = self.numbering.allow_rewrite(self.last)
        if self.numbering.observer is not None:
            self.records.append(RewriteRecord(self.last, self.nodes, vetoed=not allowed))
        return allowed

    def error(self, error: Exception, graph: GraphModule) -> ErrorRecord:
        """Return an exception with the rewrite during which it was raised."""
        node = self.nodes[0] if len(self.nodes) == 1 else None
        return ErrorRecord(error, "lowered", self.id, self.last, node=node, graph=graph)


def _pair(rule: str) -> str:
    return " ".join(rule.split(" ")[-3:])
