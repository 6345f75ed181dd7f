"""The `eager` code generator: takes every graph, optimises nothing. It is the ground truth."""

from collections.abc import Sequence

from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.codegen.kernels import Codegen, one_kernel
from ctk.compiler.codegen.packing import with_packed_weights


def _compile(gm: GraphModule, example_inputs: Sequence[object]) -> BoxedCallable:
    return eager_compile(with_packed_weights(gm), example_inputs)


CODEGEN = Codegen("eager", one_kernel(_compile))
