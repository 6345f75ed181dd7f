"""Real schedules as JSON and back, run; and stored graphs in which something is wrong."""

import copy
import json

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.c.c_codegen import CODEGEN
from ctk.compiler.codegen.kernels import KernelContext
from ctk.compiler.errors import ArtifactError
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.runtime.compiled_graph import load_graph
from ctk.compiler.runtime.schedule_json import schedule_json, schedule_of

aten = torch.ops.aten


def heads(x, w):
    q, k, v = (torch.relu(x) @ w).view(2, -1, 18).split(6, -1)
    q, k, v = (each.unflatten(-1, (2, 3)).transpose(1, 2) for each in (q, k, v))
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v, x.shape[0] * 2


def edges(x, y):
    x.add_(1)
    values, places = torch.sort(y, dim=-1, stable=True)
    picked = torch.where(y > 0, values, -0.0).clamp(max=float("inf"))
    return x, picked.to(torch.bfloat16), places, torch.full_like(y, float("nan")), y.new_zeros(0, 3)


def gather(table, at):
    return (table[at].sum(-1), torch.stack([table[0], table[1] * 2]).t().contiguous())


def normed(x, weight):
    out, mean, rstd = aten.native_layer_norm.default(x, [6], weight, None, 1e-5)
    return aten.convolution.default(
        out.view(1, 4, 1, 6), torch.ones(2, 4, 1, 3), None, [1, 1], [0, 1], [1, 1], False, [0, 0], 1
    ), mean, rstd  # fmt: skip


PROGRAMS = {
    "heads": (heads, (torch.randn(8, 5), torch.randn(5, 18)), "fake"),
    "heads, any size": (heads, (torch.randn(8, 5), torch.randn(5, 18)), "symbolic"),
    "edges": (edges, (torch.randn(4, 3), torch.randn(4, 3)), "fake"),
    "gather, any size": (gather, (torch.randn(5, 3), torch.tensor([4, 0])), "symbolic"),
    "normed": (normed, (torch.randn(4, 6), torch.randn(6)), "fake"),
}


def compiled(name):
    function, inputs, mode = PROGRAMS[name]
    gm = make_fx(function, tracing_mode=mode)(*(each.clone() for each in inputs))
    context = KernelContext(CODEGEN, "forward", Numbering(None, Config()))
    return CODEGEN.compile(gm, list(inputs), context), inputs


def stored(run):
    data, blobs = run.ctk_data().stored("constants/")
    return json.loads(json.dumps(data)), blobs


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_schedule_comes_back_the_same_and_runs_the_same(name):
    run, inputs = compiled(name)
    data, blobs = stored(run)
    assert schedule_json(schedule_of(data["schedule"])) == data["schedule"]
    code = load_graph(data, blobs)
    assert code.text == run.ctk_source()
    wanted = run([each.clone() for each in inputs])
    found = code.function([each.clone() for each in inputs])
    for value, expected in zip(found, wanted, strict=True):
        assert type(value) is type(expected)
        if isinstance(value, torch.Tensor):
            assert value.stride() == expected.stride()
        torch.testing.assert_close(value, expected, rtol=0, atol=0, equal_nan=True)


def test_a_library_is_looked_at_once_for_all_of_its_kernels(monkeypatch):
    from ctk.compiler.runtime import c_kernels

    data, blobs = stored(compiled("edges")[0])
    data["kernels"] *= 50
    asked = []
    original = c_kernels.load_library
    monkeypatch.setattr(c_kernels, "load_library", lambda b: asked.append(1) or original(b))
    load_graph(data, blobs)
    assert len(asked) == len({kernel["library"] for kernel in data["kernels"]})


def _places(data, path=()):
    """Yield the way to each value within JSON."""
    yield path
    if not isinstance(data, dict | list):
        return
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from _places(value, (*path, key))


def _with(data, path, change):
    changed = copy.deepcopy(data)
    owner = changed
    for key in path[:-1]:
        owner = owner[key]
    change(owner, path[-1])
    return changed


CHANGES = {
    "missing": lambda owner, key: owner.pop(key),
    "none": lambda owner, key: owner.__setitem__(key, None),
    "text": lambda owner, key: owner.__setitem__(key, "x = 1; y"),
    "empty": lambda owner, key: owner.__setitem__(key, {}),
    "huge": lambda owner, key: owner.__setitem__(key, 10**30),
}


@pytest.mark.parametrize(
    "change",
    [each if each == "text" else pytest.param(each, marks=pytest.mark.slow) for each in CHANGES],
)
def test_a_stored_graph_loads_or_is_refused_clearly_whatever_is_changed(change):
    data, blobs = stored(compiled("heads, any size")[0])
    refused = 0
    for path in list(_places(data))[1:]:
        try:
            load_graph(_with(data, path, CHANGES[change]), blobs)
        except ArtifactError as error:
            assert str(error)
            refused += 1
    assert refused > 50


def test_a_kernel_that_is_not_there_is_no_launch():
    data, blobs = stored(compiled("edges")[0])
    with pytest.raises(ArtifactError, match=r"launches kernel \d of 0"):
        load_graph({**data, "kernels": []}, blobs)


def test_lists_without_end_are_refused():
    data, blobs = stored(compiled("edges")[0])
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ArtifactError, match="malformed"):
        load_graph({**data, "schedule": {**data["schedule"], "result": deep}}, blobs)
