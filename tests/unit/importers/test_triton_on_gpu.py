"""Programs with Triton kernels of their own, on a GPU: captured, judged, reduced, emitted."""

import json
from pathlib import Path

import pytest
import torch

from ctk.toolkit.importers import load_cases
from ctk.toolkit.operations.diagnose import diagnose
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.questions.judge import judge

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + 2 * tl.load(y + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)


CONFIGS = [triton.Config({{"BLOCK": 64}}), triton.Config({{"BLOCK": 128}}, num_warps=2)]
tuned = triton.autotune(configs=CONFIGS, key=["n"])(add)


@torch.library.triton_op("{space}::added", mutates_args={{}})
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 64)
    return out


def plain(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 64),)](x.sin(), y, out, x.numel(), BLOCK=64)
    return out.relu() + y


def warps(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 64),)](x.sin(), y, out, x.numel(), BLOCK=64, num_warps=8)
    return out.relu() + y


def of_settings(x, y):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.sin(), y, out, x.numel())
    return out.relu() + y


def operator(x, y):
    return added(x.sin(), y).relu() + y


def model():
    return {function}


def inputs():
    return torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")


def without_launches(graph, inputs):
    for node in list(graph.graph.nodes):
        if "triton_kernel" in node.name:
            graph.graph.erase_node(node)
        elif "added" in str(node.target):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif "empty_like" in str(node.target):
            node.target = torch.zeros_like
    graph.recompile()
    return graph.forward
"""

FUNCTIONS = ("plain", "warps", "of_settings", "operator")


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "program.py"
    space = f"test_{abs(hash(request.node.name))}"
    path.write_text(PROGRAM.format(space=space, function=request.param))
    return path


@pytest.mark.parametrize("target", ["ctk", "inductor", "aot_eager"])
@pytest.mark.parametrize("program", FUNCTIONS, indirect=True)
def test_a_healthy_program_passes(program: Path, target: str) -> None:
    (case,) = load_cases(str(program), None, CaseOptions(target=target))
    judgement = judge(case)
    assert not judgement.fails, judgement


@pytest.mark.parametrize("program", FUNCTIONS, indirect=True)
def test_a_lost_launch_is_reduced_to_it(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = diagnose(program, target=f"{program}:without_launches", out=out, isolate=True)
    graph = json.loads((out / "minimal" / "graph.json").read_text())
    calls = [node["target"] for node in graph["nodes"] if node["op"].startswith("call")]
    assert "triton_kernel_wrapper_mutation" in calls[-1] or "added" in calls[-1]
    assert len(calls) <= 2
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"
