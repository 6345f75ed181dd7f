"""Torch's databases of operators and modules through the `ctk` backend, next to `aot_eager`.

Every sample of every operator (`op_db`) and module (`module_db`, in training and evaluation): the
compiled call must give what eager gives, or raise what eager raises; forward, and backward where it
has one. Compared as programs are (`repro_templates/program/program_compare.py`). A
sample that `aot_eager` gets wrong, too, is torch's own. Prints a table per code generator, and
every sample that `aot_eager` gets right and ctk does not.

    python -m benchmarks.op_coverage [--ops WORD,WORD] [--samples N] [--dtype float64] [--modules]
        [--codegen c,torchscript,eager] [--device cuda] [--dynamic] [--seconds S] [--limit N]
        [--jobs N] [--config NAME=VALUE]...

Operators whose results eager does not determine (`empty`) are left out. Needs `expecttest`
(torch's databases import it).
"""

import argparse
import contextlib
import math
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import Any

import torch

from ctk.compiler.backend import ctk
from ctk.compiler.observe import first_line
from ctk.compiler.options.config import patch
from ctk.repro_templates.program.program_arguments import Arguments
from ctk.repro_templates.program.program_compare import EagerPlays, compare_plays
from ctk.repro_templates.program.program_play import How, Playable, play
from ctk.toolkit.case.formats.scalars import dtype_from_name
from ctk.toolkit.options import parse_config
from tests.helpers.torch_samples import flat_call, map_tensors, module_infos, operator_infos

Make = Callable[[], Playable]
Compilers = dict[str, dict[str, Any]]
PEER = "aot_eager"
UNDETERMINED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)


@dataclass(slots=True)
class Told:
    """What was seen of one compiler."""

    counts: Counter[str] = field(default_factory=Counter[str])
    worse: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


@dataclass(slots=True)
class Part:
    """What one process saw, of as many samples as it had time for."""

    of: dict[str, Told]
    samples: int = 0
    asked: int = 0


def compilers(generators: Sequence[str], *, dynamic: bool) -> Compilers:
    """Return the options of `torch.compile` by the name of each compiler."""
    sizes: dict[str, Any] = {"dynamic": True} if dynamic else {}
    ours = {
        f"ctk, {name}": {"backend": ctk, "options": {"codegen": name}, **sizes}
        for name in generators
    }
    return {PEER: {"backend": PEER, **sizes}, **ours}


def operators(
    words: Sequence[str], dtype: torch.dtype, count: int, device: str
) -> Iterator[tuple[str, Make]]:
    """Yield the samples of each operator that has the dtype."""
    for info in operator_infos():
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        wanted = not words or any(word in name for word in words)
        if not wanted or name in UNDETERMINED or not info.supports_dtype(dtype, device):
            continue
        wants = bool(info.supports_autograd and dtype in info.supported_backward_dtypes(device))
        with contextlib.suppress(RuntimeError, ModuleNotFoundError, AssertionError):
            torch.manual_seed(0)
            samples = info.sample_inputs(device, dtype, requires_grad=wants)
            for number, sample in enumerate(islice(samples, count)):
                yield f"{name}[{number}]", made(*flat_call(info.op, sample))


def made(call: Callable[..., object], tensors: tuple[torch.Tensor, ...]) -> Make:
    """Return what makes the program of a call, on copies of its tensors."""

    def make() -> Playable:
        def given() -> Arguments:
            return Arguments(tuple(copied(each) for each in tensors))

        return Playable(call, [given()], given, says_calls=True)

    return make


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a leaf like a tensor, strides included."""
    with torch.no_grad():
        copy = tensor.detach().clone(memory_format=torch.preserve_format)
    return copy.requires_grad_(tensor.requires_grad)


def modules(
    words: Sequence[str], dtype: torch.dtype, count: int, device: str
) -> Iterator[tuple[str, Make]]:
    """Yield the samples of each module, in training and evaluation."""
    for info in module_infos():
        if (words and not any(word in info.name for word in words)) or dtype not in info.dtypes:
            continue
        for training in (True, False):
            inputs = info.module_inputs_func(
                info, device=device, dtype=dtype, requires_grad=True, training=training
            )
            for number, sample in enumerate(islice(inputs, count)):
                mode = "train" if training else "eval"
                make = made_module(info.module_cls, sample, (device, dtype), training=training)
                yield f"{info.name}.{mode}[{number}]", make


def made_module(cls: type, sample: Any, place: tuple[str, torch.dtype], *, training: bool) -> Make:
    """Return what makes the program of a module's sample."""
    construct, forward = sample.constructor_input, sample.forward_input

    def make() -> Playable:
        torch.manual_seed(0)
        model = cls(*construct.args, **construct.kwargs).to(*place).train(training)

        def given() -> Arguments:
            return Arguments(map_tensors(copied, forward.args), map_tensors(copied, forward.kwargs))

        return Playable(model, [given()], given, says_calls=True)

    return make


