"""Peak memory and time of a training step whose loss has many classes, in chunks and whole.

For each compiler: the memory that a step needs at its peak above that before it, the seconds of the
fastest of some steps, and the largest error of the gradients against eager.

    python -m benchmarks.chunked_cross_entropy [--rows 4096] [--width 256] [--classes 32000]

Each compiler runs in a process of its own. Memory is the resident set of the process on a CPU, and
the memory of torch's allocator on a GPU (`--device cuda`).
"""

import argparse
import platform
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

CHUNKED = {"cache": False, "chunk_losses.enabled": True}
THEIRS = {"auto_chunker.enable": True}
COMPILERS = {
    "eager": {"backend": "eager"},
    "inductor": {"backend": "inductor"},
    "inductor in chunks": {"backend": "inductor", "options": THEIRS},
    "ctk": {"backend": "ctk", "options": {"cache": False}},
    "ctk in chunks": {"backend": "ctk", "options": CHUNKED},
    "ctk in chunks, fused freely": {"backend": "ctk", "options": CHUNKED},
}


def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    """Return the loss of a linear layer with a class for each row of `w`."""
    return cross_entropy(linear(x, w), target)


def gradients(function, x: Tensor, w: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of one step."""
    return torch.autograd.grad(function(x, w, target), (x, w))


def measure(name: str, sizes: argparse.Namespace) -> str:
    """Return the row of one compiler."""
    if name.endswith("freely"):
        fuse_freely()
    torch.manual_seed(0)
    on = {"device": sizes.device}
    x = torch.randn(sizes.rows, sizes.width, **on).mul_(0.1).requires_grad_()
    w = torch.randn(sizes.classes, sizes.width, **on).mul_(0.1).requires_grad_()
    target = torch.randint(sizes.classes, (sizes.rows,), **on)
    compiled = torch.compile(loss, **COMPILERS[name])
    found = gradients(compiled, x, w, target)  # compiles
    expected = gradients(loss, x, w, target)
    error = max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))
    del found, expected
    before = reset_peak(sizes.device)
    gradients(compiled, x, w, target)
    needed = peak(sizes.device) - before
    seconds = min(timed(compiled, x, w, target) for _ in range(sizes.rounds))
    return f"{name:28s} {needed / 2**20:9.0f} {seconds:9.3f} {error:12.1e}"


def fuse_freely() -> None:
    """Let fusion raise the peak of the memory."""
    from ctk.compiler.lowering.peak import Peak

    Peak.allows = lambda self, first, second, **options: True  # type: ignore[method-assign]  # the comparison


def timed(function, x: Tensor, w: Tensor, target: Tensor) -> float:
    """Return the seconds of one step."""
    started = time.perf_counter()
    gradients(function, x, w, target)
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def reset_peak(device: str) -> int:
    """Forget the peak so far; return the bytes in use now."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak(device: str) -> int:
    """Return the bytes in use at the peak."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else status("VmHWM")


def status(field: str) -> int:
    """Return a number of bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    """Measure one compiler, or each in a process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--classes", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compiler", choices=COMPILERS)
    given = parser.parse_args()
    if given.compiler:
        print(measure(given.compiler, given))
        return
    print(
        f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads, "
        f"{given.device}; {given.rows} rows, width {given.width}, {given.classes} classes"
    )
    print(f"{'':28s} {'peak MiB':>9s} {'seconds':>9s} {'error':>12s}")
    for name in COMPILERS:
        command = [sys.executable, "-m", "benchmarks.chunked_cross_entropy", *sys.argv[1:]]
        done = subprocess.run([*command, "--compiler", name], stdout=subprocess.PIPE, check=True)
        print(done.stdout.decode().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
