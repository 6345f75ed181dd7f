"""Whole compiles that share a persistent cache: at once, killed, without a disk.

`python -m tests.helpers.compile_stress` compiles with the cache that the variables name, and fails
if a result is not eager's.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.fx import GraphModule, symbolic_trace

from ctk.compiler.cache.store import Store, open_store
from ctk.compiler.pipeline import compile_fx

GRAPHS = 20
_FORK = multiprocessing.get_context("fork")


def program_of(number: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return a small program that nobody else has; every third one writes into an input."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if number % 3 == 0:
            y.mul_(0.1 * number + 0.5)
        z = x
        for _ in range(number % 4 + 1):
            z = torch.sin(z @ y) / (number + 4)
        return z.sum(number % 2), y * z

    return program


def graph_of(number: int) -> GraphModule:
    """Return the captured graph of a program."""
    return symbolic_trace(program_of(number))


def inputs_of(number: int) -> list[Tensor]:
    """Return its inputs; those of the odd programs require a gradient."""
    size = 2 + number % 5
    x = torch.linspace(-1, 1, size * size).reshape(size, size)
    return [x.clone().requires_grad_(number % 2 == 1), x.t().contiguous()]


def results(run: Callable[..., object], number: int) -> list[Tensor]:
    """Return what a program gives, writes, and the gradient of its first input."""
    x, y = inputs_of(number)
    found = run(x, y)
    assert isinstance(found, tuple | list)
    if x.requires_grad:
        torch.autograd.backward([each.sum() for each in found])
    return [each.detach() for each in (*found, y, *([x.grad] if x.grad is not None else []))]


def is_right(number: int) -> bool:
    """Compile a program, or load it, and compare all of its results with eager's."""
    run = compile_fx(graph_of(number), inputs_of(number))
    pairs = zip(results(run, number), results(program_of(number), number), strict=True)
    return all(torch.allclose(ours, eagers, rtol=1e-5, atol=1e-5) for ours, eagers in pairs)


def compile_all(root: Path, seed: int) -> None:
    """Compile every program, in an order of this process's own; note what is wrong."""
    numbers = list(range(GRAPHS))
    Random(seed).shuffle(numbers)
    for number in numbers:
        if not is_right(number):
            (root / f"wrong-{number}").touch()


def compile_for_ever(root: Path, seed: int) -> None:
    """Compile and load programs, and drop some entries, until killed; note what is wrong."""
    draw, store = Random(seed), Store(root, 1 << 30)
    while True:
        number = draw.randrange(GRAPHS)
        try:
            if not is_right(number):
                (root / f"wrong-{number}").touch()
        except Exception as error:
            (root / f"wrong-{number}").write_text(f"{type(error).__name__}: {error}")
        entries = store.entries()
        if entries and draw.random() < 0.2:
            store.discard(draw.choice(entries), "to be made again")


def compiled_at_once(root: Path, processes: int = 8) -> list[int | None]:
    """Let some processes compile every program at once; return how they ended."""
    workers = [_started(compile_all, root, seed) for seed in range(processes)]
    for each in workers:
        each.join()
    return [each.exitcode for each in workers]


def kill_at_random(root: Path, kills: int, seed: int, processes: int = 4) -> None:
    """Keep some processes at work; kill one of them after the other, and start another instead."""
    draw, numbers = Random(seed), iter(range(seed, 1 << 30))
    running = [_started(compile_for_ever, root, next(numbers)) for _ in range(processes)]
    try:
        for _ in range(kills):
            time.sleep(draw.uniform(0.0, 0.6))
            victim = running.pop(draw.randrange(len(running)))
            victim.kill()
            running.append(_started(compile_for_ever, root, next(numbers)))
            victim.join()
    finally:
        for each in running:
            each.kill()
            each.join()


def _started(function: Callable[[Path, int], None], root: Path, seed: int) -> BaseProcess:
    worker = _FORK.Process(target=function, args=(root, seed))
    worker.start()
    return worker


def main() -> None:
    """Compile every program twice with the cache that the variables name."""
    for number in (*range(GRAPHS), *range(GRAPHS)):
        assert is_right(number), number
    store = open_store()
    print(0 if store is None else len(store.entries()), "entries")


if __name__ == "__main__":
    main()
