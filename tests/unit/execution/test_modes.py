"""Modes: put on for a run, taken off after it, whatever the run left behind."""

import subprocess
import sys

import torch
from torch import fx

from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.execution.execute import run_eager, run_reference
from ctk.toolkit.execution.modes import apply_modes, current_modes
from ctk.toolkit.execution.node_values import graph_values
from tests.helpers.executions import trace, values


def test_modes_are_put_on_and_taken_off():
    modes = Modes(
        grad=False,
        autocast=(Autocast("cpu", "bfloat16"),),
        deterministic=True,
        seed=5,
        default_dtype="float64",
        default_device="meta",
        settings={
            "float32_matmul_precision": "high",
            "backends.cuda.matmul.fp32_precision": "tf32",
            "backends.mkldnn.matmul.fp32_precision": "tf32",
            "backends.cudnn.benchmark": True,
        },
    )
    torch.manual_seed(123)
    before, state = current_modes(), torch.get_rng_state()
    with apply_modes(modes):
        assert current_modes(seed=5) == modes
        drawn = torch.rand(3, device="cpu")
    assert current_modes() == before
    assert torch.equal(torch.get_rng_state(), state)
    with apply_modes(modes):
        assert torch.equal(torch.rand(3, device="cpu"), drawn)


def test_flags_of_cudnn_are_set_where_assignment_is_forbidden(monkeypatch):
    # as after an import of torch's own test helpers
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", False)
    flags = {"enabled": False, "benchmark": True, "deterministic": True}
    settings = {f"backends.cudnn.{name}": value for name, value in flags.items()}
    before = current_modes().settings
    with apply_modes(Modes(settings=settings)):
        assert {name: getattr(torch.backends.cudnn, name) for name in flags} == flags
        assert current_modes().settings == settings
    assert current_modes().settings == before


def test_settings_of_the_newer_and_the_older_names_are_put_back():
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32"  # torch then refuses to read the older name
    try:
        newer = current_modes().settings
        assert newer == {"backends.cuda.matmul.fp32_precision": "tf32"}
        with apply_modes(Modes(settings={"float32_matmul_precision": "medium"})):
            assert torch.get_float32_matmul_precision() == "medium"
        assert current_modes().settings == newer
    finally:
        matmul.fp32_precision = "none"
    assert current_modes().settings == {}


def test_a_fresh_torch_has_no_settings_of_its_own():
    code = "from ctk.toolkit.execution.modes import current_modes; print(current_modes().settings)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "{}"


def test_inference_mode_is_left_and_entered():
    with torch.inference_mode(), apply_modes(Modes()):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
    with apply_modes(Modes(inference=True)):
        assert torch.is_inference_mode_enabled()


def test_a_region_that_an_error_left_open_is_closed():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(
        torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None)
    )
    graph.output(graph.call_method("view", (x, 99)))
    outcome = run_eager(Case(fx.GraphModule({}, graph), (torch.zeros(3),)))
    assert outcome.error is not None
    assert not torch.is_autocast_enabled("cpu")


def test_the_case_runs_under_its_autocast():
    case = Case(
        trace(lambda a, b: a @ b),
        (torch.randn(4, 4), torch.randn(4, 4)),
        modes=Modes(autocast=(Autocast("cpu", "bfloat16"),)),
    )
    eager = run_eager(case)
    assert values(eager)["out0"].dtype is torch.bfloat16
    assert values(run_reference(case, eager))["out0"].dtype is torch.float64


def test_values_are_computed_in_the_modes_around_the_call():
    gm = trace(lambda a, b: (a @ b, torch.rand_like(a)))
    inputs = (torch.randn(4, 4), torch.randn(4, 4))
    with apply_modes(Modes(seed=7, autocast=(Autocast("cpu", "bfloat16"),))):
        first, second = graph_values(gm, inputs), graph_values(gm, inputs)
        drawn = torch.rand(4, 4)
    assert first["matmul"].dtype is torch.bfloat16
    assert torch.equal(first["rand_like"], second["rand_like"])
    assert torch.equal(first["rand_like"], drawn)
    plain = graph_values(gm, inputs, modes=Modes(seed=8))
    assert plain["matmul"].dtype is torch.float32
    assert not torch.equal(plain["rand_like"], drawn)
