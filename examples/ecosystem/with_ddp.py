"""Train under DistributedDataParallel, each rank watched by ctk:

torchrun --standalone --nproc-per-node 2 --no-python ctk run examples/ecosystem/with_ddp.py

The buckets are small, so that Dynamo's DDPOptimizer splits the graph, as it does for large models.
"""

import sys

import torch
import torch.distributed as dist
from planted import options
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Network(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        layers = [nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, width), nn.Linear(width, 1))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    parallel = DistributedDataParallel(Network(), bucket_cap_mb=1)
    compiled = torch.compile(parallel, backend="ctk", options=options(sys.argv))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())  # each rank has its own data
    for _ in range(3):
        loss = compiled(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
