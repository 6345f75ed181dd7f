"""Seconds of the graph passes per 1,000 nodes: ctk's pre_grad, joint and post_grad, and Inductor's.

Both compile the same models in one process, in turn; of each compile the time inside the passes is
taken: our stages, verification of changed graphs included, and Inductor's three
`_recursive_*_passes`. What comes before (Dynamo, tracing), between (the partition) and behind
(code generation) is not counted, and Inductor's lowering is left out. Prints medians and the ratio.

    python -m benchmarks.middle_end [--repeats 5] [--models WORD,WORD]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch.nn import functional as F

from ctk.compiler import pipeline
from ctk.compiler.backend import ctk
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_lowering as lowering

INDUCTOR_PASSES = ("pre_grad", "joint_graph", "post_grad")


class Attention(nn.Module):
    """Attention written out, as models do that are older than the fused operator."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width, 4)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Residual(nn.Module):
    """Two convolutions with batch norms, and what goes past them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(x + self.norms[1](self.convs[1](y)))


class Recurrent(nn.Module):
    """An LSTM cell in a loop."""

    def __init__(self, width: int, steps: int) -> None:
        super().__init__()
        self.cell, self.steps = nn.LSTMCell(width, width), steps

    def forward(self, x: Tensor) -> Tensor:
        hidden = state = torch.zeros_like(x)
        for _ in range(self.steps):
            hidden, state = self.cell(x, (hidden, state))
        return hidden


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "encoder, 12 layers": lambda: (
        nn.Sequential(*(Block(32) for _ in range(12))),
        torch.randn(2, 8, 32),
    ),
    "convnet, 16 blocks": lambda: (
        nn.Sequential(*(Residual(8) for _ in range(16))),
        torch.randn(2, 8, 8, 8),
    ),
    "LSTM, 32 steps": lambda: (Recurrent(16, 32), torch.randn(4, 16)),
    "MLP, 100 layers": lambda: (
        nn.Sequential(*(m for _ in range(100) for m in (nn.Linear(8, 8), nn.Tanh()))),
        torch.randn(4, 8),
    ),
}


class Clock:
    """Adds up the time of calls; of calls inside a call only the outer one counts."""

    def __init__(self) -> None:
        self.seconds, self.nodes, self._depth = 0.0, 0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                self.seconds += (time.perf_counter() - started) * (self._depth == 0)

        return run

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As `timed`, of a function of a graph whose nodes are counted."""
        timed = self.timed(function)

        def run(graph: torch.fx.GraphModule, stage: str, *args: Any, **kwargs: Any) -> Any:
            if stage in ("forward", "backward"):
                self.nodes += len(graph.graph.nodes)
            return timed(graph, stage, *args, **kwargs)

        return run


class NotLowered(Exception):
    """Inductor's passes are done."""


@contextmanager
def inductor_without_lowering(clock: Clock) -> Generator[Callable[..., Any]]:
    """Yield a backend that runs Inductor's passes, and then the graph as it is."""
    compile_fx = inductor.pipeline_module()

    def stop(*args: Any, **kwargs: Any) -> None:
        raise NotLowered

    def inner(gm: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        try:
            compile_fx.compile_fx_inner(gm, inputs, **kwargs)
        except Exception as error:
            if NotLowered.__name__ not in f"{type(error).__name__} {error}":
                raise
        return make_boxed_func(gm.forward)

    with ExitStack() as undo:
        for name in INDUCTOR_PASSES:
            name = f"_recursive_{name}_passes"
            timed = clock.timed(getattr(compile_fx, name))
            undo.enter_context(patch.object(compile_fx, name, timed))
        undo.enter_context(patch.object(compile_fx, "GraphLowering", stop))
        undo.enter_context(lowering.options_set({"force_disable_caches": True}))
        yield lambda gm, inputs: compile_fx.compile_fx(gm, inputs, inner_compile=inner)


def measure(make: Callable[[], tuple[nn.Module, Tensor]], *, training: bool) -> tuple[Clock, Clock]:
    """Return the clocks of one compile with ctk, and of one with Inductor."""
    ours, theirs = Clock(), Clock()
    with patch.object(pipeline, "run_stage", ours.counted(pipeline.run_stage)):
        compiled_call(make, ctk, training=training)
    with inductor_without_lowering(theirs) as backend:
        compiled_call(make, backend, training=training)
    return ours, theirs


def compiled_call(
    make: Callable[[], tuple[nn.Module, Tensor]], backend: Callable[..., Any], *, training: bool
) -> None:
    """Compile a model and call it, with a backward pass in training."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model, x = make()
    with torch.set_grad_enabled(training):
        result = torch.compile(model.train(training), backend=backend)(x)
    if training:
        result.sum().backward()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", default="", help="words in names, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    words = [word for word in options.models.split(",") if word]
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, 1 thread")
    print("ms per 1,000 nodes of the graphs after the partition, medians")
    print(f"{'model':<20} {'mode':<10} {'nodes':>6} {'ctk':>8} {'Inductor':>9} {'ratio':>6}")
    for name, make in MODELS.items():
        if words and not any(word in name for word in words):
            continue
        for training in (False, True):
            measure(make, training=training)  # warm
            pairs = [measure(make, training=training) for _ in range(options.repeats)]
            nodes = pairs[0][0].nodes
            each = [[side.seconds * 1e6 / nodes for side in pair] for pair in pairs]
            ours, theirs = map(statistics.median, zip(*each, strict=True))
            ratio = statistics.median(a / b for a, b in each)
            mode = "training" if training else "inference"
            print(f"{name:<20} {mode:<10} {nodes:>6} {ours:>8.1f} {theirs:>9.1f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
