"""Values that nobody reads, or that the program does not determine, are no failure of a step."""

import os

import pytest
import torch
from torch import fx

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker
from ctk.toolkit.compile_log.comparable_values import read_nodes, unwritten_nodes
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions

aten = torch.ops.aten
X = torch.linspace(1, 2, 4)


def graph_of(build):
    """Return a graph that `build(graph, x)` makes; it returns what is returned."""
    graph = fx.Graph()
    graph.output((build(graph, graph.placeholder("x")),))
    return fx.GraphModule({}, graph)


def status(before, after):
    """Return the status of the step from one graph to the next."""
    case = Case(before, (X,))
    step = CompileStep("pass", "captured", "captured/planted", before, after, "exact")
    return Checker(case, CompileLog()).check(step).status


def buffer(fill, *, keep):
    """Return a graph with a buffer that is overwritten, and returned if `keep`."""

    def build(graph, x):
        made = graph.create_node("call_function", *fill, name="made")
        written = graph.call_function(aten.copy.default, (made, x))
        return graph.call_function(aten.add.Tensor, (made if keep else written, x))

    return graph_of(build)


EMPTY = (aten.empty.memory_format, ([4],))
ZEROS = (aten.full.default, ([4], 3.0))


def test_what_nobody_has_written_is_not_compared():
    assert status(buffer(EMPTY, keep=False), buffer(ZEROS, keep=False)) == "ok"
    assert status(buffer(EMPTY, keep=True), buffer(ZEROS, keep=True)) == "ok"


def test_what_is_determined_is_compared_beside_it():
    assert status(buffer(ZEROS, keep=False), buffer(EMPTY, keep=False)) == "wrong"

    def build(factor):
        def made(graph, x):
            empty = graph.call_function(*EMPTY)
            written = graph.call_function(aten.copy.default, (empty, x))
            scaled = graph.create_node(
                "call_function", aten.mul.Tensor, (written, factor), name="scaled"
            )
            return graph.call_function(aten.add.Tensor, (scaled, 1))

        return graph_of(made)

    assert status(build(2), build(2)) == "ok"
    assert status(build(2), build(3)) == "wrong"


@pytest.mark.parametrize("is_read", [True, False])
def test_a_value_counts_if_something_reads_it(is_read):
    def build(factor):
        def made(graph, x):
            value = graph.create_node("call_function", aten.mul.Tensor, (x, factor), name="value")
            return graph.call_function(aten.sign.default, (value if is_read else x,))

        return graph_of(made)

    assert status(build(2), build(3)) == ("wrong" if is_read else "ok")


def test_seeds_and_offsets_of_attention_are_undetermined():
    def made(graph, x):
        both = graph.call_function(aten._scaled_dot_product_efficient_attention.default, (x, x, x))
        names = ("out", "logsumexp", "seed", "offset")
        import operator

        items = [
            graph.create_node("call_function", operator.getitem, (both, i), name=name)
            for i, name in enumerate(names)
        ]
        return items[0]

    gm = graph_of(made)
    assert unwritten_nodes(gm) == {"seed", "offset"}
    assert {"seed", "offset", "logsumexp"}.isdisjoint(read_nodes(gm))
    assert "out" in read_nodes(gm)


def test_a_write_in_place_reads_its_operands():
    graph = fx.Graph()
    x = graph.placeholder("x")
    double = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.call_function(aten.copy_.default, (x, double))
    graph.output(())
    assert read_nodes(fx.GraphModule({}, graph)) >= {"x", "mul_tensor", "copy__default"}


def test_what_is_made_by_its_size_is_unwritten():
    def made(graph, x):
        graph.create_node("call_function", torch.Tensor, (4, 8), name="by_size")
        graph.create_node("call_function", torch.Tensor, ([4, 8],), name="by_values")
        graph.create_node("call_method", "new", (x, 4), name="new")
        empty = graph.create_node("call_function", torch.empty, (0,), name="empty")
        graph.create_node("call_method", "resize_", (empty, (4, 8)), name="grown")
        graph.create_node("call_method", "resize_", (x, (2,)), name="cut")
        return x

    assert unwritten_nodes(graph_of(made)) == {"by_size", "new", "empty", "grown"}


@torch.library.custom_op("ctk_meaning::empty_like", mutates_args=())
def unlike_itself(x: torch.Tensor) -> torch.Tensor:
    """Stands for uninitialized memory: each call finds other numbers there.

    It has no float64 form, so that the values of a graph are the reference.
    """
    if x.dtype == torch.float64:
        raise TypeError("float32 only")
    return torch.full_like(x, float(int.from_bytes(os.urandom(3))))


@unlike_itself.register_fake
def _(x):
    return torch.empty_like(x)


def half_written(x):
    buffer = torch.ops.ctk_meaning.empty_like(x)
    buffer[:2] = x[:2]
    return buffer[:2] * 2


@pytest.mark.parametrize("target", ["ctk", "aot_eager"])
def test_functionalization_need_not_keep_what_nobody_has_written(target):
    (case,) = load_cases(half_written, (X,), CaseOptions(target=target))
    report = ctk.check(case)
    assert report.ok
    assert not report.hidden, [finding.what for finding in report.hidden]
