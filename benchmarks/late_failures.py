"""The cost of comparing and keeping later calls of a healthy training: 1,000 steps, paired.

Each pair of processes trains the same encoder with the backend `aot_eager`, in turn with and
without a variable of late failures; both are watched (`ctk.install(check="output")`), so that the
difference is that of the variable. Printed are the seconds of the processor per step (one thread;
writes to the disk's cache included), the ratio of each pair, and the number of failures that were
reported, which must be 0.

    python -m benchmarks.late_failures [--pairs 3] [--steps 1000] [--width 64]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

SETTINGS = {
    "EVERY=100": {"check_every": 100},
    "WHEN=nan,inf": {"check_when": "nan,inf"},
    "RING=4": {"ring": 4},
    "EVERY=100 RING=4": {"check_every": 100, "ring": 4},
}


def train(options: dict[str, object], steps: int, width: int) -> dict[str, object]:
    """Train in this process; return the seconds of all steps, and the reports."""
    import torch
    from torch import nn

    import ctk

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        hooks = ctk.install(dump=folder, check="output", on_failure="warn", calls=1, **options)
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(steps):
            x = torch.randn(16, 32, width)
            started = time.process_time()
            loss = (compiled(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.process_time() - started)
        hooks.uninstall()
        ring = hooks.session.ring
        nbytes = ring.files.nbytes if ring is not None else 0
        if ring is not None:
            ring.close(is_clean=True)
    weights = sum(each.nbytes for each in model.parameters())
    return {
        "step": statistics.mean(seconds[1:]),
        "failures": len(hooks.session.failures),
        "checked": hooks.session.checked,
        "ring": nbytes,
        "weights": weights,
    }


def run_process(options: dict[str, object], steps: int, width: int) -> dict[str, float]:
    """Train in a process of its own."""
    words = [json.dumps(options), str(steps), str(width)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.late_failures", "--child", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        options, steps, width = given.child
        print(json.dumps(train(json.loads(options), int(steps), int(width))))
        return
    print(f"{given.steps} steps, {given.pairs} pairs of processes, {platform.machine()}, 1 thread")
    for name, options in SETTINGS.items():
        ratios, lines = [], []
        for _ in range(given.pairs):
            plain = run_process({}, given.steps, given.width)
            watched = run_process(options, given.steps, given.width)
            ratios.append(watched["step"] / plain["step"])
            lines.append((plain, watched))
        plain, watched = lines[len(lines) // 2]
        print(
            f"{name:18} step {1000 * plain['step']:.1f} ms -> {1000 * watched['step']:.1f} ms, "
            f"x{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
            f"{watched['checked']} compared, {watched['failures']} failures, "
            f"weights {watched['weights'] / 1e6:.1f} MB, ring {watched['ring'] / 1e6:.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
