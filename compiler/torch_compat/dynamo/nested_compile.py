"""Pass a graph to a compiler inside a compile of Dynamo, even if Dynamo cannot capture it again.

Dynamo writes some operators that it does not read (`autograd_function_apply`, `flex_attention`, a
hook as a sub-graph). So it captures a stand-in with the same inputs, and the backend gets the given
graph in place of the stand-in's:

    given     l_x_ -> autograd_function_apply(fwd, bwd, l_x_) -> out
    stand-in  l_x_ -> detach                                      captured by Dynamo, thrown away

The compiler gets the same as in the user's program: real inputs, symbolic sizes, and Dynamo's
tracing context. There are no guards: a compiled program is for one set of inputs.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule


class Handed(torch.nn.Module):
    """A graph that is compiled unchanged at its first call.

    Args:
        sizes: For each input that is a symbolic size: its position, and position and dimension of
            the tensor that has it.
    """

    def __init__(
        self,
        graph: GraphModule,
        backend: Any,
        options: dict[str, Any] | None,
        sizes: Mapping[int, tuple[int, int]],
    ) -> None:
        super().__init__()
        self._orig_mod = graph
        self._compile = _compiler(backend, options)
        self._sizes = sizes
        self._call: Any = None

    def forward(self, *inputs: object) -> object:
        """Compile, the first time, and call."""
        if self._call is None:
            tensors = list({id(each): each for each in inputs if torch.is_tensor(each)}.values())
            swapped = _swapping(self._compiled, inputs)
            torch.compile(_stand_in, backend=swapped, fullgraph=True)(tensors)
        return cast("Any", self._call)(*inputs)

    def _compiled(
        self, inputs: Sequence[object], symbolic: Callable[[object, int], object]
    ) -> None:
        given = list(inputs)
        for index, (owner, dim) in self._sizes.items():
            given[index] = symbolic(inputs[owner], dim)
        self._call = self._compile(self._orig_mod, given)


def _stand_in(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in tensors]


def _swapping(compile_ours: Callable[..., None], inputs: Sequence[object]) -> Callable[..., Any]:
    """Return the backend of the stand-in; it compiles our graph within Dynamo's context."""

    def backend(graph: GraphModule, examples: Sequence[object]) -> Callable[..., object]:
        nodes = zip(graph.graph.find_nodes(op="placeholder"), examples, strict=True)
        fakes = {id(value): node.meta.get("example_value") for node, value in nodes}

        def symbolic(tensor: Any, dim: int) -> object:
            return fakes.get(id(tensor), tensor).shape[dim]

        compile_ours(inputs, symbolic)
        return graph.forward

    return backend


def _compiler(backend: Any, options: dict[str, Any] | None) -> Callable[..., Any]:
    """Return the function of a graph and inputs that `torch.compile` makes."""
    if backend == "inductor":
        return torch._TorchCompileInductorWrapper(None if options else "default", options, None)
    return torch._TorchCompileWrapper(backend, None, options, None)
