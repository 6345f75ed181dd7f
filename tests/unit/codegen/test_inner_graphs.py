"""Graphs that operators call (`torch.cond`, loops, nested regions) are compiled, each once."""

import logging
from pathlib import Path

import pytest
import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.compiler import nested_compile_region
from torch.utils import _pytree as pytree

from ctk.compiler.lowering.operators import LOWERINGS
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers.program import capture_cases

aten = torch.ops.aten
X, W = torch.linspace(-1, 2, 20).view(5, 4), torch.linspace(-1, 1, 16).view(4, 4)


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))


def inner_branches(x):
    def first(x):
        return torch.cond(x.amax() > 9, lambda x: x.sin() * 2, lambda x: x.cos() * 3, (x,))

    return torch.cond(x.sum() > 0, first, lambda x: x.cos() * 2, (x,))


def loop(x):
    return while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, (x.sin() + 1).cos()), (torch.tensor(0), x)
    )


def scanned(x):
    return scan(lambda c, y: ((c + y).sin(), (c * y).cos()), torch.zeros(4), x)


def mapped(x):
    return map_over(lambda y: y.sin() + 1, x)


@nested_compile_region
def block(x, w):
    return (x @ w).relu() + x.sin()


def regions(x, w):
    for _ in range(4):
        x = block(x, w)
    return x


def run(function, *inputs, veto=None, dynamic=False, observe=True, **config):
    """Compile, compare with eager; return the recorder and the kernels that were compiled."""
    torch._dynamo.reset()
    recorder = Recorder(veto, keep_calls=True) if observe else None

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, config, recorder)

    found = torch.compile(function, backend=backend, dynamic=dynamic)(*inputs)
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(function(*inputs)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    return recorder


CALLERS = [(branches, "cond"), (inner_branches, "cond"), (loop, "while_loop"), (scanned, "scan"),
           (mapped, "map_impl")]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "name"), CALLERS)
def test_a_called_graph_is_a_kernel(function, name, dynamic):
    recorder = run(function, X, dynamic=dynamic)
    (kernel,) = [k for k in recorder.log.kernels() if k.nodes == (name,)]
    assert str(kernel.id) == f"lowered/c:forward.{name}"
    assert "kernel_" in kernel.source
    run(function, X, dynamic=dynamic, observe=False)


def test_a_vetoed_graph_runs_in_eager():
    veto = Veto(kernels=frozenset({"lowered/c:forward.cond"}))
    (kernel,) = [k for k in run(branches, X, veto=veto).log.kernels() if k.nodes == ("cond",)]
    assert kernel.vetoed


def test_a_region_is_compiled_once(monkeypatch):
    from ctk.compiler.codegen.schedule.compilation import _Compilation

    compiled, right = [], _Compilation._compile_inner
    monkeypatch.setattr(
        _Compilation, "_compile_inner", lambda *args: compiled.append(args) or right(*args)
    )
    run(regions, X, W)
    assert len(compiled) == 1
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    torch._dynamo.reset()
    function = torch.compile(regions, backend=lambda gm, inputs: compile_fx(gm, inputs, {}))
    function(x, w).sum().backward()
    assert len(compiled) == 3  # and one for forward, one for backward
    mine, x.grad = x.grad, None
    regions(x, w).sum().backward()
    torch.testing.assert_close(mine, x.grad)


def test_training_through_a_scan():
    def steps(x, w):
        return scan(lambda c, y: ((c @ w + y).sin(), (c * y).cos()), torch.zeros(4), x)[1]

    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    compiled = torch.compile(steps, backend=lambda gm, inputs: compile_fx(gm, inputs, {}))
    found, expected = (
        torch.autograd.grad(f(x, w).square().sum(), (x, w)) for f in (compiled, steps)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("function", [branches, loop, scanned, mapped])
def test_a_compiled_graph_is_kept_in_the_cache(function, caplog):
    torch._dynamo.reset()
    caplog.set_level(logging.INFO, "ctk.cache")
    for _ in range(2):
        torch._dynamo.reset()
        found = torch.compile(function, backend="ctk")(X)
        for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(function(X)), strict=True):
            torch.testing.assert_close(a, b)
    assert "not kept" not in caplog.text


@pytest.mark.parametrize(("function", "name"), [CALLERS[0], CALLERS[2]])
def test_a_wrong_kernel_inside_is_blamed_on_the_call(function, name, monkeypatch):
    monkeypatch.setitem(LOWERINGS, aten.sin.default, LOWERINGS[aten.cos.default])
    with torch.no_grad():
        (case,) = capture_cases(UserProgram(function, (X,), {}, "planted", Path(__file__)))
        search = find_culprit(case)
    assert search.culprit.where == f"lowered/c:forward.{name}"
    assert search.confirmed
