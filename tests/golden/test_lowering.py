"""The loop IR of representative nodes with their graphs, and of programs that have been fused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.text import program_text
from ctk.compiler.passes.joint.philox import DRAW

aten = torch.ops.aten
X = torch.zeros(4, 6)
HALF = X.bfloat16()
IMAGE = torch.zeros(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
PLACES = torch.tensor([0, 2, 1])
Call = Callable[..., Any]


def batch_norm(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Any:
    args = (x, weight, None, mean, variance, True, 0.1, 1e-5)
    results = aten._native_batch_norm_legit_functional.default(*args)
    return results[0], mean.copy_(results[3])


def layer_norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    mask = [True, False, False]
    return aten.native_layer_norm_backward.default(grad, x, [6], mean, rstd, None, None, mask)[0]


CALLS: dict[str, tuple[Call, tuple[Tensor, ...]]] = {
    "batch_norm": (batch_norm, (IMAGE, *torch.zeros(3, 4))),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), (X, X[:, :2])),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (X[:3], PLACES)),
    "cumsum": (lambda x: x.cumsum(0), (HALF,)),
    "decomposed": (lambda x: F.unfold(x[None, None], 2), (HALF,)),
    "draw": (lambda s: DRAW(s, 0, [3, 5], "uniform", torch.bfloat16), (torch.tensor([7]),)),
    "embedding_backward": (
        lambda g, i: aten.embedding_dense_backward.default(g, i, 9, 0, False),
        (HALF[:3], PLACES),
    ),
    "foreach": (lambda x, y: torch._foreach_add([x, y], 1.0), (X, X[0])),
    "gelu_backward": (lambda g, x: aten.gelu_backward.default(g, x), (HALF, HALF)),
    "index": (lambda x, i: x[i - 1], (X, PLACES)),
    "layer_norm_backward": (layer_norm_backward, (X, X, *torch.zeros(2, 4, 1))),
    "pad": (lambda x: F.pad(x, (1, -1, 0, 2)), (X,)),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[None], x[:1]), (X, PLACES)),
    "slice_backward": (lambda g: aten.slice_backward.default(g, [4, 9], 1, 2, 8, 2), (X[:, :3],)),
    "softmax": (lambda x: x.softmax(0), (HALF,)),
    "var": (lambda x: x.var(1, keepdim=True), (X,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    call, inputs = CALLS[name]
    mode = "symbolic" if name in ("softmax", "var", "cat") else "fake"
    gm = make_fx(call, tracing_mode=mode)(*(each.clone() for each in inputs))
    golden(f"lowering/{name}.txt", f"{gm.graph}\n\n{program_text(lower(gm))}\n")


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


FUSED: dict[str, tuple[Call, tuple[Tensor, ...]]] = {
    "cross_entropy": (lambda x, t: F.cross_entropy(x.float(), t), (HALF[:3], PLACES)),
    "rotary": (rotary, (X, X + 1, X + 2)),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_text(name: str, golden: Callable[[str, str], None]) -> None:
    call, inputs = FUSED[name]
    gm, rules = make_fx(call, tracing_mode="fake")(*inputs), list[str]()
    fused = fuse(lower(gm), lambda rule, _: not rules.append(rule))
    golden(f"lowering/fused_{name}.txt", "\n".join((*rules, "", program_text(fused), "")))
