"""A fresh process loads whatever `save_case` wrote, and saves it again with the same bytes."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import save_case
from ctk.toolkit.case.trust.demands import TORCH_NAMESPACES
from tests.helpers.project import ROOT
from tests.helpers.torch_samples import calls, cases

SAMPLE = 12
"""Operators of the database that the quick test saves."""

AGAIN = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from ctk.toolkit.case.store import load_case, save_case
out = Path(sys.argv[2])
folders = sorted(Path(sys.argv[1]).iterdir())
for folder in sorted(folders, key=lambda each: "testlib." in (each / "graph.json").read_text()):
    if "testlib." in (folder / "graph.json").read_text():
        import torch.testing._internal.hop_db  # its own operators: a case names no module of torch
    try:
        save_case(load_case(folder, trust=True), out / folder.name, inputs="full")
    except Exception as error:
        print(f"{folder.name}: {type(error).__name__}: {error}")
"""
COMPARED = ("graph.json", "inputs.json", "constants.safetensors", "inputs.safetensors")


def check_loads(found: Iterable[tuple[str, Case]], folder: Path) -> None:
    """Save cases; check that one fresh process loads them all and saves the same bytes."""
    (folder / "saved").mkdir()
    for number, (name, case) in enumerate(found):
        place = re.sub(r"\W", "_", f"{number}_{name}")
        save_case(case, folder / "saved" / place, inputs="full")
    (folder / "again").mkdir()
    command = [sys.executable, "-c", AGAIN, str(folder / "saved"), str(folder / "again")]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd="/", env=env, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
    for saved in (folder / "saved").iterdir():
        for file in COMPARED:
            one, other = saved / file, folder / "again" / saved.name / file
            assert one.is_file() == other.is_file(), other
            assert not one.is_file() or one.read_bytes() == other.read_bytes(), other


def cases_of_database(count: int | None) -> Iterable[tuple[str, Case]]:
    """Yield cases of operators of torch's databases: a seeded sample, or all."""
    for name, call in calls((), torch.float32, count):
        for via in ("make_fx", "dynamo"):
            try:
                captured = cases(call, via)
            except Exception:  # no graph: sizes that depend on data, another device
                continue
            yield from ((f"{name}_{via}", case) for case in captured)


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_torchs_operators(tmp_path: Path) -> None:
    check_loads(cases_of_database(SAMPLE), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_of_torchs_operators(tmp_path: Path) -> None:
    check_loads(cases_of_database(None), tmp_path)


def late_operators() -> list[Any]:
    """Return the operators that torch registers in Python, some when it first needs them."""
    import torch._inductor.inductor_prims
    import torch.ao.quantization.fx._decomposed
    import torch.nn.attention.varlen  # it registers an operator

    found: list[Any] = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, name = full.partition(".")[0].partition("::")
        is_ours = space in TORCH_NAMESPACES | {"torch_attn"}
        if is_ours and operators.registering_file(f"{space}::{name}") is not None:
            found.append(getattr(getattr(torch.ops, space), name))
    return found


def test_operators_that_torch_registers_late(tmp_path: Path) -> None:
    graph = Graph()
    value = graph.placeholder("x")
    packets = dict.fromkeys(late_operators())
    assert torch.ops.prims.fma in packets
    for packet in packets:
        value = graph.call_function(getattr(packet, packet.overloads()[0]), (value,))
    graph.output((value,))
    case = Case(GraphModule(nn.Module(), graph), (torch.ones(2),))
    check_loads([("late", case)], tmp_path)


OPTIMIZERS: Mapping[str, tuple[type[Any], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {"foreach": True}),
    "adam fused amsgrad": (torch.optim.Adam, {"fused": True, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"foreach": False}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
}
MORE_OPTIMIZERS: Mapping[str, tuple[type[Any], dict[str, Any]]] = {
    **{
        f"{name} {options}": (getattr(torch.optim, name), options)
        for name in ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
        for options in ({"foreach": True}, {"foreach": False, "differentiable": False})
    },
    "sgd fused": (torch.optim.SGD, {"lr": 0.1, "fused": True}),
    "adagrad fused": (torch.optim.Adagrad, {"fused": True}),
    "adafactor": (torch.optim.Adafactor, {}),
    "adam maximize": (torch.optim.Adam, {"maximize": True, "weight_decay": 0.1}),
}


def step_of(make: type[Any], options: Mapping[str, Any]) -> list[Case]:
    """Return the graphs of a second step of an optimizer."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(2))]
    optimizer = make(weights, **options)
    for each in weights:
        each.grad = torch.ones_like(each)
    optimizer.step()
    found: list[Case] = []

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(Case(copy_graph_module(gm), tuple(inputs)))
        return gm.forward

    torch.compile(lambda: optimizer.step(), backend=backend)()
    torch.compiler.reset()
    return found


@pytest.mark.filterwarnings("ignore")
def test_steps_of_optimizers(tmp_path: Path) -> None:
    made = {name: step_of(*each) for name, each in OPTIMIZERS.items()}
    check_loads([(name, case) for name, found in made.items() for case in found], tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_steps_of_all_optimizers(tmp_path: Path) -> None:
    made = {name: step_of(*each) for name, each in MORE_OPTIMIZERS.items()}
    check_loads([(name, case) for name, found in made.items() for case in found], tmp_path)


def attention(x: Tensor, w: Tensor) -> Tensor:
    q = (x @ w).unsqueeze(0)
    return F.scaled_dot_product_attention(q, q, q)


TRAINED: Mapping[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "linear": (lambda x, w: F.gelu(x @ w), (4, 4)),
    "conv": (lambda x, w: F.conv1d(x.view(1, 4, 4), w), (4, 4, 3)),
    "attention": (attention, (4, 4)),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, training=True), (4,)),
    "checkpoint": (
        lambda x, w: checkpoint(lambda y: (y @ w).softmax(-1), x, use_reentrant=False),
        (4, 4),
    ),
    "amp": (lambda x, w: torch.autocast("cpu")(F.linear)(x, w).float(), (4, 4)),
}


def step(run: Callable[..., Tensor], x: Tensor, weight: Tensor) -> Tensor:
    """Return the weight after one step of a scaled loss."""
    w = weight.detach().requires_grad_()
    scaled = run(x, w).square().mean() * 8.0  # as a GradScaler does
    (grad,) = torch.autograd.grad(scaled, [w])
    return weight - 0.1 * (grad / 8.0)


@pytest.mark.filterwarnings("ignore")
def test_training_steps_as_inductor_decomposes_them(tmp_path: Path) -> None:
    from torch._inductor.decomposition import select_decomp_table

    made: list[tuple[str, Case]] = []
    for name, (function, shape) in TRAINED.items():
        torch.manual_seed(0)
        inputs = torch.randn(4, 4), torch.randn(*shape)

        graph = make_fx(partial(step, function), decomposition_table=select_decomp_table())(*inputs)
        made.append((name, Case(graph, inputs)))
    check_loads(made, tmp_path)
