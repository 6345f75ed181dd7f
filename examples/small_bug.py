"""Three operators and a custom pass with a bug: `ctk diagnose examples/small_bug.py`.

The pass folds the scale of a sum: `s * y + x` becomes one `add` that scales the wrong operand.
`broken_pass.py` has the same bug in a transformer encoder.
"""

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten


def fold_scale_into_add(gm: GraphModule) -> None:
    """Rewrite `add(mul(y, s), x)` to `add(y, x, alpha=s)`, which scales `x`."""
    for node in list(gm.graph.nodes):
        scaled = node.args[0] if node.target is aten.add.Tensor else None
        if isinstance(scaled, Node) and scaled.target is aten.mul.Tensor:
            value, scale = scaled.args
            with gm.graph.inserting_before(node):
                fused = gm.graph.call_function(
                    aten.add.Tensor, (value, node.args[1]), {"alpha": scale}
                )
            node.replace_all_uses_with(fused)
            gm.graph.erase_node(node)


class Residual(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x.sin() + x


def model() -> torch.nn.Module:
    return Residual()


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.linspace(-2, 2, 32),)


def config() -> dict[str, object]:
    """Options of the `ctk` target: our pass runs after the joint stage's own."""
    return {"custom_passes": {"joint": [f"{__file__}:fold_scale_into_add"]}}
