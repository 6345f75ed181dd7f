"""Programs of several processes: each trains three steps in eager and compiled, and compares.

    python -m tests.helpers.distributed_programs RANK SIZE FILE BACKEND KIND...

Each rank prints one JSON object: for each kind "close", if all losses, gradients and parameters are
as in eager, or the error.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Generator
from typing import Any, cast

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed._functional_collectives as collective
from torch import Tensor, nn
from torch._dynamo import compiled_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

STEPS = 3
WIDTH = 16
LARGE = 384
"""The width of a model whose gradients fill several buckets of a megabyte."""

MERGED = {
    "bucket_gathers.enabled": True,
    "bucket_reductions.enabled": "always",
    "overlap_collectives.enabled": True,
}

Step = Callable[[Tensor], Tensor]


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, depth: int = 3, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def compiled(function: Any, backend: Any, options: Any = None) -> Any:
    if backend is None:
        return function
    return torch.compile(function, backend=backend, options=options)


def ddp(backend: Any, optimize: bool | str) -> tuple[nn.Module, Step]:
    """Return a model of several buckets and its step; `python_reducer` needs compiled autograd."""
    cast("Any", torch._dynamo.config).optimize_ddp = optimize
    model = DistributedDataParallel(Network(2, LARGE), bucket_cap_mb=1)
    if optimize == "python_reducer":
        return model, captured_step(compiled(model, backend), backend)
    return model, plain_step(compiled(model, backend))


def fsdp(backend: Any, *, whole: bool = False) -> tuple[nn.Module, Step]:
    model = Network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        if backend is not None and not whole:
            cast("Any", block).compile(backend=backend)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, plain_step(compiled(model, backend) if whole else model)


def tensor_parallel(backend: Any) -> tuple[nn.Module, Step]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Network(2)
    plan: Any = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model, plain_step(compiled(model, backend))


def collectives(backend: Any, options: Any = None) -> tuple[nn.Module, Step]:
    """Return a model whose graph holds functional collectives and their gradients."""
    group: Any = dist.group.WORLD
    model = Network(2)

    def gather(x: Tensor) -> Tensor:
        return newest("all_gather")(x, 0, group)

    def call(x: Tensor) -> Tensor:
        first, second = model.blocks
        product = gather(first(x)).tanh() * gather(x / dist.get_world_size())
        return second(newest("reduce_scatter")(product, "sum", 0, group))

    return model, plain_step(compiled(call, backend, options))


def newest(name: str) -> Callable[..., Tensor]:
    """Return a collective with a gradient; torch 2.13 deprecates the older of its two names."""
    new = getattr(collective, f"{name}_single_autograd", None)
    return new or getattr(collective, f"{name}_tensor_autograd")


def captured_step(call: Callable[[Tensor], Tensor], backend: Any) -> Step:
    """Return a step whose backward pass compiled autograd captures, unless it is of eager."""

    def step(x: Tensor) -> Tensor:
        loss = call(x).square().mean()
        around: Any = contextlib.nullcontext()
        if backend is not None:
            around = compiled_autograd._enable(torch.compile(backend=backend))
        with around:
            loss.backward()
        return loss

    return step


def plain_step(call: Callable[[Tensor], Tensor]) -> Step:
    def step(x: Tensor) -> Tensor:
        loss = call(x).square().mean()
        loss.backward()
        return loss

    return step


KINDS: dict[str, Callable[[Any], tuple[nn.Module, Step]]] = {
    "ddp": lambda backend: ddp(backend, True),
    "ddp python_reducer": lambda backend: ddp(backend, "python_reducer"),
    "ddp no_optimization": lambda backend: ddp(backend, False),
    "fsdp2": fsdp,
    "fsdp2 whole": lambda backend: fsdp(backend, whole=True),
    "tensor parallel": tensor_parallel,
    "collectives": collectives,
    "collectives merged": lambda backend: collectives(backend, MERGED),
}


def train(kind: str, backend: Any) -> list[Tensor]:
    """Return losses, gradients and parameters of all steps, local to this rank."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, step = KINDS[kind](backend)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    shared = kind == "tensor parallel"
    torch.manual_seed(1 if shared else 1 + dist.get_rank())  # tensor parallel: one batch for all
    values: list[Tensor] = []
    for _ in range(STEPS):
        values.append(step(torch.randn(8, LARGE if "ddp" in kind else WIDTH)).detach())
        values += [local(p.grad) for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
        values += [local(p) for p in model.parameters()]
    return values


def local(value: Tensor) -> Tensor:
    value = value.to_local() if isinstance(value, DTensor) else value
    return value.detach().clone()


def compare(kind: str, backend: Any) -> str:
    try:
        torch.testing.assert_close(train(kind, backend), train(kind, None))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return "close"


@contextlib.contextmanager
def process_group(rank: int, size: int, file: str) -> Generator[None]:
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    rank, size, file, backend, *kinds = sys.argv[1:]
    torch.set_num_threads(1)
    with process_group(int(rank), int(size), file):
        print(json.dumps({kind: compare(kind, backend) for kind in kinds}))


if __name__ == "__main__":
    main()
