"""The calling convention of compiled graphs.

Boxed: the callable takes one list, empties it as soon as it has read it, so that an input dies with
its last use, and returns what the graph's output node holds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast


class BoxedCallable(Protocol):
    """A compiled graph. AOTAutograd recognises the convention by `_boxed_call`."""

    _boxed_call: bool
    ctk_source: Callable[[], str]
    """The generated code; made on request only, because printing a large graph takes long."""

    def __call__(self, args: list[Any]) -> Sequence[object]: ...


def check_count(args: Sequence[object], wanted: int) -> None:
    """Raise `TypeError` unless a boxed callable got as many inputs as its graph takes."""
    if len(args) != wanted:
        raise TypeError(f"the compiled graph takes {wanted} inputs, got {len(args)}")


def as_boxed(
    run: Callable[[list[Any]], Sequence[object]], source: Callable[[], str]
) -> BoxedCallable:
    """Mark a function of one list as a boxed callable, and say how to get its code."""
    vars(run).update(_boxed_call=True, ctk_source=source)
    return cast("BoxedCallable", run)
