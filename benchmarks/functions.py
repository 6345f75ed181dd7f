"""Functions of one and of two numbers: `f(a) + b` on 512 x 1024, in ctk, Inductor and eager.

Prints for each function and type the time of eager, and the speeds of Inductor and ctk; then the
geometric mean and the worst functions. Calls take turns, and the least time of a block counts:
kernels this short are seldom left alone on a machine that is shared. Compiled code comes from the
caches of the process: run it once before to fill them.

    python -m benchmarks.functions [--device cpu|cuda] [--dtype float32,float64] [--only NAME,...]
"""

import statistics
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels import begin, calls, chosen, fresh

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "logit", "sinc", "square", "sign",
    "abs", "neg", "ceil", "floor", "round", "trunc", "frac", "deg2rad", "rad2deg", "i0",
    "special_i0e", "special_i1", "special_i1e", "special_ndtr", "special_ndtri", "special_log_ndtr",
    "special_erfcx", "special_entr", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_modified_bessel_i0", "special_modified_bessel_i1",
    "special_modified_bessel_k0", "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0", "special_airy_ai", "polygamma",
)  # fmt: skip

BINARY = (
    "fmod", "remainder", "floor_divide", "div", "atan2", "hypot", "pow", "copysign", "nextafter",
    "maximum", "fmax", "logaddexp", "logaddexp2", "xlogy", "special_xlog1py", "special_zeta",
    "heaviside", "ldexp", "float_power", "igamma", "igammac",
)  # fmt: skip

_LONG = frozenset(("special_zeta", "igamma", "igammac"))
"""Iterations without a bound that suits a loop; the library computes them everywhere."""


def main() -> None:
    """Time the functions, and print a table for each type."""
    args, options = begin(__doc__ or "", blocks=11)
    torch.set_grad_enabled(False)
    wanted = chosen(args.only, (*UNARY, *BINARY))
    for name in args.dtype.split(","):
        _table(getattr(torch, name), wanted, args.device, args.blocks, options)


def _table(
    dtype: torch.dtype, names: list[str], device: str, blocks: int, options: dict[str, object]
) -> None:
    print(f"\n{dtype}\n{'':36}{'eager us':>10}{'inductor':>10}{'ctk':>8}{'ctk/ind.':>10}")
    ratios: dict[str, tuple[float, float]] = {}
    for name in names:
        inputs = _inputs(name, dtype, device)
        try:
            took = _timed(_program(name), inputs, blocks, options)
        except NotImplementedError as error:  # of torch: no such type
            print(f"{name:36}{str(error).splitlines()[0][:60]}")
            continue
        eager, inductor, ours = (took[key] for key in ("eager", "inductor", "ctk"))
        ratios[name] = inductor / ours, eager / ours
        print(f"{name:36}{eager * 1e6:10.1f}{eager / inductor:10.2f}{eager / ours:8.2f}"
              f"{inductor / ours:10.2f}", flush=True)  # fmt: skip
    _summary(ratios)


def _summary(ratios: Mapping[str, tuple[float, float]]) -> None:
    for index, other in enumerate(("Inductor", "eager")):
        speeds = {name: each[index] for name, each in ratios.items()}
        worst = sorted(speeds, key=lambda name: speeds[name])[:8]
        listed = ", ".join(f"{name} {speeds[name]:.2f}" for name in worst)
        mean = statistics.geometric_mean(speeds.values())
        print(f"{len(speeds)} functions, geometric mean of the speed of {other}: {mean:.2f}; "
              f"worst {listed}")  # fmt: skip


def _timed(
    run: Callable[..., Any], inputs: tuple[Tensor, ...], blocks: int, options: dict[str, object]
) -> dict[str, float]:
    ways: dict[str, Callable[..., Any]] = {"eager": run}
    torch.compiler.reset()
    for backend, given in (("inductor", None), ("ctk", dict(options))):
        ways[backend] = torch.compile(fresh(run), backend=backend, options=given)
        ways[backend](*inputs)
    return {name: min(each) for name, each in calls(ways, inputs, blocks).items()}


def _program(name: str) -> Callable[..., Any]:
    """Return `f(a) + b` or `f(a, b) + b`, a function of its own code for each f."""
    names: Mapping[str, object] = {"f": getattr(torch, name, None) or getattr(torch.ops.aten, name)}
    text = _TEXTS.get(name, "f(a, b) + b" if name in BINARY else "f(a) + b")
    made: dict[str, Any] = {}
    exec(f"def {name}(a, b):\n    return {text}\n", dict(names), made)  # text of this file
    found = made[name]
    assert isinstance(found, FunctionType)
    return found


_TEXTS = {"polygamma": "f(1, a) + b", "ldexp": "f(a, b.int()) + b"}


def _inputs(name: str, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    draw = torch.Generator(device).manual_seed(0)
    rows = 16 if name in _LONG else 512 * (64 if device == "cuda" else 1)
    first, second = (torch.rand(rows, 1024, generator=draw, device=device) for _ in range(2))
    first = first * 0.9 + 0.05 + (1 if name in BINARY or name == "acosh" else 0)
    return first.to(dtype), (second + 0.5 + (1 if name == "special_zeta" else 0)).to(dtype)


if __name__ == "__main__":
    main()
