"""`torch.compiler` and `torch.compile` around the backend: stances, export, regions of a model."""

import pytest
import torch
from torch._dynamo.utils import counters


def program(x):
    return torch.relu(x.sin()) * 2


def compiled():
    torch.compiler.reset()
    return torch.compile(program, backend="ctk", dynamic=False)


def compiles(run, *sizes):
    """Return the number of graphs that Dynamo compiles for calls with some sizes."""
    counters.clear()
    for size in sizes:
        x = torch.linspace(-1, 1, size)
        torch.testing.assert_close(run(x), program(x))
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    ("stance", "expected"),
    [
        ("default", 1),
        ("force_eager", 0),
        ("eager_on_recompile", 0),
        ("eager_then_compile", 1),
        ("aot_eager_then_compile", 1),
    ],
)
def test_stances(stance, expected):
    run = compiled()
    with torch.compiler.set_stance(stance):
        assert compiles(run, 3, 3, 3) == expected


def test_a_stance_refuses_a_recompile():
    run = compiled()
    assert compiles(run, 3) == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiles(run, 3) == 0
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            run(torch.ones(4))


def test_a_stance_skips_guards_and_forces_the_backend():
    run = compiled()
    assert compiles(run, 3) == 1
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        assert compiles(run, 3) == 0
    torch.compiler.reset()
    with torch.compiler.set_stance("default", force_backend="ctk"):
        assert compiles(torch.compile(program, backend="eager"), 3) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_a_module_that_compiles_a_part(strict):
    run = compiled()

    class Model(torch.nn.Module):
        def forward(self, x):
            return run(x) + 1

    x = torch.linspace(-1, 1, 3)
    exported = torch.export.export(Model(), (x,), strict=strict)
    torch.testing.assert_close(exported.module()(x), program(x) + 1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))


@torch.no_grad()
def test_repeated_blocks_are_compiled_once():
    torch.compiler.reset()
    counters.clear()
    model, x = torch.nn.Sequential(*(Block() for _ in range(5))), torch.ones(2, 4)
    expected = model(x)
    for block in model:
        block.compile(backend="ctk", fullgraph=True)
    torch.testing.assert_close(model(x), expected)
    assert counters["stats"]["unique_graphs"] == 1


def test_sources_of_dynamic_sizes():
    run = torch.compile(program, backend="ctk")
    torch.compiler.reset()
    with torch.compiler.config.patch(dynamic_sources="L['x']"):
        assert compiles(run, 3, 4, 5) == 1
