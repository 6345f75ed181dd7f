"""Real models with two culprits in them, captured by Dynamo or by `torch.export`.

`softplus` is planted early, `hardtanh` late, so that the value of the one reaches the other.
"""

import operator
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import GraphModule

Found = tuple[GraphModule, tuple[object, ...]]


class Convnet(nn.Module):
    """Residual blocks of convolutions and batch norm."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(depth))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(self.stem(x))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x))) + x
        return F.hardtanh(self.head(F.max_pool2d(x, 2).mean((2, 3))))


class Encoder(nn.Module):
    """Pre-norm layers with attention written out and a padding mask."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(16, 48) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(depth))

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        for index, (qkv, out, norm) in enumerate(zip(self.qkv, self.out, self.norms, strict=True)):
            parts = qkv(norm(x)).chunk(3, dim=-1)
            q, k, v = (each.unflatten(-1, (4, 4)).transpose(1, 2) for each in parts)
            scores = q @ k.transpose(-2, -1) / 2.0
            scores = scores.masked_fill(is_padding[:, None, None, :], -1e4)
            scores = F.softplus(scores) if index == 0 else scores
            x = x + out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return F.hardtanh(x)


class Decoder(nn.Module):
    """One step of a decoder: embedding, rotation of queries and keys, a cache that grows."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.qkv = nn.ModuleList(nn.Linear(16, 48) for _ in range(depth))
        self.mlp = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
        x = F.softplus(self.embedding(ids))
        turn = torch.cat([at.cos(), at.sin()], -1)
        for qkv, mlp in zip(self.qkv, self.mlp, strict=True):
            q, k, v = qkv(x).chunk(3, dim=-1)
            q, k = (each * turn + torch.cat(each.chunk(2, -1)[::-1], -1) for each in (q, k))
            keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
            x = x + F.scaled_dot_product_attention(q, keys, values)
            x = x + F.silu(mlp(x))
        return self.head(F.hardtanh(x)[:, -1])


class Recurrent(nn.Module):
    """An LSTM written as a loop over time."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden, state = x.new_zeros(x.shape[0], 8), x.new_zeros(x.shape[0], 8)
        outputs: list[Tensor] = []
        for at in range(self.depth):
            hidden, state = self.cell(x[:, at], (hidden, state))
            hidden = F.softplus(hidden) if at == 1 else hidden
            outputs.append(hidden)
        return F.hardtanh(torch.stack(outputs, 1)[:, -1]), state


def by_dynamo(model: nn.Module, *inputs: Tensor) -> Found:
    """Return what Dynamo captures of a model: parameters are inputs."""
    found: list[Found] = []

    def backend(gm: GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        found.append((gm, tuple(example_inputs)))
        return gm.forward

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*inputs)
    graph, given = found[0]
    return graph, tuple(v.detach() if isinstance(v, Tensor) else v for v in given)


def by_export(model: nn.Module, *inputs: Tensor) -> Found:
    """Return what `torch.export` captures of a model: parameters are attributes of the graph."""
    exported = torch.export.export(model, inputs).module(check_guards=False)
    plain = torch.fx.Graph()  # without the code that takes nested inputs apart
    result = plain.graph_copy(exported.graph, {})
    plain.output(tuple(result) if isinstance(result, (tuple, list)) else (result,))
    plain.eliminate_dead_code()
    root = nn.Module()
    for node in plain.find_nodes(op="get_attr"):
        value, node.target = operator.attrgetter(node.target)(exported), node.name
        root.register_buffer(node.name, value.detach())
    return GraphModule(root, plain), inputs


def convnet(size: int, seed: int) -> Found:
    """Return a convnet of about `size` nodes: 4 a block."""
    torch.manual_seed(seed)
    model = Convnet(max(1, (size - 6) // 4)).eval()
    return by_dynamo(model, torch.randn(2, 3, 8, 8))


def encoder(size: int, seed: int) -> Found:
    """Return an encoder of about `size` nodes: 25 a layer."""
    torch.manual_seed(seed)
    model = Encoder(max(1, size // 25)).eval().requires_grad_(False)
    is_padding = torch.arange(6)[None, :] >= torch.randint(2, 7, (2, 1))
    return by_export(model, torch.randn(2, 6, 16), is_padding)


def decoder(size: int, seed: int) -> Found:
    """Return a decoder of about `size` nodes: 20 a layer."""
    torch.manual_seed(seed)
    model = Decoder(max(1, (size - 8) // 20)).eval()
    ids, at = torch.randint(0, 50, (2, 1)), torch.randn(2, 1, 8)
    return by_dynamo(model, ids, torch.randn(2, 5, 16), torch.randn(2, 5, 16), at)


def recurrent(size: int, seed: int) -> Found:
    """Return an LSTM of about `size` nodes: 3 a step."""
    torch.manual_seed(seed)
    depth = max(3, size // 3)
    model = Recurrent(depth).eval().requires_grad_(False)
    return by_export(model, torch.randn(2, depth, 8))
