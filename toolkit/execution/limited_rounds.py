"""Let no loop of a candidate run for ever: an edit may take away what its condition waits for.

    cond:  i < 3        body:  i + 1, tanh(x)        without `i + 1`: i, tanh(x)

Rounds are counted, not timed: the same candidate is refused on each machine. What it does not do:
end an operator that hangs by itself, or what a compiler has made of a loop.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch.fx import GraphModule
from torch.nn import Module

from ctk.compiler.errors import CtkError

LEAST_LIMIT = 20_000
"""How often the sub-graphs of a graph may be called in one run at least: a second of `while_loop`,
which calls two in each round."""


class Endless(CtkError):
    """The sub-graphs of a graph were called too often."""


@dataclass(slots=True)
class Rounds:
    """How often sub-graphs are called.

    Attributes:
        limit: In one run; None for as often as it likes.
        most: In any run so far.
    """

    limit: int | None = None
    most: int = 0

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count all eager runs of graphs in this thread meanwhile."""
        token = _ROUNDS.set(self)
        try:
            yield
        finally:
            _ROUNDS.reset(token)

    def hold(self) -> None:
        """Allow twice what was seen from now on, and `LEAST_LIMIT` at least."""
        self.limit = max(LEAST_LIMIT, 2 * self.most)


_ROUNDS: ContextVar[Rounds | None] = ContextVar("_ROUNDS", default=None)


@contextmanager
def rounds_limited(program: Module) -> Generator[None]:
    """Count how often the sub-graphs of a graph are called meanwhile, if anybody wants to know.

    Args:
        program: Its sub-graphs have a hook meanwhile.

    Raises:
        Endless: More often than the limit says; raised within.
    """
    rounds = _ROUNDS.get()
    if rounds is None:
        yield
        return
    inner = [
        each for each in program.modules() if isinstance(each, GraphModule) and each is not program
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