def answer(make: Make, keywords: dict[str, Any], *, backward: bool) -> str:
    """Return whether a compiled sample is as eager: `passes`, `flaky`, or what is wrong."""
    torch.compiler.reset()
    how = How(backward=backward)
    try:
        eager = EagerPlays(lambda how: play(make(), how), how)
        found = compare_plays(
            eager, play(make(), eager.how, lambda model: torch.compile(model, **keywords))
        )
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    wrong = found.differences[0] if found.differences else None
    said = f"{wrong.kind} at {wrong.name}: {wrong.detail}" if wrong else found.answer
    return " ".join(said.split())[:160]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="torch's operators and modules through ctk")
    parser.add_argument("--ops", default="", help="words in names, separated by commas")
    parser.add_argument("--samples", type=int, default=1000, help="of each operator at most")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--modules", action="store_true", help="modules instead of operators")
    parser.add_argument("--codegen", default="c,torchscript,eager", help="code generators of ctk")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dynamic", action="store_true", help="with symbolic sizes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which to stop")
    parser.add_argument("--limit", type=int, help="of all samples at most")
    parser.add_argument("--config", action="append", help="an option of ctk, as in `ctk check`")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores")
    jobs = options.jobs
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        parts = [pool.submit(part, options, index) for index in range(jobs)]
        told = [each.result() for each in parts]
    asked = sum(each.asked for each in told)
    print(f"{asked} samples of {sum(each.samples for each in told)}, forward and backward")
    for compiler in compilers(options.codegen.split(","), dynamic=options.dynamic):
        whole = sum((each.of[compiler].counts for each in told), Counter[str]())
        counts = ", ".join(f"{count} {what}" for what, count in whole.most_common())
        count = sum(len(each.of[compiler].worse) for each in told)
        worse = f"; {count} where {PEER} is right" if compiler != PEER else ""
        seconds = sum(each.of[compiler].seconds for each in told)
        print(f"{compiler:<17} {counts}{worse}; {seconds:.0f} s")


def part(options: argparse.Namespace, index: int) -> Part:
    """Ask about every `jobs`-th sample, from one of them on."""
    end = time.monotonic() + options.seconds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    words = [word for word in options.ops.split(",") if word]
    dtype = dtype_from_name(options.dtype, "--dtype")
    source = modules if options.modules else operators
    chosen = islice(source(words, dtype, options.samples, options.device), options.limit)
    tried = compilers(options.codegen.split(","), dynamic=options.dynamic)
    told = Part({name: Told() for name in tried})
    with patch(parse_config(options.config)):
        for name, make in islice(chosen, index, None, options.jobs):
            told.samples += 1
            if time.monotonic() < end:
                told.asked += 1
                ask(name, make, tried, told.of)
    return told


def ask(name: str, make: Make, tried: Compilers, told: Mapping[str, Told]) -> None:
    """Ask every compiler about a sample; print where one is worse than the peer."""
    for backward in (False, True):
        verdicts: list[str] = []  # the peer's is the first
        for compiler, keywords in tried.items():
            started = time.perf_counter()
            said = answer(make, keywords, backward=backward)
            right = said in ("passes", "flaky")
            told[compiler].seconds += time.perf_counter() - started
            told[compiler].counts[said if right else "wrong"] += 1
            verdicts.append(said)
            if verdicts[0] == "passes" and not right:
                what = f"{name}{' backward' * backward}: {said}"
                told[compiler].worse.append(what)
                print(f"  {compiler}: {what}", flush=True)


if __name__ == "__main__":
    main()
