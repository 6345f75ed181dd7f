"""A target whose compile is a plain function."""

from collections.abc import Callable, Mapping, Sequence

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.toolkit.targets.base import Compiled, Target


class FakeTarget(Target):
    """A target that calls `compile_graph(gm, example_inputs)`, and takes every option."""

    name = "fake"

    def __init__(self, compile_graph: Callable[..., Compiled]) -> None:
        self._compile_graph = compile_graph

    def check_config(self, config: Mapping[str, object]) -> None:
        """Take every option."""

    def compile(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Compiled:
        """Call the function."""
        return self._compile_graph(gm, example_inputs)
