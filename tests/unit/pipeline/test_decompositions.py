"""Which operators dispatch takes apart, and why."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ctk.compiler.dispatch.decomposition_table import (
    TABLES,
    Operator,
    decomposition_table,
    explain_decomposition,
)
from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import PassRecord
from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder

aten = torch.ops.aten


def program(x: Tensor) -> Tensor:
    return F.dropout(F.gelu(F.silu(x)), 0.5)


def traced(chosen: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the operators of the traced graph, and the decompositions that were told of."""
    recorder = Recorder()

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[object]) -> object:
        return compile_fx(gm, inputs, Config(decompositions=tuple(chosen)), recorder)

    torch.compiler.reset()
    x = torch.linspace(-3, 3, 16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wanted = program(x)
        torch.manual_seed(0)
        got = torch.compile(program, backend=backend)(x)
    torch.testing.assert_close(got, wanted)
    graph = next(stage.graph for stage in recorder.log.stages() if stage.stage == "joint")
    calls = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    told = {event.id.name for event in recorder.log.events if isinstance(event, PassRecord)}
    return calls, {name.removeprefix("decompose.") for name in told if "decompose." in name}


class TestWhatIsTakenApart:
    def test_nothing_by_default(self) -> None:
        calls, told = traced(())
        assert {"aten.gelu.default", "aten.silu.default"} <= calls
        assert not told & {"aten.gelu.default", "aten.silu.default"}

    def test_a_table(self) -> None:
        calls, told = traced(["inductor"])
        assert not {"aten.gelu.default", "aten.silu.default"} & calls
        assert {"aten.gelu.default", "aten.silu.default"} <= told

    def test_later_entries_win(self) -> None:
        calls, _ = traced(["inductor", "-aten.gelu", "-aten.silu", "aten.silu.default"])
        assert "aten.gelu.default" in calls
        assert "aten.silu.default" not in calls

    def test_random_numbers_stay_those_of_eager(self) -> None:
        assert (
            decomposition_table(("core_aten", "inductor"))
            .keys()
            .isdisjoint({aten.native_dropout.default, aten.bernoulli.p, aten.rand_like.default})
        )

    def test_a_name_adds_what_a_table_keeps(self) -> None:
        assert aten.native_dropout.default in decomposition_table(("aten.native_dropout",))


@pytest.mark.parametrize(
    ("operator", "chosen", "why"),
    [
        (aten.gelu.default, ("inductor",), "taken apart: inductor has it"),
        (aten.gelu.default, (), "it stays whole: only inductor would take it apart"),
        (aten.gelu.default, ("inductor", "-aten.gelu"), "it stays whole: -aten.gelu is named"),
        (aten.silu.default, ("aten.silu",), "taken apart: aten.silu is named"),
        (aten.convolution.default, ("core_aten",), "it stays whole: torch has no decomposition"),
        (aten.native_dropout.default, ("inductor",), "it draws random numbers"),
        (aten.soft_margin_loss_backward.default, ("core_aten",), "cancels"),
    ],
)
def test_why(operator: Operator, chosen: tuple[str, ...], why: str) -> None:
    assert why in explain_decomposition(operator, chosen).why


@pytest.mark.parametrize("name", ["core", "aten.gleu", "", "-", "-inducter", "torch.relu"])
def test_an_unknown_name_says_what_is_allowed(name: str) -> None:
    with pytest.raises(ConfigError, match="allowed: the tables core_aten and inductor"):
        decomposition_table((name,))
    with pytest.raises(ConfigError, match="decompositions names"):
        compile_fx(torch.fx.symbolic_trace(program), [torch.ones(2)], {"decompositions": [name]})


def test_every_table_says_where_it_leads() -> None:
    assert all(table.about and table.load() for table in TABLES.values())
