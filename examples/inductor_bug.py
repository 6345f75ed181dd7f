"""A residual network for Inductor's own planted bug: `cpp.inject_relu_bug_TESTING_ONLY`.

    ctk diagnose examples/inductor_bug.py --target inductor \\
        --config cpp.inject_relu_bug_TESTING_ONLY=accuracy

The option makes the C++ code of `relu` wrong: `compile_error` and `runtime_error` break it,
`accuracy` adds one to its result. The network has one relu, in the middle of some two hundred
operations.
"""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, *, activation: type[nn.Module]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gate = nn.Linear(width, 2 * width)
        self.activation = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        hidden = self.activation(self.up(y)) * torch.sigmoid(self.gate(y))
        return x + 0.5 * self.down(hidden) - 0.01 * x.mean(dim=-1, keepdim=True)


class Network(nn.Module):
    def __init__(self, width: int = 32, depth: int = 14) -> None:
        super().__init__()
        activations = [nn.ReLU if i == depth // 2 else nn.Tanh for i in range(depth)]
        self.blocks = nn.Sequential(*(Block(width, activation=a) for a in activations))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.head(self.blocks(x)), dim=-1)


def model() -> nn.Module:
    torch.manual_seed(0)
    return Network().eval()


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(8, 32),)
