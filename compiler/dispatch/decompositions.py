"""Decompositions as passes of the stage `dispatch`: each has a name, and can be vetoed.

While AOTAutograd traces a graph it replaces operators by simpler ones. Each replaced operator is a
pass, `dispatch/decompose.aten.gelu.default`, for all its nodes. Vetoed, it stays whole: a compiler
without a lowering of it calls the operator itself.

The record has no graphs before and after (one trace makes the new graph), but the operands and
results of each application, so that a check can run the operator beside them.

    x ── gelu ── y    traced as    x ── mul ── erf ── add ── mul_2
                                   Decomposed(aten.gelu, (x,), {}, mul_2, captured="y")

The trace is hooked only with an observer, or if `Config.disable` names a step of dispatch.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.error_place import place
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import Decomposed, ErrorRecord, PassId, PassRecord, TracedValue
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.aot import decompositions
from ctk.compiler.torch_compat.aot.decompositions import Name, Values
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.inductor.patch_sites import wrap_site

Operator = Callable[..., object]


@dataclass(slots=True)
class Decompositions:
    """The decompositions of one compile; a `Watcher` of the trace.

    Attributes:
        is_elsewhere: Returns whether the current trace is not of the user's graph.
        kept: The operators whose decomposition was vetoed.
    """

    numbering: Numbering
    is_elsewhere: Callable[[], bool] = lambda: False
    kept: set[Operator] = field(default_factory=set[Operator])
    _graph: GraphModule | None = None
    _last: str = ""
    _allowed: dict[str, bool] = field(default_factory=dict[str, bool])
    _ids: dict[str, PassId] = field(default_factory=dict[str, PassId])
    _nodes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _made: dict[str, list[Decomposed]] = field(default_factory=dict[str, list[Decomposed]])
    _applied: dict[str, None] = field(default_factory=dict[str, None])
    _errors: list[tuple[str, Exception]] = field(default_factory=list[tuple[str, Exception]])

    @contextmanager
    def watch(self, graph: GraphModule) -> Generator[None]:
        """Watch the trace of a graph until `report` is called, or the region ends.

        An exception of a decomposition gets its place; after any exception the decompositions so
        far are reported. A nested trace is part of the outer one.
        """
        if self._graph is not None:
            yield
            return
        self._graph, self._last = copy_graph_module(graph, lazy=True), ""
        try:
            with decompositions.decompositions_watched(self):
                yield
        except Exception as error:
            self._place(error)
            self.report()
            raise
        finally:
            self._graph = None

    @contextmanager
    def hook(self) -> Generator[None]:
        """Watch all AOTAutograd traces of this thread in the region; needs the compile lock."""
        thread = threading.get_ident()

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def trace(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
                # Another thread has its own compile, without the lock.
                if threading.get_ident() != thread or self.is_elsewhere():
                    return original(gm, *args, **kwargs)
                if not self.may_functionalize():
                    return gm
                with self.watch(gm):
                    return original(gm, *args, **kwargs)

            return trace

        with wrap_site(decompositions.trace_site(), wrap):
            yield

    def may_functionalize(self) -> bool:
        """Return whether the graph may be traced; otherwise it runs as it was captured."""
        return self.numbering.allow_pass(PassId("dispatch", "functionalize"))

    def report(self) -> None:
        """Report each decomposition to the observer, nested ones first, and end the watch."""
        graph, self._graph, observer = self._graph, None, self.numbering.observer
        if graph is None or observer is None:
            return
        vetoed = [name for name, is_allowed in self._allowed.items() if not is_allowed]
        for name in (*self._applied, *vetoed):
            record = PassRecord(self._ids[name], "reassociates", graph, graph)
            nodes = tuple(dict.fromkeys(self._nodes[name]))
            made = tuple(self._made[name])
            observer.on_pass(replace(record, vetoed=name in vetoed, nodes=nodes, decomposed=made))

    def is_active(self) -> bool:
        return self._graph is not None and not self.is_elsewhere()

    def allow(self, operator: Operator) -> bool:
        name = str(operator)
        if name not in self._ids:
            self._ids[name] = self.numbering.pass_id("dispatch", f"decompose.{name}")
            self._nodes[name], self._made[name] = [], []
        if name != self._last:  # asks again, so that the last question is about the running one
            self._last = name
            is_allowed = self.numbering.allow_pass(self._ids[name])
            self._allowed.setdefault(name, is_allowed)
        if not self._allowed[name]:
            self.kept.add(operator)
        return self._allowed[name]

    def on_applied(self, operator: Operator, captured: str | None, values: Values | None) -> None:
        name = str(operator)
        self._applied[name] = None
        self._nodes[name] += [captured] if captured else []
        if values is not None:
            args, kwargs, results = (graphs.tree_map(_by_node, value) for value in values)
            self._made[name].append(Decomposed(operator, args, kwargs, results, captured))

    def on_failed(self, operator: str, error: Exception) -> None:
        self._errors.append((operator, error))

    def _place(self, error: Exception) -> None:
        """Record the place of the innermost decomposition that raised, which failed first."""
        chain: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = getattr(cause, "inner_exception", None) or cause.__cause__
        for operator, raised in self._errors:
            if raised in chain:
                record = ErrorRecord(raised, "dispatch", self._ids[operator], graph=self._graph)
                place(record, self.numbering.observer)
                return


def is_wanted(numbering: Numbering) -> bool:
    """Return whether decompositions are observed or one is vetoed."""
    named = ("dispatch/", "decompose.", "meta.")
    return numbering.observer is not None or any(
        name.startswith(named) for name in numbering.config.disable
    )


def _by_node(value: object) -> object:
    return TracedValue(str(value)) if isinstance(value, Name) else value
