"""Cases with planted Dynamo backends, and how the tests run the repros that are emitted for them.

Most scripts run in this process (`runpy`), because starting torch takes seconds;
tests/repo/test_repro_standalone.py runs some in a clean one.
"""

import contextlib
import dataclasses
import io
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.run import write_repro

ACCURACY = Signature("accuracy", output="out0", message="max abs 1")

BACKENDS = """
import torch

def honest(gm, example_inputs, options=None):
    return gm.forward

def wrong(gm, example_inputs, options=None):
    amount = (options or {}).get("amount", 1)
    def run(*args):
        return tuple(
            out + amount if isinstance(out, torch.Tensor) and out.is_floating_point() else out
            for out in gm(*args)
        )
    return run

def wrong_if_dynamic(gm, example_inputs):
    is_dynamic = any(isinstance(x, torch.SymInt) for x in example_inputs)
    return wrong(gm, example_inputs) if is_dynamic else gm.forward

def wrong_input(gm, example_inputs):
    def run(*args):
        out = gm(*args)
        with torch.no_grad():
            for x in args:
                if isinstance(x, torch.Tensor):
                    x.add_(1)
        return out
    return run

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

def wrong_gradient(gm, example_inputs):
    return lambda *args: tuple(Twice.apply(out) for out in gm(*args))

def raises(gm, example_inputs):
    raise ValueError("planted compile error")

def leaves(gm, example_inputs):
    raise SystemExit(0)

def ends_the_process(gm, example_inputs):
    import os
    os._exit(0)

def raises_when_called(gm, example_inputs):
    def run(*args):
        raise KeyError("planted runtime error")
    return run

def other_dtype(gm, example_inputs):
    return lambda *args: tuple(out.double() for out in gm(*args))

def other_strides(gm, example_inputs):
    return lambda *args: tuple(out.t().contiguous().t() for out in gm(*args))

def raises_nothing(gm, example_inputs):
    return lambda *args: tuple(args[:1])

def crashes(gm, example_inputs):
    def run(*args):
        raise ArithmeticError("kernel crashed")
    return run

def other_draws(gm, example_inputs):
    def run(*args):
        torch.rand(3)
        return gm(*args)
    return run

def makes_nan(gm, example_inputs):
    return lambda *args: tuple(out.log() * 0 + out for out in gm(*args))

def dies(gm, example_inputs):
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def captured(
    program: Callable[..., object], inputs: Sequence[object], *, dynamic: bool | None = None
) -> tuple[GraphModule, tuple[object, ...]]:
    """Return the graph that Dynamo captures of a program, and its inputs."""
    seen: list[tuple[GraphModule, tuple[object, ...]]] = []

    def backend(gm: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        def run(*args: object) -> object:
            seen.append(
                (gm, tuple(a.clone().detach() if type(a) is torch.Tensor else a for a in args))
            )
            return gm(*args)

        return run

    torch.compile(program, backend=backend, dynamic=dynamic)(*inputs)
    return seen[0]


def make_case(program: Callable[..., object], *inputs: object, target: str, **more: object) -> Case:
    """Return the case of a program as Dynamo captures it, failing with `ACCURACY`."""
    graph, values = captured(program, inputs)
    return dataclasses.replace(Case(graph, values, target, signature=ACCURACY), **more)


def run_here(path: Path) -> tuple[int, str]:
    """Run a script in this process; return its exit code and verdict."""
    output = io.StringIO()
    default = torch.get_default_dtype()
    torch.compiler.reset()
    try:
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        torch.set_default_dtype(default)
        torch.use_deterministic_algorithms(False)
    return int(str(ended.value.code)), output.getvalue()


def verdict_of(case: Case, folder: Path) -> tuple[int, str]:
    """Write the repro of a case and run it here; return its exit code and verdict."""
    return run_here(write_repro(case, folder))


def fails_and_heals(case: Case, folder: Path, backends: Path) -> str:
    """Check that a repro fails with its backend and passes with an honest one; return its text."""
    code, said = verdict_of(case, folder)
    assert code == 1, said
    assert said.startswith("FAILURE: ")
    assert "another failure" not in said
    honest = dataclasses.replace(case, target=f"{backends}:honest")
    other = folder / "honest"  # its copy of the backends has others of them
    other.mkdir()
    code, said = verdict_of(honest, other)
    assert (code, said) == (0, "NO FAILURE: the compiled program agrees with eager\n")
    return write_repro(case, folder).read_text()
