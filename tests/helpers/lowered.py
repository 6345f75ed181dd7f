"""Programs whose graphs are lowered and run in the reference interpreter, next to eager.

Graphs come as they do in a compile: from AOTAutograd, forward and backward apart, nothing
decomposed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves

from ctk.compiler.codegen.select import generate
from ctk.compiler.dispatch.autograd import Stages, dispatch
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import LibraryCall, Program
from ctk.compiler.lowering.lower import LoweringOptions, lower
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed

VIEW = "it is a view"
Call = Callable[..., Any]


@dataclass(slots=True)
class Lowered:
    """What was lowered while a program was compiled: each graph and its program.

    Attributes:
        codegen: Which code generator makes the kernels; empty for the interpreter.
    """

    codegen: str = ""
    options: LoweringOptions = field(default_factory=LoweringOptions)
    graphs: list[tuple[GraphModule, Program]] = field(
        default_factory=list[tuple[GraphModule, Program]]
    )

    @property
    def library(self) -> list[LibraryCall]:
        """The calls of the library that compute something."""
        steps = [step for _, program in self.graphs for step in program.steps]
        return [step for step in steps if isinstance(step, LibraryCall) and step.why != VIEW]

    @property
    def operators(self) -> set[str]:
        """The operators that were no kernels."""
        return {str(call.node.target) for call in self.library}

    def compile(self, gm: GraphModule, inputs: Sequence[object]) -> Call:
        """Compile a captured graph; what it returns is computed by the interpreter."""
        make = self._generated if self.codegen else self._interpreted
        stages = Stages(lambda *_: None, *[make] * 3, aot.plain_partition)
        return dispatch(gm, inputs, stages)

    def _generated(self, gm: GraphModule, inputs: Sequence[object]) -> Boxed:
        self.graphs.append((gm, lower(gm, self.options)))
        kernels = {"exact": self.options.exact}
        config = Config(codegen=self.codegen, fallback=(), passes={"kernels": kernels})
        return generate(gm, inputs, "forward", Numbering(config=config))

    def _interpreted(self, gm: GraphModule, _: Sequence[object]) -> Boxed:
        program = lower(gm, self.options)
        self.graphs.append((gm, program))
        return boxed(lambda args: run_program(gm, program, args, check=True))


def results_of(call: Call, inputs: Sequence[Any]) -> list[Any]:
    """Return what a call returns, its inputs afterwards, and the gradients of all of it."""
    given = [clone_of(each) for each in inputs]
    with torch.set_grad_enabled(any(map(wants_gradient, given))):
        out = [each for each in tree_leaves(call(*given)) if isinstance(each, Tensor)]
    sources = [each for each in given if wants_gradient(each)]
    targets = [each for each in out if each.requires_grad]
    gradients: Sequence[Any] = ()
    if sources and targets:
        weights = [_weights(each) for each in targets]
        gradients = torch.autograd.grad(targets, sources, weights, allow_unused=True)
    after = [each for each in given if isinstance(each, Tensor)]
    return [*(each.detach() for each in (*out, *after)), *gradients]


def clone_of(value: Any) -> Any:
    """Return a leaf like a tensor, strides included; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return copy.copy_(value.detach()).requires_grad_(value.requires_grad)


def wants_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def compare(
    call: Call,
    *inputs: Any,
    dynamic: bool = False,
    options: LoweringOptions | None = None,
    codegen: str = "",
) -> Lowered:
    """Compare a lowered program with eager: values, types, strides, gradients, written inputs.

    Args:
        call: A function or a module of tensors and numbers.
        inputs: For it.
        dynamic: Capture it with Dynamo, sizes as symbols.
        options: Of the lowering.
        codegen: Which code generator makes the kernels; empty for the interpreter.
    """
    lowered = Lowered(codegen, options or LoweringOptions())
    expected = results_of(call, inputs)
    if dynamic or isinstance(call, nn.Module):
        torch.compiler.reset()
        compiled = torch.compile(call, backend=lowered.compile, dynamic=dynamic, fullgraph=True)
    else:
        compiled = lowered.compile(captured(call, len(inputs)), [clone_of(i) for i in inputs])
    found = results_of(compiled, inputs)
    assert len(found) == len(expected)
    for mine, eager in zip(found, expected, strict=True):
        assert_close(mine, eager)
    return lowered


def assert_close(mine: Tensor | None, eager: Tensor | None) -> None:
    """Compare by torch's tolerances, those of 16 bits taken from the error of one rounding."""
    if mine is None or eager is None:
        assert mine is eager
        return
    narrow = eager.is_floating_point() and eager.dtype.itemsize < 4
    tolerance = {"rtol": 2.0**-6, "atol": 1e-3} if narrow else {}
    strided = eager.numel() > 0
    torch.testing.assert_close(mine, eager, equal_nan=True, check_stride=strided, **tolerance)


def captured(call: Call, count: int) -> GraphModule:
    """Return a graph of one call, as Dynamo would capture it."""
    graph = Graph()
    inputs = [graph.placeholder(f"x{number}") for number in range(count)]

    def function(*values: object) -> tuple[Any, ...]:
        return tuple(each for each in tree_leaves(call(*values)) if isinstance(each, Tensor))

    graph.output(graph.call_function(function, tuple(inputs)))
    return GraphModule(nn.Module(), graph)


def _weights(tensor: Tensor) -> Tensor:
    """Return a gradient of a result, not the same everywhere."""
    ramp = torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float64)
    return torch.empty_like(tensor).copy_(ramp.reshape(tensor.shape))
