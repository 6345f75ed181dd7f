"""A transformer encoder and a pass of ours with a bug: `ctk diagnose examples/broken_pass.py`.

The pass folds the scale of a residual branch into the addition: `x + s * y` becomes one `add` with
`alpha=s`. It is right for `x + s * y`. For `s * y + x` it scales the wrong operand, and one line of
the model is written that way round: one of its eight residual additions comes out wrong.
"""

import torch
from torch import nn
from torch.fx import GraphModule, Node

aten = torch.ops.aten


def fold_scale_into_add(gm: GraphModule) -> None:
    """Rewrite `add(x, mul(y, s))` to `add(x, y, alpha=s)`, with the product on either side."""
    for node in list(gm.graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        for position in (1, 0):
            scaled = node.args[position]
            if is_scaling(scaled):
                rewrite(gm, node, scaled)
                break


def is_scaling(node: object) -> bool:
    return (
        isinstance(node, Node)
        and node.target is aten.mul.Tensor
        and isinstance(node.args[1], float)
        and len(node.users) == 1
    )


def rewrite(gm: GraphModule, node: Node, scaled: Node) -> None:
    value, scale = scaled.args
    left, right = (value if argument is scaled else argument for argument in node.args)
    with gm.graph.inserting_before(node):
        fused = gm.graph.call_function(aten.add.Tensor, (left, right), {"alpha": scale})
    node.replace_all_uses_with(fused)
    gm.graph.erase_node(node)
    gm.graph.erase_node(scaled)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """A pre-norm encoder layer whose residual branches are scaled, as in CaiT's LayerScale."""

    def __init__(self, width: int, heads: int, *, swapped: bool = False) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.swapped = swapped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.attention(self.norm1(x))
        if self.swapped:
            return 0.5 * self.mlp(self.norm2(x)) + x
        return x + 0.5 * self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.layers = nn.Sequential(*(Layer(width, heads, swapped=i == 2) for i in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layers(self.embedding(tokens)))


def model() -> nn.Module:
    torch.manual_seed(0)
    return Encoder().eval()


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randint(0, 1000, (4, 32)),)


def config() -> dict[str, object]:
    """Options of the `ctk` target: our pass runs after the joint stage's own."""
    return {"custom_passes": {"joint": [f"{__file__}:fold_scale_into_add"]}}
