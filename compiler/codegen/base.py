"""What a code generator is: a name, and a function from a graph to a boxed callable.

Boxed calling convention: the callable takes one list, empties it as soon as it has read it, so that
an input dies with its last use, and returns what the graph's output node holds. It does not say
which generator is asked: see `select.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from torch.fx import GraphModule

from ctk.compiler.observe import Stage


class BoxedCallable(Protocol):
    """A compiled graph. AOTAutograd recognises the convention by `_boxed_call`."""

    _boxed_call: bool
    ctk_source: Callable[[], str]
    """The generated code; made on request only, because printing a large graph takes long."""

    def __call__(self, args: list[Any]) -> Sequence[object]: ...


@dataclass(frozen=True, slots=True)
class CodegenOptions:
    """What a code generator is told besides the graph and its inputs.

    Attributes:
        stage: Stage under which the graph is compiled.
        name: Label of the graph in messages (`graph0_forward`).
    """

    stage: Stage = "lowered"
    name: str = "graph"


@dataclass(frozen=True, slots=True)
class Codegen:
    """A code generator.

    Attributes:
        name: What `Config.codegen` and `Config.fallback` call it.
        compile: Compiles an aten-level graph and leaves it unchanged. The example inputs are one
            value per placeholder, real or fake. Raises `CodegenUnsupported` when it cannot take the
            graph.
    """

    name: str
    compile: Callable[[GraphModule, Sequence[object], CodegenOptions], BoxedCallable]


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
