"""Does padding a matrix product pay? Plain against padded, and what the pass `pad_mm` decides.

For each dtype and size: the milliseconds of a plain product of `n * n` matrices with `n` columns,
how many times as fast it is when padded (padding and all), and whether a compile pads it. Then a
training step of two linear layers of odd widths, compiled with `pad_mm` and without, in turns.

    python benchmarks/pad_mm.py [--device cuda] [--sizes 1023 2047 4095] [--pairs 5]
"""

import argparse
import copy
import platform
import statistics
import time
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from ctk import compile_fx
from ctk.compiler.passes.joint import products
from ctk.compiler.passes.joint.pad_mm import PadMm, padded
from ctk.compiler.passes.joint.products import Operand, Product
from ctk.toolkit.compile_log.recorder import Recorder

aten = torch.ops.aten
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
FORMS = ("n n n", "n n-1 n-1", "n-1 n n-1", "n-1 n-1 n")
"""Rows, sum and columns of a product: all odd, or only one of them (of an odd `n`)."""


def product(form: str, n: int, dtype: torch.dtype, device: torch.device) -> Product:
    """Return a product of two matrices whose rows lie together."""
    rows, inner, columns = (n - 1 if size.endswith("1") else n for size in form.split())
    operands = Operand((rows, inner), (inner, 1)), Operand((inner, columns), (columns, 1))
    plain = Product(aten.mm.default, device, dtype, operands)
    return replace(plain, missing=products.lacks(plain, (True, True, True)))


def milliseconds(each: Product) -> float:
    """Return what the plain product takes."""
    operands = [torch.randn(o.shape, device=each.device).to(each.dtype) for o in each.operands]
    torch.mm(*operands)
    finish = torch.get_device_module(each.device).synchronize
    found = []
    for _ in range(5):
        finish()
        started = time.perf_counter()
        for _ in range(5):
            torch.mm(*operands)
        finish()
        found.append((time.perf_counter() - started) / 5)
    return statistics.median(found) * 1000


def steps(n: int, dtype: torch.dtype, device: torch.device, pairs: int) -> tuple[float, int]:
    """Return the ratio of a training step's time without and with `pad_mm`, and its rewrites."""
    model = nn.Sequential(nn.Linear(n, n), nn.GELU(), nn.Linear(n, n)).to(device, dtype)
    x = torch.randn(n, n, device=device, dtype=dtype)
    recorder = Recorder()

    def compiled(enabled: str):
        options = {"pad_mm.enabled": enabled, "pad_mm.devices": [device.type], "codegen": "eager"}

        def backend(gm, example_inputs):
            return compile_fx(gm, example_inputs, options, recorder)

        return torch.compile(copy.deepcopy(model), backend=backend)

    torch.compiler.reset()
    runs = []
    for enabled in ("never", "auto"):
        run = compiled(enabled)
        run(x).sum().backward()  # compiles
        runs.append(run)
    ratios = []
    for _ in range(pairs):
        plain, padded = (step_seconds(run, x, device) for run in runs)
        ratios.append(plain / padded)
    made = [r for p in recorder.log.passes() if p.id.name == "pad_mm" for r in p.rewrites]
    return statistics.median(ratios), len(made)


def step_seconds(run, x: torch.Tensor, device: torch.device) -> float:
    """Return the seconds of ten training steps."""
    finish = torch.get_device_module(device).synchronize
    finish()
    started = time.perf_counter()
    for _ in range(10):
        run(x).sum().backward()
    finish()
    return time.perf_counter() - started


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1023, 2047, 4095])
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    print(f"torch {torch.__version__}, {name}, float32 matmul "
          f"{torch.get_float32_matmul_precision()}")  # fmt: skip
    decide = PadMm(devices=(device.type,))
    print(f"{'dtype':9} {'n':>5}  {'rows sum columns':16} {'plain ms':>9} {'padded':>7}  decided")
    for dtype in DTYPES:
        for n in given.sizes:
            for form in FORMS:
                each = product(form, n, dtype, device)
                if not any(each.missing):
                    print(f"{str(dtype)[6:]:9} {n:5}  {form:16} {'':9} {'':7}  nothing is missing")
                    continue
                pads, _ = decide.decided(each)
                gained = products.speedup(PadMm.name, each, partial(padded, each))
                took = milliseconds(each)
                said = "padded" if pads else "left alone"
                print(f"{str(dtype)[6:]:9} {n:5}  {form:16} {took:9.3f} {gained:6.2f}x  {said}")
    for dtype in DTYPES:
        for n in given.sizes:
            ratio, made = steps(n, dtype, device, given.pairs)
            print(f"training step, {str(dtype)[6:]}, width {n}: {ratio:.2f}x, {made} padded")


if __name__ == "__main__":
    main()
