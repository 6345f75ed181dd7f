"""Train under FSDP2 (`fully_shard`), each rank watched by ctk:

torchrun --standalone --nproc-per-node 2 --no-python ctk run examples/ecosystem/with_fsdp2.py

Each block is compiled by itself, before it is sharded: its graph then holds no communication.
"""

import sys

import torch
import torch.distributed as dist
from planted import options
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(*(Block(16) for _ in range(2)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in network:
        block.compile(backend="ctk", options=options(sys.argv))
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())  # each rank has its own data
    for _ in range(3):
        network(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
