"""Packages beside `torch._inductor.aoti_compile_and_package`: size, compile, load, calls.

Each package is compiled in a fresh process and called in another; ours and Inductor's take turns.
`fresh` is from the start of a process to its first result, in seconds; `w/o torch` is that without
`import torch`. What a fresh process that compiles takes (`live`: torch.compile with the backend
`ctk`) stands beside it. `call` is the median of steady calls in microseconds.

    python -m benchmarks.packages [--device cpu|cuda] [--only WORD,...] [--scale N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("ctk", "inductor")


def main() -> None:
    """Print one line for each family of models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        _child(*args.child)
        return
    from tests.helpers.model_families import FAMILIES

    names = [each for each in FAMILIES if not args.only or each in args.only.split(",")]
    heads = ("KiB", "compile s", "load ms", "first ms", "fresh s", "w/o torch")
    more = ("live s", "w/o torch", "call us", "error")
    widths = (8, 11, 9, 10, 9, 11, 8, 11, 9, 10)
    print(" " * 22 + "".join(f"{h:>{w}}" for h, w in zip((*heads, *more), widths, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            _family(name, args.device, Path(folder), args.rounds)


class PeerFailed(Exception):
    """Inductor's package cannot be made or called; says why."""


def _family(name: str, device: str, folder: Path, rounds: int) -> None:
    lives = [_run("live", "ctk", name, device, "") for _ in range(rounds)]
    live = {key: statistics.median(each[key] for each in lives) for key in lives[0]}
    made: dict[str, float] = {}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    paths = {kind: str(folder / f"{name}.{'ctk' if kind == 'ctk' else 'pt2'}") for kind in KINDS}
    for number in range(rounds + 1):
        for kind in [each for each in KINDS if number == 0 or each in made]:
            try:
                if number == 0:
                    made[kind] = _run("compile", kind, name, device, paths[kind])["compile"]
                else:
                    found[kind].append(_run("call", kind, name, device, paths[kind]))
            except PeerFailed as error:
                print(f"{name + ' ' + kind:22}{error}", flush=True)
                made.pop(kind, None)
    for kind in made:
        row = {key: statistics.median(each[key] for each in found[kind]) for key in found[kind][0]}
        shown = f"{live['fresh']:8.2f}{live['own']:11.2f}" if kind == "ctk" else f"{'':19}"
        size = Path(paths[kind]).stat().st_size / 1024
        print(f"{name + ' ' + kind:22}{size:8.0f}{made[kind]:11.2f}{row['load'] * 1e3:9.1f}"
              f"{row['first'] * 1e3:10.2f}{row['fresh']:9.2f}{row['own']:11.3f}{shown}"
              f"{row['call'] * 1e6:9.1f}{row['error']:10.1e}", flush=True)  # fmt: skip


def _run(what: str, kind: str, name: str, device: str, path: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.packages"]
    started = time.time()
    child = [*command, "--device", device, "--child", what, kind, name, path]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    if done.returncode and kind == "ctk":
        raise SystemExit(f"{what} {kind} {name} failed:\n{done.stderr[-3000:]}")
    if done.returncode:
        told = done.stderr.strip().rpartition("\n")[2] or f"exit {done.returncode}"
        raise PeerFailed(f"{what}: {told}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if "ended" in found:
        found["fresh"] = found.pop("ended") - started
        found["own"] = found["fresh"] - found.pop("torch") - (found.pop("began") - started)
    return found


def _child(what: str, kind: str, name: str, path: str) -> None:
    """Do one thing in a fresh process, and print what it took."""
    began = time.time()
    import torch

    seconds = time.time() - began
    device = sys.argv[sys.argv.index("--device") + 1]
    if what == "call":
        print(json.dumps(_called(kind, name, device, path, seconds, began)))
        return
    from tests.helpers.model_families import FAMILIES, dynamic_shapes

    make, inputs = FAMILIES[name][:2]
    torch.manual_seed(0)
    model, args = make().eval().to(device), tuple(each.to(device) for each in inputs(4))
    if what == "live":
        from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo

        dynamo.capture_data_dependent_sizes()
        with torch.no_grad():
            torch.compile(model, backend="ctk", dynamic=True)(*args)
            _finish(device)
        print(json.dumps({"torch": seconds, "began": began, "ended": time.time()}))
        return
    with torch.no_grad():
        program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes(name))
        expected = model(*args)
    torch.save((args, expected), f"{path}.inputs")
    started = time.perf_counter()
    if kind == "ctk":
        import ctk

        ctk.aot_compile(program, path=path)
    else:
        from ctk.compiler.torch_compat.inductor import inductor_api as inductor

        inductor.write_aot_package(program, path)
    print(json.dumps({"compile": time.perf_counter() - started}))


def _called(
    kind: str, name: str, device: str, path: str, seconds: float, began: float
) -> dict[str, float]:
    import torch

    from ctk.compiler.torch_compat.inductor import inductor_api as inductor

    args, expected = torch.load(f"{path}.inputs")
    started = time.perf_counter()
    if kind == "ctk":
        import ctk

        package = ctk.load(path)
    else:
        package = inductor.load_aot_package(path)
    loaded = time.perf_counter()
    result = package(*args)
    _finish(device)
    ended, first = time.time(), time.perf_counter()
    error = max(
        (got - want).abs().max().item()
        for got, want in zip(_flat(result), _flat(expected), strict=True)
    )
    times: list[float] = []
    for _ in range(300):
        before = time.perf_counter()
        package(*args)
        times.append(time.perf_counter() - before)
    _finish(device)
    return {
        "load": loaded - started, "first": first - loaded, "error": error, "torch": seconds,
        "began": began, "ended": ended, "call": statistics.median(times),
    }  # fmt: skip


def _flat(result: object) -> list[object]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _finish(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
