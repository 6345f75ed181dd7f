"""Functions whose Triton kernels are under review, and are compiled for sm_90 without a GPU.

`python -m tests.helpers.triton_programs` compiles them all, and prints a line for each kernel.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.nn import functional as F

from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.variants import TritonOptions, Variants
from ctk.compiler.lowering.ir import Kernel, Program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.passes.joint.philox import DRAW
from ctk.compiler.torch_compat.gpu import triton_launch
from tests.helpers.flex_programs import PROGRAMS as FLEX
from tests.helpers.flex_programs import gradients, operator_call
from tests.helpers.triton_kernels import fused

HALF = torch.bfloat16


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (1024,), weight, bias)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    return x + y.t()


def stack_transposed(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x.t() + y, x.t() * 2), -1)


def sum_transposed(x: Tensor, y: Tensor) -> Tensor:
    return (x * y.t()).sum(1)


def variance(x: Tensor) -> Tensor:
    return x.var()


def column_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def embedding(weight: Tensor, at: Tensor) -> Tensor:
    return weight[at] * 2


def draw(seeds: Tensor, x: Tensor) -> Tensor:
    return torch.where(DRAW(seeds, 0, [4096, 1024], "uniform", torch.float32) > 0.1, x, 0.0)


def padded(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2)) + 1


PROGRAMS: dict[
    str, tuple[Callable[..., Tensor], tuple[tuple[tuple[int, ...], torch.dtype], ...]]
] = {
    "bias_gelu": (bias_gelu, (((4096, 1024), HALF), ((1024,), HALF))),
    "layer_norm": (layer_norm, (((4096, 1024), HALF), ((1024,), HALF), ((1024,), HALF))),
    "softmax_of_long_rows": (softmax, (((2048, 50257), torch.float32),)),
    "transpose_add": (transpose_add, (((4096, 4096), torch.float32),) * 2),
    "stack_transposed": (stack_transposed, (((4096, 4096), HALF),) * 2),
    "sum_transposed": (sum_transposed, (((4096, 4096), HALF),) * 2),
    "variance_of_all": (variance, (((4096, 1000), torch.float32),)),
    "column_sum": (column_sum, (((8192, 1024), torch.float32),)),
    "embedding": (embedding, (((5000, 768), HALF), ((4096,), torch.int64))),
    "draw": (draw, (((4,), torch.int64), ((4096, 1024), torch.float32))),
    "padded": (padded, (((4096, 1021), torch.float32),)),
}
"""Function, and the sizes and types of its inputs."""


def program(name: str) -> Program:
    """Return the fused program of a function, for a GPU."""
    function, inputs = PROGRAMS[name]
    with FakeTensorMode():
        tensors = [torch.empty(size, dtype=dtype) for size, dtype in inputs]
        made = fused(function, *tensors)
    device = torch.device("cuda:0")
    steps = [replace(s, device=device) if isinstance(s, Kernel) else s for s in made.steps]
    return replace(made, steps=steps)


def variants_of(made: Program, options: TritonOptions, setting: KernelSetting) -> list[Variants]:
    """Return the kernels of a program, those that are split as their parts."""
    found: list[Variants] = []
    for step in made.steps:
        if isinstance(step, Kernel):
            found += Variants(step, made.buffers, options, setting).parts()
    return found


def attention() -> list[Program]:
    """Return the programs of attention and of its gradient, for a GPU."""
    flex = next(each for each in FLEX if each.name == "alibi_causal")
    found: list[Program] = []

    def keep(gm: GraphModule, _: object) -> Callable[..., object]:
        made = lower(gm)
        device = torch.device("cuda:0")
        steps = [replace(s, device=device) for s in made.steps if isinstance(s, Kernel)]
        found.append(replace(made, steps=steps))
        return make_boxed_func(gm.forward)

    inputs = [*flex.inputs(HALF)[:3], *flex.inputs()[3:]]
    torch.compiler.reset()
    call = torch.compile(operator_call(flex), backend=aot_autograd(fw_compiler=keep))
    gradients(call, inputs)
    return found


def main() -> None:
    """Compile every program, as it is and with checks of bounds."""
    for made in attention():
        for variants in variants_of(made, TritonOptions(), KernelSetting()):
            aligned = (True,) * len(variants.arguments.buffers)
            code = variants.compiled(variants.layout_for(()), aligned, 90)
            print("attention", code.name, len(code.cubin))
    for name in PROGRAMS:
        for debug, exact in ((False, False), (True, False), (False, True)):
            options, setting = TritonOptions(debug=debug), KernelSetting(exact=exact)
            for variants in variants_of(program(name), options, setting):
                aligned = (True,) * len(variants.arguments.buffers)
                code = variants.compiled(variants.layout_for(()), aligned, 90)
                assert code.hidden == 2, code.hidden
                print(name, code.name, len(code.cubin))


if __name__ == "__main__":
    triton_launch.require()
    main()
