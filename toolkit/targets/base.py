"""The contract of a target: anything that compiles an FX graph and can be put under test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch.fx import GraphModule

from ctk.compiler.observe import Observer

Compiled = Callable[..., object]
"""What a compile returns: called with the graph's inputs as positional arguments, returns the
graph's output.
"""


class CompileFn(Protocol):
    """How a target compiles."""

    def __call__(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Compiled: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A compiler under test.

    Attributes:
        name: The spec that users write and manifests store: `inductor`, `my_backends:fancy`.
        compile: Compiles one captured graph. May change `gm` in place: callers hand it a copy.
        check_config: Raises `ConfigError` for a key or value that the target does not know.
        needs: Modules that a repro must import besides torch (empty for targets that ship with
            torch).
    """

    name: str
    compile: CompileFn
    check_config: Callable[[Mapping[str, object]], None]
    needs: tuple[str, ...] = ()
