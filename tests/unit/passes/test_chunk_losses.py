"""Losses in chunks of rows: gradients beside eager, refusals with their reasons, memory."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor
from torch._inductor import metrics

import ctk
from ctk.compiler.passes.joint.chunk_losses import ChunkLosses
from ctk.toolkit.compile_log.recorder import Recorder

NAME = "chunk_losses"
ON = {f"{NAME}.enabled": True, f"{NAME}.min_nbytes": 0, f"{NAME}.min_ratio": 0.5}
N, D, V = 60, 4, 120
TARGET = torch.randint(V, (N,), generator=torch.Generator().manual_seed(0))
SOME = TARGET.clone()
SOME[::3] = -100
NONE = torch.full_like(TARGET, -100)
BATCH = TARGET.view(3, 20)
WEIGHTS = torch.rand(V)
CHANCES = torch.rand(N, V).softmax(-1)
HALF, BF16 = torch.float16, torch.bfloat16

ce, linear = F.cross_entropy, F.linear


def leaf(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))
    return values.to(dtype).requires_grad_()


X, W, B = leaf(N, D), leaf(V, D), leaf(V)
X3 = leaf(3, 20, D)


def capped(x, w, target):
    """A cap of the logits, and two losses of them, as Gemma and PaLM have."""
    logits = torch.tanh(linear(x, w).float() / 30) * 30
    loss = ce(logits.view(-1, V), target.view(-1))
    return loss + 1e-2 * logits.logsumexp(-1).square().mean()


def by_hand(x, w, target):
    logits = linear(x, w)
    return (logits.logsumexp(-1) - logits.gather(1, target[:, None])[:, 0]).mean()


def focal(x, w, target):
    loss = ce(linear(x, w), target, reduction="none")
    return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


def with_accuracy(x, w, target):
    logits = linear(x, w)
    return ce(logits, target), (logits.argmax(-1) == target).float().mean()


SPLIT = {
    "mean": (lambda x, w: ce(linear(x, w), TARGET), (X, W)),
    "sum": (lambda x, w: ce(x @ w.t(), SOME, reduction="sum"), (X, W)),
    "bias, ignored targets": (lambda x, w, b: ce(linear(x, w, b), SOME), (X, W, B)),
    "all ignored": (lambda x, w: ce(linear(x, w), NONE), (X, W)),
    "no target, sum": (lambda x, w: ce(linear(x, w), NONE, reduction="sum"), (X, W)),
    "weights, smoothing": (
        lambda x, w: ce(linear(x, w), SOME, weight=WEIGHTS, label_smoothing=0.1), (X, W)
    ),
    "weights, sum": (
        lambda x, w: ce(linear(x, w), SOME, weight=WEIGHTS, reduction="sum"), (X, W)
    ),
    "smoothing": (lambda x, w: ce(linear(x, w), SOME, label_smoothing=0.1), (X, W)),
    "another ignored index": (lambda x, w: ce(linear(x, w), TARGET, ignore_index=7), (X, W)),
    "soft targets": (lambda x, w: ce(linear(x, w), CHANCES), (X, W)),
    "kl_div": (
        lambda x, w: F.kl_div(linear(x, w).log_softmax(-1), CHANCES, reduction="batchmean"),
        (X, W),
    ),
    "batches of tokens": (lambda x, w: ce(linear(x, w).view(-1, V), BATCH.view(-1)), (X3, W)),
    "bfloat16": (
        lambda x, w: ce(linear(x, w), TARGET), (leaf(N, D, dtype=BF16), leaf(V, D, dtype=BF16))
    ),
    "bfloat16, loss in float32": (
        lambda x, w, b: ce(linear(x, w, b).float(), SOME),
        (leaf(N, D, dtype=BF16), leaf(V, D, dtype=BF16), leaf(V, dtype=BF16)),
    ),
    "capped, z-loss": (lambda x, w: capped(x, w, BATCH), (X3, W)),
    "by hand": (lambda x, w: by_hand(x, w, TARGET), (X, W)),
    "focal": (lambda x, w: focal(x, w, TARGET), (X, W)),
    "masked": (
        lambda x, w: (ce(linear(x, w), TARGET, reduction="none") * WEIGHTS[:N]).sum(), (X, W)
    ),
    "two targets": (
        lambda x, w: (lambda z: ce(z, TARGET) + ce(z, TARGET.roll(1)) / 2)(linear(x, w)), (X, W)
    ),
    "function of the loss": (lambda x, w: torch.exp(ce(linear(x, w), TARGET) / 9), (X, W)),
    "temperature": (lambda x, w, s: ce(linear(x, w) * s, TARGET), (X, W, leaf())),
    "accuracy beside it": (lambda x, w: with_accuracy(x, w, TARGET), (X, W)),
    "tied weights": (lambda w: ce(linear(F.embedding(TARGET, w), w), TARGET), (W,)),
    "a hidden layer": (lambda x, h, w: ce(linear((x @ h).relu(), w), TARGET), (X, leaf(D, D), W)),
    "frozen weights": (lambda x, w: ce(linear(x, w), TARGET), (X, W.detach())),
}  # fmt: skip

ALONE = {
    "logits are returned": (
        lambda x, w: (lambda z: (ce(z, TARGET), z))(linear(x, w)), (X, W), "output needs"
    ),
    "two gradients": (
        lambda x, w: (lambda z: (ce(z, TARGET), z.logsumexp(-1).mean()))(linear(x, w)),
        (X, W), "not one number",
    ),
    "a gradient for each row": (
        lambda x, w: ce(linear(x, w), TARGET, reduction="none"), (X, W), "not one number"
    ),
    "rows are mixed": (
        lambda x, w: ce((lambda z: z - z.mean(0))(linear(x, w)), TARGET), (X, W), "several rows"
    ),
    "float16": (
        lambda x, w: ce(linear(x, w).float(), TARGET),
        (leaf(N, D, dtype=HALF), leaf(V, D, dtype=HALF)), "float16",
    ),
    "an autoencoder": (
        lambda x, w: F.mse_loss(F.relu(x @ w.t()) @ w, x.detach()), (X, W), "is not computed"
    ),
}  # fmt: skip


def gradients(function, inputs, scale):
    """Return the results of a function and the gradients of its inputs, `scale` upstream."""
    inputs = [each.detach().clone().requires_grad_(each.requires_grad) for each in inputs]
    found = function(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    wanted = [each for each in inputs if each.requires_grad]
    total = sum((each * scale).sum() for each in found if each.requires_grad)
    return [*found, *torch.autograd.grad(total, wanted)]


def run(function, inputs, options=None, scale=1.5):
    recorder = Recorder()
    torch._dynamo.reset()
    compiled = torch.compile(
        function, backend=lambda gm, x: ctk.compile_fx(gm, x, options or ON, recorder)
    )
    found = gradients(compiled, inputs, scale)
    expected = gradients(function, inputs, scale)
    is_half = any(each.dtype in (HALF, BF16) for each in inputs)
    limits = {"rtol": 3e-2, "atol": 1e-2} if is_half else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found, expected, equal_nan=True, **limits)
    records = [each for each in recorder.log.passes() if each.id.name == NAME]
    return records, recorder.log


@pytest.mark.parametrize("name", SPLIT)
def test_a_loss_is_computed_in_chunks(name):
    records, _ = run(*SPLIT[name])
    assert sum(len(each.rewrites) for each in records) == 1


@pytest.mark.parametrize("name", ALONE)
def test_a_loss_is_left_alone_with_a_reason(name):
    function, inputs, reason = ALONE[name]
    records, _ = run(function, inputs)
    assert not any(each.rewrites for each in records)
    assert any(reason in note for each in records for note in each.notes)


@pytest.mark.parametrize(
    "options",
    [
        {}, {**ON, f"{NAME}.enabled": False}, {f"{NAME}.enabled": True},
        {**ON, f"{NAME}.min_ratio": 99.0},
    ],
    ids=["default", "off", "small", "ratio"],
)  # fmt: skip
def test_options_decide(options):
    records, _ = run(*SPLIT["mean"], {"cache": False, **options})
    assert not any(each.rewrites for each in records)


@pytest.mark.parametrize("chunks", [2, 7, 59, 60, 100])
def test_any_number_of_chunks(chunks):
    records, _ = run(*SPLIT["mean"], {**ON, f"{NAME}.chunks": chunks})
    assert sum(len(each.rewrites) for each in records) == 1


def test_one_chunk_is_refused():
    with pytest.raises(ValueError, match="chunks is a number of chunks from 2"):
        ChunkLosses(chunks=1)


def test_symbolic_rows_are_left_alone():
    recorder = Recorder()
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, w, t: ce(linear(x, w), t),
        backend=lambda gm, x: ctk.compile_fx(gm, x, ON, recorder),
        dynamic=True,
    )
    compiled(X, W, TARGET).backward()
    records = [each for each in recorder.log.passes() if each.id.name == NAME]
    assert records
    assert not any(each.rewrites for each in records)


def test_inductor_chunks_such_a_loss_as_well():
    x, w, target = leaf(256, D), leaf(1100, D), torch.randint(1100, (256,))
    before = metrics.num_auto_chunking
    torch._dynamo.reset()
    with inductor.patch({"auto_chunker.enable": True, "fx_graph_cache": False}):
        torch.compile(lambda x, w: ce(linear(x, w), target))(x, w).backward()
    assert metrics.num_auto_chunking == before + 1
    options = {"auto_chunker.enable": True}
    records, _ = run(lambda x, w: ce(linear(x, w), target), (x, w), options)
    assert sum(len(each.rewrites) for each in records) == 1


def test_no_kernel_computes_the_logits_of_two_chunks():
    """So that logits of one chunk are alive at a time: fusion joined these kernels."""
    _, log = run(*SPLIT["mean"], {**ON, f"{NAME}.chunks": 4})
    gradients_of = [
        [name for name in each.nodes if name.startswith("_log_softmax_backward")]
        for each in log.kernels()
    ]
    assert sorted(map(len, filter(None, gradients_of))) == [1] * 4


LOSSES = (
    lambda z, t: ce(z, t),
    lambda z, t: ce(z, t, reduction="sum") / 50,
    lambda z, t: ce(z, t, label_smoothing=0.2),
    lambda z, t: ce(z, t, weight=WEIGHTS),
    lambda z, t: z.logsumexp(-1).square().mean() * 1e-2,
    lambda z, t: (ce(z, t, reduction="none") * WEIGHTS[:N]).mean(),
    lambda z, t: -(z.softmax(-1) * z.log_softmax(-1)).sum(-1).mean() / 9,
    lambda z, t: F.kl_div(z.log_softmax(-1), CHANCES, reduction="batchmean"),
)
LOGITS = (
    lambda z: z,
    lambda z: z / 3,
    lambda z: torch.tanh(z / 5) * 5,
    lambda z: z.double(),
    lambda z: z - z.amax(-1, keepdim=True).detach(),
    lambda z: torch.where(z > 0, z, z * 0.1),
    lambda z: z.clamp(-3, 3),
    lambda z: F.gelu(z) + WEIGHTS,
)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 150))]
)
def test_random_losses(seed):
    draw = random.Random(seed)
    losses = draw.sample(LOSSES, draw.choice([1, 1, 2]))
    logits = draw.sample(LOGITS, draw.choice([1, 2]))
    x, has_bias, target = draw.choice([X, X3]), draw.random() < 0.5, draw.choice([TARGET, SOME])

    def program(x, w, b):
        z = linear(x, w, b if has_bias else None)
        for change in logits:
            z = change(z)
        z = z.reshape(-1, V)
        return sum(loss(z.float(), target) for loss in losses) * 0.5

    inputs = (x, W, B) if has_bias else (x, W, B.detach())
    options = {**ON, f"{NAME}.chunks": draw.choice([2, 3, 8])}
    records, _ = run(program, inputs, options, scale=draw.choice([1.0, -2.5, 0.0]))
    assert sum(len(each.rewrites) for each in records) == 1, [r.notes for r in records]


def test_the_pass_is_off_by_default():
    assert not ChunkLosses().enabled
