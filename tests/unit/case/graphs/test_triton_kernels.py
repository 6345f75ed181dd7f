"""Graphs that launch kernels of the program: named in JSON, loaded elsewhere, reduced, emitted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.errors import CaseError, TrustError
from ctk.compiler.torch_compat.fx.operators import higher_order_op
from ctk.compiler.torch_compat.gpu.triton_kernels import with_numbers
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_json import graph_from_json, graph_to_json
from ctk.toolkit.case.graphs.triton_kernels import check_launch
from ctk.toolkit.case.store import load_case
from tests.helpers.project import ROOT

triton = pytest.importorskip("triton")
from tests.unit.case.graphs import kernels_of_test as kernels  # noqa: E402  # needs triton

KERNELS = """
import triton
import triton.language as tl

SCALE, SECRET = tl.constexpr(2.0), "kept at home"
UNUSED = "kept at home as well"


@triton.jit
def scaled(x):
    return x * SCALE


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, TYPE: tl.constexpr = tl.float32, ACT: tl.constexpr = ""):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + scaled(tl.load(y + i, mask=i < n))
    if ACT == "relu":
        value = tl.maximum(value, 0.0)
    tl.store(out + i, value.to(TYPE), mask=i < n)


CONFIGS = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, num_warps=2)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda meta: meta["n"] % meta["BLOCK"] == 0})
@triton.jit
def guessed(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
"""

CAPTURE = """
import torch, triton
import triton.language as tl
import torch.utils._triton

torch.utils._triton.has_triton = lambda **_: True  # to capture needs no GPU
import ctk, {module}
from {module} import *


def program(x, y):
    out, n = torch.empty_like(x), x.numel()
    add[(triton.cdiv(n, 16),)](x, y, out, n, BLOCK=16, TYPE=tl.float32)
    add[(triton.cdiv(n, 16),)](x, y, out, n, BLOCK=16, ACT="relu", num_warps=2)
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    guessed[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out.relu()


def backend(graph, inputs):
    ctk.save_case(ctk.Case(graph, tuple(inputs)), "case")
    return lambda *inputs: (inputs[0],)


compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=False)
compiled(torch.ones(40), torch.ones(40))
"""

AGAIN = """
import ctk, json, pathlib
from ctk.compiler.torch_compat.gpu.triton_kernels import settings_of, without_numbers

case = ctk.load_case("case", trust=True)
launches = [node for node in case.graph.graph.nodes if "triton" in node.name]
found = [without_numbers(node.kwargs) for node in launches]
print([settings_of(each["kernel_idx"]) for each in found])
print([each["constant_args_idx"] for each in found])
ctk.save_case(case, "again")
paths = [pathlib.Path(folder, "graph.json") for folder in ("case", "again")]
assert json.loads(paths[0].read_text()) == json.loads(paths[1].read_text())
"""


def run(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder; only the given variables are set."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    env = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_dynamos_launches_are_loaded_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "ctk_test_kernels.py").write_text(KERNELS)
    (tmp_path / "capture.py").write_text(CAPTURE.format(module="ctk_test_kernels"))
    done = run(tmp_path, sys.executable, "capture.py")
    assert (tmp_path / "case").is_dir(), done.stderr
    (tmp_path / "ctk_test_kernels.py").unlink()
    copy = (tmp_path / "case" / "sources" / "ctk_test_kernels.py").read_text()
    assert "def scaled" in copy
    assert "UNUSED" not in copy
    with pytest.raises(TrustError, match="ctk_test_kernels"):
        load_case(tmp_path / "case")

    done = run(tmp_path, sys.executable, "-c", AGAIN)
    assert done.returncode == 0, done.stderr
    settings, constants = map(eval, done.stdout.splitlines())
    assert settings[0] is None
    assert settings[1] == [{"kwargs": {}, "num_ctas": 1, "num_stages": 3, "num_warps": 2}]
    assert [each["num_warps"] for each in settings[2]] == [4, 2]
    assert [each["kwargs"]["EVEN"] for each in settings[3]] == [False, False]
    assert constants[0] == {"n": 40, "BLOCK": 16, "TYPE": triton.language.float32}
    assert constants[1] == {"n": 40, "BLOCK": 16, "ACT": "relu"}


# --- reduced, in Triton's interpreter -----------------------------------------------------------

SCRIPT = """
import torch
import torch._higher_order_ops.triton_kernel_wrap
import triton
import triton.language as tl


{kernels}


def break_launches(graph, inputs):
    for node in list(graph.graph.nodes):
        if "triton_kernel" in node.name:
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


if __name__ == "__main__":
    import ctk
    from ctk.compiler.torch_compat.gpu.triton_kernels import with_numbers

    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    out = graph.call_function(torch.zeros_like, (graph.call_method("sin", (x,)),))
    arguments = dict(kernel_idx={kernel}, constant_args_idx={constants}, grid={grid})
    arguments |= dict(tma_descriptor_metadata={{}}, kwargs=dict(x=x, {operands}, out=out))
    wrapper = torch.ops.higher_order.triton_kernel_wrapper_mutation
    graph.call_function(wrapper, (), with_numbers(arguments))
    graph.output((graph.call_function(torch.add, (graph.call_method("relu", (out,)), y)),))
    module = torch.fx.GraphModule({{}}, graph)
    case = ctk.Case(module, (torch.ones(40), torch.ones(40)), target=__file__ + ":break_launches")
    ctk.save_case(case, "case", inputs="full")
"""

CTK = "from ctk.toolkit.cli.main import main; main()"

LAUNCHES = {
    "a kernel": ("add", {"n": 40, "BLOCK": 16}, [(3, 1, 1)], "y=y"),
    "a tuned kernel": ("tuned", {"n": 40}, [(3, 1, 1), (2, 1, 1)], ""),
}


@pytest.mark.parametrize(
    "name", ["a kernel", pytest.param("a tuned kernel", marks=pytest.mark.slow)]
)
def test_a_lost_launch_is_reduced_to_it(name: str, tmp_path: Path) -> None:
    kernel, constants, grid, operands = LAUNCHES[name]
    text = SCRIPT.format(
        kernels=KERNELS, kernel=kernel, constants=constants, grid=grid, operands=operands
    ).replace(", , out", ", out")
    (tmp_path / "script.py").write_text(text)
    done = run(tmp_path, sys.executable, "script.py", TRITON_INTERPRET="1")
    assert (tmp_path / "case").is_dir(), done.stderr

    arguments = ("diagnose", "case", "--trust", "--out", "out")
    command = (sys.executable, "-c", CTK, *arguments)
    done = run(tmp_path, *command, TRITON_INTERPRET="1")
    assert done.returncode == 1, done.stderr
    graph = json.loads((tmp_path / "out" / "minimal" / "graph.json").read_text())
    calls = [node["target"] for node in graph["nodes"] if node["op"].startswith("call")]
    assert calls[-1] == "torch.ops.higher_order.triton_kernel_wrapper_mutation"
    assert len(calls) <= 2

    (tmp_path / "script.py").unlink()
    done = run(tmp_path, sys.executable, "out/minimal/repro.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("FAILURE"), done.stdout


# --- refused ------------------------------------------------------------------------------------

NEGATE = f"{kernels.__name__}:negate"


def launch(kernel: object, size: int = 40) -> tuple[GraphModule, tuple[torch.Tensor, ...]]:
    graph = Graph()
    x = graph.placeholder("x")
    arguments = {
        "kernel_idx": kernel,
        "constant_args_idx": {"n": size},
        "grid": [(1, 1, 1)],
        "tma_descriptor_metadata": {},
        "kwargs": {"x": x},
    }
    wrapper = higher_order_op("triton_kernel_wrapper_mutation")
    assert callable(wrapper)
    graph.call_function(wrapper, (), with_numbers(arguments))
    graph.output((x,))
    return GraphModule({}, graph), (torch.ones(size),)


def test_a_kernel_of_a_local_scope_has_no_name() -> None:
    graph, _ = launch(kernels.local_kernel())
    with pytest.raises(CaseError, match="move it there, out of functions"):
        graph_to_json(graph)


def test_a_number_in_json_names_no_kernel() -> None:
    graph, _ = launch(kernels.negate)
    data, arrays = graph_to_json(graph)
    node = next(node for node in data["nodes"] if node["op"] == "call_function")
    node["kwargs"]["kernel_idx"] = 0
    with pytest.raises(CaseError, match="its graph names none"):
        graph_from_json(data, arrays, allow_imports=(kernels.__name__,))


def test_a_kernel_of_a_module_that_is_not_allowed_is_refused() -> None:
    graph, _ = launch(kernels.negate)
    data, arrays = graph_to_json(graph)
    with pytest.raises(CaseError, match="runs code of module"):
        graph_from_json(data, arrays)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        (torch.ones(40), torch.ones(40), False),
        (torch.ones(40), torch.ones(8, 5), False),
        (torch.ones(40), torch.ones(50), False),
        (torch.ones(40), torch.ones(39), True),
        (torch.ones(8, 5)[:, :3], torch.ones(8, 3), True),
        (torch.arange(4), torch.tensor([0, 0, 3, 1]), False),
        (torch.arange(4), torch.tensor([0, 0, 4, 1]), True),
        (torch.arange(4), torch.tensor([0, -1, 3, 1]), True),
        (torch.ones(0), torch.ones(3), False),
        (torch.ones(3), torch.ones(0), True),
    ],
)
def test_a_kernel_gets_no_tensor_that_it_could_leave(
    first: torch.Tensor, second: torch.Tensor, is_refused: bool
) -> None:
    graph, _ = launch(kernels.negate)
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    check_launch(node, {**node.kwargs, "kwargs": {"x": first}})
    loaded = graph_from_json(*graph_to_json(graph), allow_imports=(kernels.__name__,))
    for each in (graph, loaded):
        node = next(node for node in each.graph.nodes if node.op == "call_function")
        given = {**node.kwargs, "kwargs": {"x": second}}
        if not is_refused:
            check_launch(node, given)
            continue
        with pytest.raises(CaseError, match="could leave the memory of x"):
            check_launch(node, given)


def test_torchs_reset_keeps_the_numbers_of_graphs() -> None:
    (one, _), _, (other, _) = (
        launch(kernels.negate),
        torch.compiler.reset(),
        launch(kernels.local_kernel()),
    )
    assert graph_to_json(one)[0]["nodes"][1]["kwargs"]["kernel_idx"] == {"target": NEGATE}
    with pytest.raises(CaseError):
        graph_to_json(other)


def test_a_launch_is_an_effect_and_its_numbers_are_no_sizes() -> None:
    from ctk.compiler.fx.effects import mutated_arguments
    from ctk.toolkit.reduce.dimensions.size_places import literals_of
    from ctk.toolkit.reduce.size import arguments_of

    (one, inputs), (other, _) = launch(kernels.negate), launch(kernels.negate)
    node = next(node for node in one.graph.nodes if node.op == "call_function")
    assert [each.name for each in mutated_arguments(node)] == ["x"]
    assert literals_of(node, "", least=0) == []
    assert arguments_of(Case(one, inputs)) == arguments_of(Case(other, inputs))
