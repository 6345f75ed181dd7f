"""Layers of real models: attention of all kinds, recurrent cells, convolutions, norms, experts."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


def causal_attention() -> Call:
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)


def masked_attention() -> Call:
    q, k, v = (torch.randn(2, 2, 12, 8) for _ in range(3))
    mask = torch.rand(12, 12) > 0.3
    return lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), (
        q,
        k,
        v,
        mask | torch.eye(12, dtype=torch.bool),
    )


def encoder_layer() -> Call:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return layer.eval(), (torch.randn(2, 7, 16),)


def encoder_training() -> Call:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    return layer, (torch.randn(2, 7, 16, requires_grad=True),)


def multi_head_weights() -> Call:
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    return lambda x: layer(x, x, x, average_attn_weights=False), (torch.randn(2, 5, 16),)


def lstm() -> Call:
    cells = nn.ModuleList([nn.LSTMCell(6, 5), nn.LSTMCell(5, 5)]).eval()  # Dynamo skips nn.LSTM

    def run(steps: Tensor) -> Tensor:
        for cell in cells:
            hidden = (
                torch.zeros(2, 5, device=steps.device),
                torch.zeros(2, 5, device=steps.device),
            )
            results: list[Tensor] = []
            for step in steps.unbind(1):
                hidden = cell(step, hidden)
                results.append(hidden[0])
            steps = torch.stack(results, 1)
        return steps

    return run, (torch.randn(2, 4, 6),)


def gru_loop() -> Call:
    cell = nn.GRUCell(5, 5)

    def run(x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[1], 5, device=x.device)
        for step in x:
            hidden = cell(step, hidden)
        return hidden

    return run, (torch.randn(4, 3, 5),)


def convnet() -> Call:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4), nn.GroupNorm(2, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    return model.eval(), (torch.randn(2, 3, 16, 16),)


def channels_last() -> Call:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    model = model.to(memory_format=torch.channels_last)
    return model, (torch.randn(2, 4, 10, 10).to(memory_format=torch.channels_last),)


def upsampling() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(9, 7), mode="bilinear", align_corners=False),
            F.pixel_shuffle(x, 2),
        )

    return run, (torch.randn(1, 4, 5, 6),)


def experts() -> Call:
    """A mixture of experts, routed by top-k, gathered and scattered."""
    weights = torch.randn(4, 8, 8)

    def run(x: Tensor) -> Tensor:
        score, which = (x @ weights.sum(2).T).softmax(-1).topk(2)
        outputs = torch.einsum("nd,ndke->nke", x, weights[which].permute(0, 2, 1, 3))
        return torch.zeros_like(x).index_add(
            0, torch.arange(x.shape[0], device=x.device), (outputs * score[..., None]).sum(1)
        )

    return run, (torch.randn(6, 8),)


def losses() -> Call:
    def run(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return (
            F.cross_entropy(x, target, label_smoothing=0.1),
            F.nll_loss(x.log_softmax(-1), target, ignore_index=1),
            F.smooth_l1_loss(x, x.flip(0)),
            F.kl_div(x.log_softmax(-1), x.flip(0).softmax(-1), reduction="batchmean"),
        )

    return run, (torch.randn(6, 5, requires_grad=True), torch.randint(0, 5, (6,)))


def ragged_embedding() -> Call:
    bag = nn.EmbeddingBag(10, 4, mode="mean")
    return bag, (torch.randint(0, 10, (9,)), torch.tensor([0, 3, 5]))


def sorting() -> Call:
    return lambda x: (x.sort(-1), x.topk(3), x.unique(), x.argsort(0), x.kthvalue(2)), (
        torch.randperm(24).float().reshape(4, 6),
    )


PROGRAMS = (
    Healthy("causal_attention", causal_attention, backward=True),
    Healthy("masked_attention", masked_attention),
    Healthy("encoder_layer", encoder_layer),
    Healthy("encoder_training", encoder_training, backward=True),
    Healthy("multi_head_weights", multi_head_weights),
    Healthy("lstm", lstm),
    Healthy("gru_loop", gru_loop, backward=True),
    Healthy("convnet", convnet),
    Healthy("channels_last", channels_last),
    Healthy("upsampling", upsampling),
    Healthy("experts", experts),
    Healthy("losses", losses, backward=True),
    Healthy("ragged_embedding", ragged_embedding, backward=True),
    Healthy("sorting", sorting),
)
