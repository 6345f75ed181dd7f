"""Limit the rounds of a candidate's loops: an edit may remove the step that ends one.

    cond:  i < 3        body:  i + 1, tanh(x)        without `i + 1`: i, tanh(x)

Rounds are counted, not timed, so that every machine refuses the same candidates. It does not end an
operator that hangs by itself, or a compiled loop.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch.fx import GraphModule
from torch.nn import Module

from ctk.compiler.errors import CtkError

LEAST_LIMIT = 20_000
"""Lower bound of the limit on calls of sub-graphs in one run: a second of `while_loop`, which makes
two calls per round."""


class Endless(CtkError):
    """The sub-graphs of a graph were called too often."""


@dataclass(slots=True)
class Rounds:
    """Counts calls of sub-graphs."""

    limit: int | None = None
    most: int = 0

    @contextmanager
    def count_calls(self) -> Generator[None]:
        """Count the calls in all eager runs of this thread inside the block."""
        token = _ROUNDS.set(self)
        try:
            yield
        finally:
            _ROUNDS.reset(token)

    def set_limit(self) -> None:
        """Set the limit to twice the most calls so far, at least `LEAST_LIMIT`."""
        self.limit = max(LEAST_LIMIT, 2 * self.most)


_ROUNDS: ContextVar[Rounds | None] = ContextVar("_ROUNDS", default=None)


@contextmanager
def limit_rounds(program: Module) -> Generator[None]:
    """Count the calls of a graph's sub-graphs inside the block, if `Rounds.count_calls` is active.

    Raises:
        Endless: They exceed the limit; raised inside the block.
    """
    rounds = _ROUNDS.get()
    if rounds is None:
        yield
        return
    inner = [
        module
        for module in program.modules()
        if isinstance(module, GraphModule) and module is not program
    ]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        rounds.most = max(rounds.most, calls)
        if rounds.limit is not None and calls > rounds.limit:
            raise Endless(f"a loop that does not end: {rounds.limit} calls of its sub-graphs")

    with ExitStack() as hooks:
        for each in inner:
            hooks.callback(each.register_forward_pre_hook(count).remove)
        yield
