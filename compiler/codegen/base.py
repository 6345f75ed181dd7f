"""The calling convention of compiled graphs.

Boxed: the callable takes one list, empties it as soon as it has read it, so that an input dies with
its last use, and returns the values of the graph's output node.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from ctk.compiler.errors import ArtifactError, count_of
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.python_code import PythonCode


class BoxedCallable(Protocol):
    """A compiled graph. AOTAutograd recognises the convention by `_boxed_call`."""

    _boxed_call: bool
    ctk_source: Callable[[], str]
    """The generated code; made on request only, because printing a large graph takes long."""
    ctk_data: Callable[[], CompiledGraph]
    """The graph as data, to be stored. Raises `ArtifactError` with the reason if it cannot be."""
    ctk_code: PythonCode | None
    """The Python of its schedule, with its kernels; None for other generators."""

    def __call__(self, args: list[Any]) -> Sequence[object]: ...


def check_count(args: Sequence[object], wanted: int) -> None:
    """Raise `TypeError` unless a boxed callable got as many inputs as its graph takes."""
    if len(args) != wanted:
        raise TypeError(f"the compiled graph takes {count_of(wanted, 'input')}, got {len(args)}")


def guard_count(
    run: Callable[[list[Any]], Sequence[object]], wanted: int
) -> Callable[[list[Any]], Sequence[object]]:
    """Return a function that does `check_count` first."""

    def guarded(args: list[Any]) -> Sequence[object]:
        if len(args) != wanted:
            check_count(args, wanted)
        return run(args)

    return guarded


def no_data(why: str = "the code of this generator cannot be stored") -> CompiledGraph:
    """Raise `ArtifactError`: a compiled graph has no form as data."""
    raise ArtifactError(why)


def as_boxed(
    run: Callable[[list[Any]], Sequence[object]],
    source: Callable[[], str],
    data: Callable[[], CompiledGraph] = no_data,
    code: PythonCode | None = None,
) -> BoxedCallable:
    """Mark a function of one list as a boxed callable, with its code and data."""
    vars(run).update(_boxed_call=True, ctk_source=source, ctk_data=data, ctk_code=code)
    return cast("BoxedCallable", run)
