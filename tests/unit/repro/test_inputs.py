"""Emitted repros: modes, constants, symbolic sizes and inputs are those of the case."""

import dataclasses
import runpy
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from ctk.repro_templates.graph.values import randn, strided
from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.repro.run import write_repro
from tests.helpers.repros import ACCURACY, captured, fails_and_heals, make_case, verdict_of


@pytest.mark.parametrize(
    "modes",
    [
        Modes(grad=False),
        Modes(inference=True, grad=False),
        Modes(autocast=(Autocast("cpu", "bfloat16"),)),
        Modes(deterministic=True),
        Modes(default_dtype="float64"),
        Modes(seed=7),
        Modes(settings={"float32_matmul_precision": "high"}),
    ],
    ids=str,
)
def test_modes_are_put_back(modes: Modes, backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ w, torch.tensor([0.1]) + x

    weight = torch.nn.Parameter(torch.ones(2, 2))
    case = make_case(
        program, torch.tensor([[0.5, 2.0]]), weight, target=f"{backends}:wrong", modes=modes
    )
    fails_and_heals(case, folder, backends)


def test_inputs_are_built_where_they_were_whatever_the_default_device(
    backends: Path, folder: Path
) -> None:
    """A GPU as the default device of a whole process, as far as a machine without one can tell."""
    inputs = torch.tensor([[0.5, 2.0]]), torch.nn.Parameter(torch.ones(2, 2))
    modes = Modes(default_device="meta")
    case = make_case(lambda x, w: (x @ w,), *inputs, target=f"{backends}:wrong", modes=modes)
    assert "def default_device(" in fails_and_heals(case, folder, backends)
    with torch.device("meta"):
        assert randn((2,), seed=1).device.type == "cpu"
        assert strided(randn((2, 3), seed=1), (1, 2)).device.type == "cpu"


def test_modes_are_those_of_the_case(backends: Path, folder: Path) -> None:
    """The program itself tells in which modes it runs: eager's outputs would differ otherwise."""
    modes = Modes(grad=False, autocast=(Autocast("cpu", "bfloat16"),), default_dtype="float64")
    case = make_case(
        lambda x: (x @ x, torch.ones(2)),
        torch.ones(2, 2),
        target=f"{backends}:other_dtype",
        modes=modes,
    )
    case = dataclasses.replace(case, signature=Signature("dtype"))
    code, said = verdict_of(case, folder)
    assert code == 1
    # out0 is bfloat16 from autocast; out1 is float64 by default, which `other_dtype` leaves alone.
    assert said == "FAILURE: dtype at out0: float64, eager gives bfloat16\n"


def test_small_buffer_is_a_literal(backends: Path, folder: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.linspace(0, 1, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * self.table,)

    case = make_case(Model(), torch.arange(8.0), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "0.14285715" in text
    assert not (folder / "repro.safetensors").exists()


def test_constants_of_the_graph(backends: Path, folder: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("small", torch.tensor([1.5, -0.0]))
            self.large = torch.nn.Parameter(torch.linspace(0, 1, 200).reshape(2, 100))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return ((x * self.small) @ self.large,)

    graph = torch.fx.symbolic_trace(Model())
    case = Case(graph, (torch.tensor([[1.0, 2.0]]),), f"{backends}:wrong", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert '"small": torch.tensor([1.5, -0.0]),' in text
    assert 'torch.nn.Parameter(stored(DATA, "constant large", (2, 100), torch.float32))' in text


def test_symbolic_batch_stays_symbolic(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.sum(0).expand(x.shape[0], 4) + x.shape[0],)

    x = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    graph, inputs = captured(program, (x,))
    symbol = next(node.name for node in graph.graph.nodes)
    tensor = [node.name for node in graph.graph.nodes if node.op == "placeholder"][1]
    assert isinstance(inputs[0], int)
    case = Case(
        graph,
        inputs,
        f"{backends}:wrong_if_dynamic",
        signature=ACCURACY,
        dynamic={tensor: (symbol, None)},
    )
    text = fails_and_heals(case, folder, backends)
    assert f"{symbol} = {tensor}.size(0)" in text
    fixed = dataclasses.replace(case, dynamic={})
    for node in fixed.graph.graph.nodes:
        node.type = None
        node.meta.clear()
    assert verdict_of(fixed, folder)[0] == 0


def test_free_symbolic_int(backends: Path, folder: Path) -> None:
    graph, inputs = captured(lambda x, n: (x * n,), (torch.ones(3), 5), dynamic=True)
    ints = [value for value in inputs if isinstance(value, int)]
    assert 5 in ints
    case = Case(graph, inputs, f"{backends}:wrong_if_dynamic", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert "dynamic=True" in text


def test_a_part_of_a_storage_keeps_what_is_around_it(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor]:
        torch.as_strided(x, (2, 2), (1, 2), 1).mul_(3)  # counts from the start of the storage
        return (x + 1,)

    def part() -> torch.Tensor:
        return torch.arange(24.0)[3:15].view(3, 4).t()

    graph, _ = captured(program, (part(),))
    case = Case(graph, (part(),), f"{backends}:wrong", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert ".as_strided((4, 3), (1, 4), 3)" in text
    plain = dataclasses.replace(case, graph=captured(lambda x: (x.sin(),), (part(),))[0])
    assert "storage0" not in write_repro(plain, folder).read_text()


def test_bfloat16_and_strides(backends: Path, folder: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4).bfloat16().t()
    graph, _ = captured(lambda x: (x.exp(),), (x,))
    case = Case(graph, (x,), f"{backends}:wrong", {"amount": 1e6}, signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert ", (1, 4))" in text


def test_shared_memory_of_inputs(backends: Path, folder: Path) -> None:
    """The second input sees what the program writes into the first."""
    base = torch.arange(6.0)
    graph, _ = captured(lambda a, b: (a.add_(10), b * 1)[1:], (base[:4].clone(), base[2:].clone()))
    case = Case(graph, (base[:4], base[2:]), f"{backends}:wrong", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert "storage0.as_strided((4,), (1,), 2)" in text
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    program = namespace["GraphProgram"](
        *(namespace[name] for name in ("module", "inputs", "compiled", "MODES", "EXPECTED"))
    )
    results = namespace["run"](program, program.module()).values
    assert results["out0"].tolist() == [12.0, 13.0, 4.0, 5.0]


def test_none_int_and_float_inputs(backends: Path, folder: Path) -> None:
    graph = torch.fx.Graph()
    x, n, f, missing = (graph.placeholder(name) for name in ("x", "n", "f", "missing"))
    scaled = graph.call_function(torch.mul, (x, n))
    moved = graph.call_function(torch.add, (scaled, f))
    graph.output((moved, missing, n))
    case = Case(
        GraphModule(torch.nn.Module(), graph),
        (torch.ones(2), 3, 0.25, None),
        f"{backends}:wrong",
        signature=ACCURACY,
    )
    fails_and_heals(case, folder, backends)


def test_large_input_goes_to_the_data_file(backends: Path, folder: Path) -> None:
    x = torch.linspace(0, 1, 300, dtype=torch.float64).reshape(20, 15).t()
    graph, _ = captured(lambda x: (x.sin(),), (x,))
    case = Case(graph, (x,), f"{backends}:wrong", signature=ACCURACY)
    fails_and_heals(case, folder, backends)
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    value = next(iter(namespace["inputs"]().values()))
    assert torch.equal(value, x)
    assert value.stride() == x.stride()
    small = dataclasses.replace(case, inputs=(torch.ones(2),))
    write_repro(small, folder)
    assert not (folder / "repro.safetensors").exists()
