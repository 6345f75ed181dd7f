"""A training loop that goes wrong after a thousand steps, by a pass with a bug.

The pass replaces `relu(x)` by `clamp(x, 0, 6)`, as for a network of `relu6`. It is right until an
activation exceeds 6. In this program that takes about 1,000 steps:

    CTK_CHECK_EVERY=100 ctk run examples/late_failure.py
"""

import torch
from torch import nn
from torch.fx import GraphModule

aten = torch.ops.aten


def saturate_relu(gm: GraphModule) -> None:
    """Rewrite `relu(x)` to `clamp(x, 0, 6)`."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target, node.args = aten.clamp.default, (node.args[0], 0, 6)


def main(steps: int = 1200) -> None:
    """Train a network whose activations grow."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    compiled = torch.compile(
        model, backend="ctk", options={"custom_passes": {"joint": [saturate_relu]}}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.6e-5)
    for number in range(1, steps + 1):
        loss = (compiled(torch.rand(32, 8)) - 60).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 200 == 0:
            print(f"step {number}: loss {loss:.1f}")


if __name__ == "__main__":
    main()
