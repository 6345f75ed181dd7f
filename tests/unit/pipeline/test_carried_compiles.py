"""Compiles that torch carries to another process: saved functions, and artifacts of the cache."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.cache import portable_entries
from ctk.compiler.errors import ArtifactError, ContainerError
from ctk.compiler.pipeline import compile_fx
from tests.helpers.project import ROOT

FUNCTIONS = """
import sys
import torch
import torch._dynamo

def double(x):
    return torch.relu(x.sin()) * 2

def rows(x):
    return x.softmax(-1), x.shape[0]

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))

def no_compile():
    from ctk.compiler.pipeline import Compile
    def fail(self):
        raise AssertionError("compiled again")
    Compile.compile = fail
"""

SAVE = """
x = torch.arange(6.).reshape(2, 3)
wide = torch.arange(6.).reshape(2, 3)
torch._dynamo.mark_dynamic(wide, 0)
for name, f, given in (
    ("static", double, x), ("dynamic", rows, wide), ("training", double, x.clone().requires_grad_())
):
    compiled = torch.compile(f, backend="ctk", fullgraph=True).aot_compile(((given,), {}))
    compiled(given)
    compiled.save_compiled_function(f"{name}.pt")
"""

LOAD = """
no_compile()
def load(name):
    with open(f"{name}.pt", "rb") as file:
        return torch.compiler.load_compiled_function(file)
x = torch.arange(6.).reshape(2, 3)
torch.testing.assert_close(load("static")(x), double(x))
for n in (2, 7):
    given = torch.randn(n, 3)
    torch.testing.assert_close(load("dynamic")(given)[0], rows(given)[0])
    assert load("dynamic")(given)[1] == n
given = x.clone().requires_grad_()
load("training")(given).sum().backward()
torch.testing.assert_close(given.grad, (x.sin() > 0) * x.cos() * 2)
try:
    load("static")(torch.ones(3, 3))
except RuntimeError as error:
    assert "GuardManager check failed" in str(error)
else:
    raise AssertionError("no guard on the size")
"""

STORE = """
x = torch.arange(6.).reshape(2, 3)
layer = Layer()
compiled = torch.compile(layer, backend="ctk")
compiled(torch.ones(2, 4)).sum().backward()
torch.compile(double, backend="ctk", dynamic=True)(x)
found = torch.compiler.save_cache_artifacts()
with open("artifacts", "wb") as file:
    file.write(found[0])
assert len(found[1].artifacts["ctk"]) == 2, found[1]
"""

HIT = """
layer = Layer()
compiled = torch.compile(layer, backend="ctk")
with open("artifacts", "rb") as file:
    torch.compiler.load_cache_artifacts(file.read())
no_compile()
compiled(torch.ones(2, 4)).sum().backward()
given = torch.arange(6.).reshape(2, 3)
torch.testing.assert_close(torch.compile(double, backend="ctk", dynamic=True)(given), double(given))
"""


def run(text: str, folder: Path, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program in a process of its own, with a cache of its own."""
    monkeypatch.setenv("CTK_CACHE_DIR", str(folder / cache))
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / "program.py").write_text(FUNCTIONS + text)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_saved_function_runs_in_another_process_without_a_compile(tmp_path, monkeypatch):
    run(SAVE, tmp_path, "a", monkeypatch)
    run(LOAD, tmp_path, "b", monkeypatch)


def test_artifacts_of_the_cache_hit_in_another_process(tmp_path, monkeypatch):
    run(STORE, tmp_path, "a", monkeypatch)
    run(HIT, tmp_path, "b", monkeypatch)


def saved(function, *args):
    compiled = torch.compile(function, backend="ctk", fullgraph=True).aot_compile((args, {}))
    return compiled._artifacts.compiled_fn


def test_a_changed_file_is_refused():
    kept = saved(lambda x: x.sin() + 1, torch.ones(3))
    data = type(kept).serialize_compile_artifacts(kept)
    torch.testing.assert_close(
        type(kept).deserialize_compile_artifacts(data)(torch.ones(3))[0], torch.ones(3).sin() + 1
    )
    with pytest.raises(ContainerError, match="its bytes have changed"):
        type(kept).deserialize_compile_artifacts(data[:100] + b"x" + data[101:])


def test_a_function_that_cannot_be_saved_runs_and_gives_the_reason():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        kept = saved(lambda x: x.sin().exp(), torch.ones(3, requires_grad=True))
    torch.testing.assert_close(kept(torch.ones(3))[0], torch.ones(3).sin().exp())
    with pytest.raises(ArtifactError, match="cannot be saved: hooks on saved tensors are on"):
        type(kept).serialize_compile_artifacts(kept)


def test_a_function_of_another_compiler_is_not_saved():
    def backend(gm, inputs):
        return compile_fx(gm, inputs, inner_compile=lambda graph, *_, **__: graph.forward)

    function = torch.compile(lambda x: x.sin(), backend=backend, fullgraph=True)
    kept = function.aot_compile(((torch.ones(3),), {}))._artifacts.compiled_fn
    with pytest.raises(ArtifactError, match="let it return the result of compile_fx_inner"):
        type(kept).serialize_compile_artifacts(kept)


def test_a_damaged_artifact_is_left_out(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CTK_CACHE", "1")
    portable_entries.register()
    portable_entries._populate("0" * 64, b"not an entry")
    assert "an artifact is not put into the cache" in caplog.text
