"""Passes over a program: their rewrites have numbers, may be vetoed, and are announced.

A fusion that is left out lets others happen that were none before, so what is asked would depend on
the answers. Such a pass is planned first, with everything allowed: its rewrites get their numbers.
Where one is vetoed the pass runs again, and does nothing but what is left of the plan. So the n-th
rewrite is the same one in every compile, whatever is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from torch.fx import GraphModule

from ctk.compiler.error_place import place
from ctk.compiler.lowering.ir import Allow, Program
from ctk.compiler.observe import ErrorRecord, PassId, RewriteId, RewriteRecord, is_observers
from ctk.compiler.observe import PassRecord as Record
from ctk.compiler.rewriting.numbering import Numbering

Run: TypeAlias = Callable[[Allow], Program]


@dataclass(slots=True)
class Passes:
    """Runs passes of the stage `lowered`.

    Attributes:
        numbering: That of the compile.
        graph: The graph that is compiled, as records hold it.
    """

    numbering: Numbering
    graph: GraphModule

    def run(self, name: str, run: Run) -> Program:
        """Run a pass that asks for the same rewrites whatever the answers are."""
        return self._announced(name, lambda asked: run(asked.allow), run)

    def planned(self, name: str, run: Run) -> Program:
        """Run a pass whose rewrites depend on each other."""

        def in_two_steps(asked: _Asked) -> Program:
            plan: dict[str, Sequence[str]] = {}
            program = run(lambda rule, nodes: plan.setdefault(rule, nodes) is nodes)
            allowed = {_pair(rule) for rule, nodes in plan.items() if asked.allow(rule, nodes)}
            if len(allowed) == len(plan):
                return program
            return run(lambda rule, _: _pair(rule) in allowed)

        return self._announced(name, in_two_steps, run)

    def _announced(self, name: str, act: Callable[[_Asked], Program], run: Run) -> Program:
        started = time.perf_counter()
        asked = _Asked(self.numbering, self.numbering.pass_id("lowered", name))
        vetoed = not self.numbering.allow_pass(asked.id)
        try:
            program = run(lambda *_: False) if vetoed else act(asked)
        except Exception as error:
            if not is_observers(error):
                place(asked.error(error, self.graph), self.numbering.observer)
            raise
        if self.numbering.observer is not None:
            seconds = time.perf_counter() - started
            made, graph = tuple(asked.records), self.graph
            record = Record(asked.id, "reassociates", graph, graph, made, vetoed, seconds)
            self.numbering.observer.on_pass(record)
        return program


@dataclass(slots=True)
class _Asked:
    """What one run of a pass wanted to do."""

    numbering: Numbering
    id: PassId
    records: list[RewriteRecord] = field(default_factory=list[RewriteRecord])
    last: RewriteId | None = None
    nodes: tuple[str, ...] = ()

    def allow(self, rule: str, nodes: Sequence[str]) -> bool:
        """Number a rewrite, and ask whether it may happen."""
        self.last, self.nodes = self.numbering.rewrite_id(self.id, rule), tuple(nodes)
        allowed = self.numbering.allow_rewrite(self.last)
        if self.numbering.observer is not None:
            self.records.append(RewriteRecord(self.last, self.nodes, vetoed=not allowed))
        return allowed

    def error(self, error: Exception, graph: GraphModule) -> ErrorRecord:
        """Return an exception with the rewrite that was being made."""
        node = self.nodes[0] if len(self.nodes) == 1 else None
        return ErrorRecord(error, "lowered", self.id, self.last, node=node, graph=graph)


def _pair(rule: str) -> str:
    """Return what a rewrite is about: the kernels of `merge a -> b`, however they become one."""
    return " ".join(rule.split(" ")[-3:])
