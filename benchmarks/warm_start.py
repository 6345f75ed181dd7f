"""What a process saves that finds its compiles in the persistent cache, beside Inductor's caches.

    python -m benchmarks.warm_start [--warm 2] [--deepest 2000] [--deepest-inductor 300]
        [--models encoder convnet ...]

Each figure is of a process of its own: one with an empty cache (cold), then some with what that one
has kept (hit, medians). `compile` is the time in the backend, which Dynamo calls with a captured
graph; `first call` is all of the first call, with Dynamo's capture and, in training, the backward.
The backend's module is imported before. `process` is the whole process: most of it is the import of
torch and of the model's library. Inductor has its FX graph cache and AOTAutograd's cache on. In
training Inductor compiles the backward, when it is cold, in the first backward call: it is part of
`first call` and not of `compile`; ctk compiles both in the backend where the cache is on.
`--models` also takes names of `model_zoo.py`. At the end the time of a hit over the number of
nodes: MLPs of 10 layers and more.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

COMPILERS = ("ctk", "inductor")
FAMILIES = ("encoder", "decoder", "convnet", "recurrent", "mixture")
DEPTHS = (10, 30, 100, 300, 1000, 2000)
BATCH = 64


def model_of(name):
    """Return a model and its inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name in FAMILIES:
        from tests.helpers.model_families import FAMILIES as families

        make, inputs, _ = families[name]
        return make(), inputs(BATCH)
    if name == "encoder of 12 layers":
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), (
            torch.randn(4, 64, 256),
        )
    from benchmarks.model_zoo import MODELS

    if name in MODELS:
        model, inputs = MODELS[name][0](False)
        return model, tuple(inputs)
    depth = int(name.removeprefix("mlp "))
    layers = [each for _ in range(depth) for each in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(*layers), (torch.randn(8, 16),)


def child(compiler, name, mode):
    """Compile one model in this process; print what it took."""
    import torch

    torch.set_num_threads(1)
    if compiler == "ctk":
        from ctk.compiler.backend import ctk as backend
        from ctk.compiler.pipeline import compile_fx  # noqa: F401  (imported before, as Inductor's)
    else:
        from ctk.compiler.torch_compat.inductor import inductor_api as inductor

        backend = inductor.cached_backend()
    spent, nodes = [], []

    def timed(gm, example_inputs):
        nodes.append(len(gm.graph.nodes))
        started = time.perf_counter()
        run = backend(gm, example_inputs)
        spent.append(time.perf_counter() - started)
        return run

    model, inputs = model_of(name)
    is_training = mode == "training"
    model.train(is_training)
    sys.setrecursionlimit(100_000)
    with torch.set_grad_enabled(is_training):
        started = time.perf_counter()
        found = torch.compile(model, backend=timed)(*inputs)
        if is_training:
            first = found[0] if isinstance(found, tuple) else found
            first.float().pow(2).mean().backward()
        first_call = time.perf_counter() - started
    print(json.dumps({"nodes": sum(nodes), "compile": sum(spent), "first call": first_call}))


def ran(compiler, name, mode, folder):
    """Return what a process of its own measures with the caches in a folder."""
    names = ("CTK_", "TORCHINDUCTOR_CACHE_DIR")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    environment |= {
        "CTK_CACHE_DIR": f"{folder}/ctk",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    command = [sys.executable, "-m", "benchmarks.warm_start", "--child", compiler, name, mode]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    whole = time.perf_counter() - started
    return {**json.loads(done.stdout.splitlines()[-1]), "process": whole}


def measured(compiler, name, mode, repeats):
    """Return the figures of a cold process, and the medians of those that find its entry."""
    with tempfile.TemporaryDirectory() as folder:
        cold = ran(compiler, name, mode, folder)
        warm = [ran(compiler, name, mode, folder) for _ in range(repeats)]
    return cold, {key: statistics.median(each[key] for each in warm) for key in cold}


def row(compiler, name, mode, repeats):
    """Measure and print one line; return nodes and seconds of the hit."""
    cold, warm = measured(compiler, name, mode, repeats)
    ratio = warm["compile"] / cold["compile"]
    print(
        f"{name:<22}{mode:<10}{compiler:<10}{cold['nodes']:6}{cold['compile']:9.3f}"
        f"{warm['compile']:9.3f}{ratio:7.3f}{cold['first call']:11.3f}{warm['first call']:9.3f}"
        f"{cold['process']:9.2f}{warm['process']:8.2f}"
        f"{1e3 * warm['compile'] / cold['nodes'] * 1e3:10.1f}",
        flush=True,
    )
    return cold["nodes"], warm["compile"]


def exponent(points):
    """Return the exponent of a power that fits the points best."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    return statistics.linear_regression(xs, ys).slope


def main():
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", type=int, default=2, help="processes that find the entry")
    parser.add_argument("--deepest", type=int, default=2000, help="0: no MLPs")
    parser.add_argument("--deepest-inductor", type=int, default=300)
    parser.add_argument("--models", nargs="*", default=[*FAMILIES, "encoder of 12 layers"])
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    import torch

    cores = len(os.sched_getaffinity(0))
    print(f"torch {torch.__version__}, {platform.machine()}, {cores} cores, 1 thread; seconds")
    print(
        f"{'':<48}{'compile':>9}{'':>9}{'':>7}{'first call':>11}{'':>9}{'process':>9}\n"
        f"{'model':<22}{'mode':<10}{'compiler':<10}{'nodes':>6}{'cold':>9}{'hit':>9}{'ratio':>7}"
        f"{'cold':>11}{'hit':>9}{'cold':>9}{'hit':>8}{'ms/1000':>10}"
    )
    for name in options.models:
        for mode in ("inference", "training"):
            for compiler in COMPILERS:
                row(compiler, name, mode, options.warm)
    if not options.deepest:
        return
    for compiler, deepest in zip(
        COMPILERS, (options.deepest, options.deepest_inductor), strict=True
    ):
        points = [
            row(compiler, f"mlp {depth}", "inference", options.warm)
            for depth in DEPTHS
            if depth <= deepest
        ]
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope
        print(
            f"{compiler}: a hit takes {1e6 * slope:.0f} ms more for each 1,000 nodes "
            f"(least squares); exponent {exponent(points):.2f} over all, "
            f"{exponent(points[-3:]):.2f} over the last 3"
        )


if __name__ == "__main__":
    main()
