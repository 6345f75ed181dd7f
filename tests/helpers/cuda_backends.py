"""Dynamo backends for tests on a GPU: right, wrong, and ones that break the device or take all."""

from collections.abc import Callable

import torch
from torch.fx import GraphModule

Compiled = Callable[..., object]


def right(gm: GraphModule, inputs: list[object]) -> Compiled:
    return gm.forward


def wrong(gm: GraphModule, inputs: list[object]) -> Compiled:
    return lambda *args: tuple(value * 1.5 for value in gm(*args))


def illegal_access(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Write far outside of all memory, as a kernel with a wrong index does."""

    def call(*args: object) -> object:
        result = gm(*args)
        far = torch.cuda._compile_kernel(
            'extern "C" __global__ void far(float* x) { x[1LL << 44] = 1.0f; }', "far"
        )
        far((1, 1, 1), (1, 1, 1), (result[0],))
        return result

    return call


def failed_assertion(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Index out of range: a kernel of torch's own stops with an assertion."""

    def call(*args: object) -> object:
        result = gm(*args)
        result[0].flatten()[torch.tensor([1 << 20], device="cuda")] = 1.0
        return result

    return call


def takes_memory(gm: GraphModule, inputs: list[object]) -> Compiled:
    def call(*args: object) -> object:
        blocks = [bytearray(b"x") * (1 << 28) for _ in range(80)]
        assert blocks
        return gm(*args)

    return call


def forgets_assertion(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Bring every index into its range, where the program itself checks it."""

    def call(*args: object) -> object:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        length = next(each.shape[0] for each in tensors if each.is_floating_point())
        return gm(*(x if x.is_floating_point() else x.clamp(0, length - 1) for x in tensors))

    return call
