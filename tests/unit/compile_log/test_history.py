"""The history of error: measured exactly on made-up values, and found in a compile."""

import math
from pathlib import Path

import pytest
import torch

import ctk
from ctk.toolkit.compile_log.error_history import last_place, measure_error
from tests.helpers.cli import ctk as run_ctk

PROGRAM = """
import torch

def model():
    return lambda x: (x * 3.0 + 1.0).sin() * 2.0

def inputs():
    return (torch.linspace(-3, 3, 64),)

def careless(graph: torch.fx.Graph):
    '''Compute the sine through half precision on the way, which no tolerance of float32 allows.'''
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.sin.default:
            with graph.inserting_before(node):
                low = graph.call_function(torch.ops.aten.add.Tensor, (node.args[0], AMOUNT))
            node.replace_input_with(node.args[0], low)

def config():
    return {"custom_passes": {"joint": [__file__ + ":careless"]}}
"""


class TestErrorSize:
    def test_units_in_the_last_place(self) -> None:
        numbers = torch.tensor([1.0, 1.5, 2.0, 0.75], dtype=torch.float64)
        eps = 2.0**-23
        wanted = torch.tensor([eps, eps, 2 * eps, eps / 2], dtype=torch.float64)
        assert torch.equal(last_place(numbers, torch.float32), wanted)
        assert float(last_place(numbers, torch.bfloat16)[0]) == 2.0**-7

    def test_the_largest_counts(self) -> None:
        exact = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
        value = torch.tensor([1.0, 1.0 + 2.0**-21, 1.0])
        found = measure_error(value, exact)
        assert (found.max_abs, found.max_ulp) == (2.0**-21, 4.0)
        assert found.rms == pytest.approx(2.0**-21 / math.sqrt(3))

    def test_what_cancellation_left_over_is_measured_by_its_neighbours(self) -> None:
        exact = torch.tensor([1.0, 1.0, 1e-12], dtype=torch.float64)
        assert measure_error(torch.tensor([1.0, 1.0, 1e-7]), exact).max_ulp < 1

    def test_nan_is_infinite_where_the_reference_has_none(self) -> None:
        exact = torch.tensor([1.0, math.inf], dtype=torch.float64)
        assert measure_error(torch.tensor([math.nan, math.nan]), exact).max_abs == math.inf
        assert measure_error(torch.tensor([1.0, math.nan]), exact).max_abs == 0.0

    def test_complex_and_empty(self) -> None:
        exact = torch.tensor([1 + 1j], dtype=torch.complex128)
        value = torch.tensor([1 + 1.5j], dtype=torch.complex64)
        assert measure_error(value, exact).max_abs == 0.5
        assert measure_error(torch.empty(0), torch.empty(0)).max_ulp == 0.0


def program(folder: Path, amount: str) -> Path:
    path = folder / "net.py"
    path.write_text(PROGRAM.replace("AMOUNT", amount))
    return path


class TestOfACompile:
    def test_a_step_within_tolerance_is_told(self, tmp_path: Path) -> None:
        report = ctk.check(program(tmp_path, "4e-7"), history=True)
        assert report.ok
        first = report.history[0]
        assert (first.step, first.node) == ("joint/careless", "sin")
        assert first.after.max_ulp > first.before.max_ulp + 1
        assert first.ratio > 2
        assert list(report.history) == sorted(report.history, key=lambda each: -each.growth_ulp)

    def test_a_wrong_step_is_told_as_well(self, tmp_path: Path) -> None:
        report = ctk.check(program(tmp_path, "0.5"), history=True)
        assert report.history[0].after.max_ulp > 1e6
        assert not report.ok

    def test_nobody_pays_who_does_not_ask(self, tmp_path: Path) -> None:
        assert ctk.check(program(tmp_path, "4e-7")).history == ()

    def test_the_command(self, tmp_path: Path) -> None:
        path = program(tmp_path, "4e-7")
        (graph,) = run_ctk("check", path, "--history", "--json").data["graphs"]
        assert {"step", "value", "before", "after", "ratio"} <= set(graph["history"][0])
        text = run_ctk("check", path, "--history").out
        assert "ulp before" in text
        assert "joint/careless" in text
        unchanged = run_ctk("check", path, "--history", "--target", "eager", "--json")
        assert unchanged.data["graphs"][0]["history"] == []
