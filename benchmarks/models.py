"""Whole models, inference and training steps: ours, Inductor and eager, paired in one process.

Prints what `kernels.py` prints. A training step is forward, a sum of squares, and backward.

    python -m benchmarks.models [--device cpu|cuda] [--dtype float32] [--only WORD,...]
"""

import copy
import statistics
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.kernels import begin, compared
from benchmarks.programs import MODELS


def main() -> None:
    """Time the programs, and print tables."""
    args, options = begin(__doc__ or "", blocks=9)
    for dtype in args.dtype.split(","):
        print(f"\n{dtype}: speed relative to eager; first call in s")
        print(f"{'':28}{'eager ms':>10}{'inductor':>10}{'ctk':>8}{'ctk/ind.':>10}"
              f"{'first ind.':>12}{'first ctk':>11}")  # fmt: skip
        ratios: list[float] = []
        firsts: list[float] = []
        for name, make, size in MODELS:
            for mode in ("inference", "training"):
                if args.only and name not in args.only.split(","):
                    continue
                torch.manual_seed(0)
                model = make().to(args.device, getattr(torch, dtype))
                scale = 16 if args.device == "cuda" else 1
                x = torch.randn(size[0] * scale, *size[1:]).to(args.device, getattr(torch, dtype))
                if mode == "inference":
                    timed = compared(_inference(model), (x,), args.blocks, options)
                else:
                    timed = compared(model, (x,), args.blocks, options, _training)
                eager, inductor, ours = (timed[key] for key in ("eager", "inductor", "ctk"))
                ratios.append(inductor.call / ours.call)
                firsts.append(ours.first / inductor.first)
                print(f"{name + ' ' + mode:28}{eager.call * 1e3:10.2f}"
                      f"{eager.call / inductor.call:10.2f}{eager.call / ours.call:8.2f}"
                      f"{ratios[-1]:10.2f}{inductor.first:12.2f}{ours.first:11.2f}",
                      flush=True)  # fmt: skip
        print(f"geometric mean ctk/inductor {statistics.geometric_mean(ratios):.3f}, "
              f"worst {min(ratios):.2f}; "
              f"first call {statistics.geometric_mean(firsts):.3f} of Inductor's")  # fmt: skip


def _inference(model: nn.Module) -> nn.Module:
    """Return a model in evaluation, without gradients."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def _training(model: Callable[..., Any]) -> Callable[..., Any]:
    """Return a training step: loss and gradients of all parameters."""
    parameters = list(cast("nn.Module", model).parameters())

    def step(x: Tensor) -> Tensor:
        loss = model(x).float().square().mean()
        torch.autograd.grad(loss, parameters)
        return loss.detach()

    return step


if __name__ == "__main__":
    main()
