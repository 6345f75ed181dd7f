"""Search the smallest program: drop statements by halves, then small edits, until nothing helps.

    40 statements: without 20? without 10? ...     blocks of statements, outermost blocks first
    f(g(x)) * 2 + y: f(g(x)) * 2? y? f(g(x))? ...  one edit at a time (`program_edits`)

A budget counts the first search of blocks as that for the fewest nodes, and the rest as details.

Greedy and deterministic; a candidate counts only if it is smaller and fails in the very same way.
"""

import ast
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.program.program_edits import KINDS, Edit
from ctk.toolkit.reduce.program.syntax import (
    blocks_of,
    is_readable,
    lines_of,
    number_nodes,
    number_of,
    parse_program,
    size_of,
    statements_in,
    text_of,
    without,
)
from ctk.toolkit.reduce.progress import Budget, Ledger, OutOfBudget
from ctk.toolkit.search.blocks import largest_subset
from ctk.toolkit.search.questions import run_search

Ask = Callable[[str], Judgement]
"""Judges the text of a program."""


@dataclass(frozen=True, slots=True)
class SmallProgram:
    """The smallest program found.

    Attributes:
        left: The parts for which the time was too short: `statements`, `expressions`.
        lines: For each place (line, column) of the text, the line of the given program.
    """

    text: str
    statements_before: int
    statements_after: int
    questions: int
    finished: bool
    left: tuple[str, ...] = ()
    lines: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])


def reduce_program(
    text: str,
    ask: Ask,
    budget: Budget | None = None,
    on_smaller: Callable[[str], None] = lambda text: None,
) -> SmallProgram:
    """Return the smallest program that still fails in the same way.

    Args:
        on_smaller: Called with each smaller program at once.

    Raises:
        SyntaxError: The text is not Python.
    """
    search = _Search(parse_program(text), ask, Ledger(budget or Budget()), on_smaller)
    before = statements_in(search.best)
    ledger, finished, left = search.ledger, True, tuple[str, ...]()
    try:
        search.drop_statements()
        ledger.minimal_at = time.monotonic()
        while search.edit() | search.drop_statements():
            pass
    except OutOfBudget as out:
        finished = False
        if out.name == "time":
            left = ("expressions",) if ledger.is_graph_minimal else ("statements", "expressions")
    except KeyboardInterrupt:
        finished = False
    best = search.best
    return SmallProgram(
        text_of(best), before, statements_in(best), ledger.questions, finished, left, lines_of(best)
    )


@dataclass(slots=True)
class _Search:
    best: ast.Module
    ask: Ask
    ledger: Ledger
    on_smaller: Callable[[str], None]
    known: set[str] = field(default_factory=set[str])

    def takes(self, candidate: ast.Module) -> bool:
        """Make a candidate the best if it is smaller and still fails."""
        size = size_of(candidate)
        if size[3] in self.known or size >= size_of(self.best):
            return False
        self.known.add(size[3])
        if not is_readable(candidate):
            return False
        self.ledger.charge()
        if self.ask(size[3]).verdict is not Verdict.REPRODUCES:
            return False
        self.best = number_nodes(candidate)
        self.on_smaller(size[3])
        return True

    def drop_statements(self) -> bool:
        """Drop statements, block after block; return whether something was dropped."""
        before, position = self.best, 0
        while position < len(blocks := list(_blocks(self.best))):
            self._drop_from(blocks[position])
            position += 1
        return self.best is not before

    def _drop_from(self, block: Sequence[ast.stmt]) -> None:
        """Drop statements of one block by halves, the last ones first: they read the others."""
        tree, numbers = self.best, [number_of(statement) for statement in reversed(block)]
        run_search(largest_subset(numbers), lambda gone: self.takes(without(tree, set(gone))))

    def edit(self) -> bool:
        """Try all small edits; return whether one helped."""
        helped = [self._edit(kind) for kind in KINDS]
        return any(helped)

    def _edit(self, kind: Callable[[ast.Module], Iterator[Edit]]) -> bool:
        place, helped = 0, False
        edits: Sequence[Edit] = list(kind(self.best))
        while place < len(edits):
            if self.takes(edits[place]()):
                edits, helped = list(kind(self.best)), True
            else:
                place += 1
        return helped


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a program, outermost first, except a lone `pass`."""
    for node in ast.walk(tree):
        for block in blocks_of(node):
            if not (len(block) == 1 and isinstance(block[0], ast.Pass)):
                yield block
