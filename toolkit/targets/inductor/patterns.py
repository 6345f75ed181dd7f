"""Inductor's pattern matches as rewrites: one match, one rewrite, named after its function.

Each entry of a pattern table is guarded while the table is applied to the user's graph: its
match, its check and its application. A match that the observer refuses counts as not matching. An
exception in the match or in the check is an attempt of its own, so that it has a number and a
veto avoids it.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch.fx import Graph, Node

from ctk.compiler.fx.same import state_of
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Attempt, Frame
from ctk.toolkit.targets.inductor.regions import fail_pass
from ctk.toolkit.targets.inductor.snapshot import extract_lowered_body, remember_lowered


def rule_name(entry: Any) -> str:
    """Return `family.rule` of a pattern entry: the module and the function that define the pattern.

    Cases, first that applies:
        1. a replacement traced from a search function: `fuse_attention._sfdp_pattern_2`;
        2. an entry with a handler, with the function that made it, if any:
          `joint_graph.pointless_convert`;
        3. an entry that only has a name, then the name;
        4. otherwise the class of its pattern and the operators that it starts from.
    """
    search = _unwrap_partial(_find_closed_over(entry.extra_check, "search_fn"))
    if hasattr(search, "__name__"):
        return f"{_family(search)}.{search.__name__}"
    handler = _unwrap_partial(getattr(entry, "handler", None))
    if hasattr(handler, "__qualname__"):
        parts = [part for part in handler.__qualname__.split(".") if part != "<locals>"]
        return ".".join([_family(handler), *parts])
    named = getattr(entry, "pattern_name", None)
    starts = "+".join(str(target) for target in getattr(entry.pattern, "fns", ()))
    return str(named) if named else f"{type(entry.pattern).__name__}.{starts}"


def _unwrap_partial(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _family(function: Any) -> str:
    return str(function.__module__).rpartition(".")[2]


def _find_closed_over(function: Any, name: str) -> object:
    """Return a variable that a function closes over, or None."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells or name not in code.co_freevars:
        return None
    return cells[code.co_freevars.index(name)].cell_contents


@contextmanager
def guard_table(compile_record: CompileRecord, frame: Frame, table: Any) -> Generator[None]:
    """Guard all entries of a pattern table; restore them afterwards, also after an exception."""
    entries = {id(entry): entry for group in table.patterns.values() for entry in group}
    with ExitStack() as undo:
        for entry in entries.values():
            guard = _Guard(compile_record, frame, entry)
            undo.callback(_set(entry, "extra_check", partial(guard.check, entry.extra_check)))
            undo.callback(_set(entry, "apply", partial(guard.apply, entry.apply)))
            undo.callback(_set(entry.pattern, "match", partial(guard.match, entry.pattern.match)))
        yield


def _set(target: Any, name: str, value: object) -> Callable[[], None]:
    """Set an attribute of one object; return the function that restores it."""
    had, old = name in vars(target), vars(target).get(name)
    setattr(target, name, value)
    return partial(setattr, target, name, old) if had else partial(delattr, target, name)


class _Guard:
    """Stands before one pattern entry while its table is applied."""

    __slots__ = ("compile_record", "entry", "frame", "rule")

    def __init__(self, compile_record: CompileRecord, frame: Frame, entry: Any) -> None:
        self.compile_record, self.frame, self.entry = compile_record, frame, entry
        self.rule: str = rule_name(entry)

    def match(self, original: Callable[..., Any], node: Node) -> Any:
        """Match; an exception is an attempt that a veto turns into no match."""
        if not self.compile_record.is_watching():
            return original(node)
        try:
            return original(node)
        except Exception as error:
            self._attempt(error, (node.name,))
            return inductor.no_match(f"{self.rule}: vetoed")

    def check(self, original: Callable[..., Any], match: Any) -> Any:
        """Check a match; an accepted match is a rewrite that may be refused."""
        if not self.compile_record.is_watching():
            return original(match)
        try:
            accepted = original(match)
        except Exception as error:
            self._attempt(error, _names(match))
            return False
        if not inductor.is_true(accepted):
            return accepted
        return self._begin(_names(match))

    def apply(self, original: Callable[..., Any], match: Any, graph: Graph, node: Node) -> None:
        """Apply a match that was allowed."""
        if not self.compile_record.is_watching():
            original(match, graph, node)
            return
        nodes = _names(match)
        handler = inductor.is_handler_entry(self.entry)
        before = state_of(self.frame.root, self.frame.swaps) if handler else None
        lowered = self._extract_body(match, node)
        try:
            original(match, graph, node)
        except Exception as error:
            self._fail(error, nodes)
            raise
        if lowered is not None:
            _mark(graph, match, lowered)
        if before is None or state_of(self.frame.root, self.frame.swaps) != before:
            self.compile_record.end_match(self.frame, nodes)

    def _begin(self, nodes: tuple[str, ...]) -> bool:
        replaces = not inductor.is_handler_entry(self.entry)
        return self.compile_record.begin_match(self.frame, Attempt(self.rule, nodes, replaces))

    def _extract_body(self, match: Any, node: Node) -> Any:
        if not inductor.is_lowering_entry(self.entry):
            return None
        return extract_lowered_body(match.nodes, node, (tuple(match.args), dict(match.kwargs)))

    def _attempt(self, error: Exception, nodes: tuple[str, ...]) -> None:
        """Count a failed match or check as a match; raise unless it is vetoed."""
        if self._begin(nodes):
            self._fail(error, nodes)
            raise error

    def _fail(self, error: Exception, nodes: tuple[str, ...]) -> None:
        run = self.frame.run
        fail_pass(
            self.compile_record,
            self.frame,
            error,
            pass_id=run.id if run else None,
            rewrite=run.pending if run else None,
            node=nodes[-1] if nodes else None,
        )


def _names(match: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.name for node in match.nodes))


def _mark(graph: Graph, match: Any, lowered: Any) -> None:
    """Find the node that a lowering pattern put in place of a match, and record the match on it."""
    for node in reversed(graph.nodes):
        target = node.target
        if isinstance(target, partial) and target.args and target.args[0] is match:
            remember_lowered(node, lowered)
            return
