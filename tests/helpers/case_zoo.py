"""Programs of many kinds, captured by Dynamo as cases: shared by the tests of the case formats."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.roles import roles_of

Program = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and its inputs."""

    name: str
    run: Program
    inputs: Sequence[object]
    dynamic: bool = False


def capture(run: Program, *inputs: object, dynamic: bool = False) -> list[Case]:
    """Return the graphs that Dynamo captures, with the values of their inputs."""
    cases: list[Case] = []

    def backend(gm: GraphModule, example: Sequence[object]) -> Callable[..., object]:
        number, dynamic = len(cases), describe_dynamic(gm)
        cases.append(
            Case(gm, (), name=f"graph{number}", dynamic=dynamic, roles=roles_of(gm, example))
        )

        def first(*args: object) -> object:
            old = cases[number]
            if not old.inputs:
                cases[number] = dataclasses.replace(old, inputs=args)
            return gm(*args)

        return first

    torch.compiler.reset()
    with warnings.catch_warnings():
        # Dynamo makes a bare autograd.Function for itself, about which torch 2.13 warns
        warnings.filterwarnings("ignore", "<class 'torch.autograd.function.Function'> should not")
        torch.compile(run, backend=backend, dynamic=True if dynamic else None)(*inputs)
    torch.compiler.reset()
    return cases


def nested_cond(x: torch.Tensor) -> torch.Tensor:
    def positive(y: torch.Tensor) -> torch.Tensor:
        return torch.cond(y.sum() > 1, lambda z: z.sin() * 2, lambda z: z.cos(), (y,))

    return torch.cond(x.sum() > 0, positive, lambda y: y - 1, (x,))


def loop(x: torch.Tensor) -> object:
    start = torch.tensor(0)
    step = (start, x)
    return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), step)


def regions(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        y = x @ x.real.t()
    with torch.no_grad():
        z = y.sin()
    return z + y


def inference(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return x.sin()


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: F.gelu(y).sin(), x, use_reentrant=False)


def symbolic(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, x.shape[0] * 2).sum() + x.shape[0] + math.inf


def indexing(x: torch.Tensor) -> torch.Tensor:
    y = x[:, :4][..., None].clone()
    y[0] = 3
    y[1:, ::2] *= -1.5
    low = torch.full((4,), -math.inf, device=x.device)
    return y.to(torch.float64).sum(dim=-1, keepdim=True) + low[None, :, None]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


class Buffered(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.register_buffer("table", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.linear(x))) * self.table


def samples() -> list[Sample]:
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    leaf = torch.randn(4, 8, requires_grad=True)
    return [
        Sample("nested_cond", nested_cond, [x]),
        Sample("loop", loop, [x]),
        Sample("regions", regions, [x]),
        Sample("inference", inference, [x]),
        Sample("checkpointed", checkpointed, [leaf]),
        Sample("symbolic", symbolic, [x], dynamic=True),
        Sample("indexing", indexing, [x]),
        Sample("buffered", Buffered(), [x]),
        Sample("autograd_function", lambda y: Square.apply(y) + 1, [leaf]),
        Sample("vmap", lambda y: torch.vmap(lambda row: row.sin().sum())(y), [x]),
        Sample("func_grad", lambda y: torch.func.grad(lambda z: z.sin().sum())(y), [x]),
        Sample("random", lambda y: F.dropout(y, 0.5) + torch.rand_like(y), [x]),
        Sample("attention", lambda y: F.scaled_dot_product_attention(y, y, y), [x[None]]),
    ]
