"""Measure how the error of compiled programs varies with vector width and threads, on one machine.

`python benchmarks/machine_accuracy.py` runs itself once for each setting, and writes
`results/machine_accuracy.txt`: for each target and program the largest error of a result against
float64 in ULP, by setting, and the ratio of the largest to the smallest. An error below 1 ULP
counts as 1. `toolkit/ci/accuracy.py` takes its rule from the largest ratio.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "machine_accuracy.txt"
WIDTHS, THREADS = ("default", "avx2", "avx512"), (1, 2)


def programs() -> Iterator[tuple[str, object, object]]:
    """Yield name, function and input of each program."""
    import torch
    from torch import nn

    functional = nn.functional
    yield "linear", nn.Linear(512, 64), torch.randn(32, 512)
    mlp = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64), nn.Softmax(-1))
    yield "mlp", mlp, torch.randn(16, 256)
    encoder = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()
    yield "encoder", encoder, torch.randn(2, 32, 64)
    layers = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3))
    convolution = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).eval()
    yield "convolution", convolution, torch.randn(2, 3, 32, 32)
    yield "sum", lambda x: x.sum(), torch.randn(100_000)
    yield "mean", lambda x: x.mean(0), torch.randn(4096, 33)
    yield "variance", lambda x: x.var(1) + x.std(1), torch.randn(64, 5000)
    yield "logsumexp", lambda x: x.logsumexp(1), torch.randn(64, 5000)
    yield "gelu", lambda x: functional.gelu(x) * x.tanh() + x.exp(), torch.randn(10_000)
    yield "cumsum", lambda x: x.cumsum(0), torch.randn(5000)
    yield "softmax_bf16", lambda x: x.softmax(-1) * x, torch.randn(64, 256).bfloat16()
    yield "matmul_bf16", lambda x: (x @ x.T).relu().sum(0), torch.randn(64, 256).bfloat16()
    yield "norm", lambda x: torch.sin(x * 100).cumsum(0).norm(), torch.randn(3000)
    yield "elementwise", lambda x: x * 2 + 1, torch.randn(1000)
    yield "layer_norm", nn.LayerNorm(768), torch.randn(8, 768) * 5 + 3
    labels = torch.arange(64) % 100
    yield "cross_entropy", lambda x: functional.cross_entropy(x, labels), torch.randn(64, 100)


def measure() -> dict[str, float | None]:
    """Return the error of each program on each target, in this process."""
    import torch

    from ctk.toolkit.ci.accuracy import measure_worst_ulp
    from ctk.toolkit.operations.options import CheckOptions
    from ctk.toolkit.oracle.open_subject import open_subject

    torch.manual_seed(0)
    errors: dict[str, float | None] = {}
    for (name, function, value), target in itertools.product(programs(), ("ctk", "inductor")):
        with open_subject(function, value, CheckOptions(target=target)) as subject:
            errors[f"{target}/{name}"] = measure_worst_ulp(subject.cases[0])
    return errors


def measure_apart(width: str, threads: int) -> dict[str, float | None]:
    """Return the errors under one setting, from a process with caches of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "ATEN_CPU_CAPABILITY": width,
            "OMP_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "CTK_CACHE_DIR": f"{folder}/ctk",
        }
        command = [sys.executable, __file__, "--measure"]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Write the table."""
    settings = list(itertools.product(WIDTHS, THREADS))
    columns = [measure_apart(*setting) for setting in settings]
    heads = [f"{width}/{threads}" for width, threads in settings]
    lines = [f"{'largest error in ULP':24}{'ratio':>7}{''.join(f'{head:>11}' for head in heads)}"]
    for name in columns[0]:
        values = [column[name] or 0.0 for column in columns]
        counted = [max(value, 1.0) for value in values]
        ratio, cells = max(counted) / min(counted), "".join(f"{value:11.3g}" for value in values)
        lines.append(f"{name:24}{ratio:7.2f}{cells}")
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(measure()))
    else:
        main()
