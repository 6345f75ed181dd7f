"""Two compiles of one case: the first graph and value that differ, and whose rewrites they are."""

from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.cli.commands.diff import sides_of
from ctk.toolkit.compile_log.compare import graph_structure
from ctk.toolkit.operations.diff import Side
from tests.helpers.case_folders import change_manifest, linear_case
from tests.helpers.cli import ctk as run_ctk
from tests.helpers.cli import write

PROGRAM = """
import torch

def model():
    return lambda x: (x.view(8, 8).view(64) * 3.0 + 1.0).sin() * 2.0

def inputs():
    return (torch.linspace(-3, 3, 64),)

def careless(graph: torch.fx.Graph):
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.sin.default:
            with graph.inserting_before(node):
                moved = graph.call_function(torch.ops.aten.add.Tensor, (node.args[0], 0.5))
            node.replace_input_with(node.args[0], moved)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return write(tmp_path, "net.py", PROGRAM)


def careless(program: Path) -> dict[str, object]:
    return {"custom_passes": {"joint": [f"{program}:careless"]}}


class TestStructure:
    def test_names_do_not_count(self) -> None:
        one = torch.fx.symbolic_trace(lambda x: torch.sin(x) + 1)
        other = torch.fx.symbolic_trace(lambda y: torch.sin(y) + 1)
        next(iter(other.graph.find_nodes(op="call_function", target=torch.sin)))._rename("s")
        assert graph_structure(one) == graph_structure(other)

    def test_operators_constants_and_order_do(self) -> None:
        graphs = [
            torch.fx.symbolic_trace(f)
            for f in (
                lambda x, y: torch.sin(x) + torch.cos(y),
                lambda x, y: torch.sin(y) + torch.cos(x),
                lambda x, y: torch.sin(x) - torch.cos(y),
                lambda x, y: torch.sin(x) + 1,
                lambda x, y: torch.sin(x) + 2,
            )
        ]
        assert len({graph_structure(graph) for graph in graphs}) == len(graphs)


class TestDiff:
    def test_the_same_compile_twice(self, program: Path) -> None:
        report = ctk.diff(program, left=Side(), right=Side())
        assert report.is_same
        assert "the same, step by step" in str(report)

    def test_a_program_that_raises_alike_is_not_compared(self, tmp_path: Path) -> None:
        out_of_range = """
import torch

def model():
    return lambda x, i: x.index_select(0, i)

def inputs():
    return (torch.ones(3), torch.tensor([7]))
"""
        program = write(tmp_path, "net.py", out_of_range)
        report = ctk.diff(program, left=Side(), right=Side())
        assert report.judgement.verdict is Verdict.INVALID
        assert "both are not compared with eager" in str(report)

    def test_a_pass_of_one_side_only(self, program: Path) -> None:
        report = ctk.diff(program, left=Side(), right=Side(config=careless(program)))
        (graph,) = report.graphs
        found = graph.comparison
        assert found.graph is not None
        assert found.value is not None
        assert found.graph.right == "joint/careless"
        assert "0.5" in found.graph.diff
        assert (found.value.step, found.value.side) == ("joint/careless", "right")
        assert found.value.node == "sin"
        assert found.value.left is not None
        assert found.value.right is not None
        assert found.value.right.max_abs > 0.1 > found.value.left.max_abs
        assert found.only_left == ()
        assert {each.pass_id for each in found.only_right} == {"joint/careless"}
        assert [seen.fails for seen in graph.judgements] == [False, True]
        assert str(report).startswith(
            "graph0: left is correct, right is wrong; the graphs first differ"
        )

    def test_a_rewrite_that_one_side_leaves_out(self, program: Path) -> None:
        off = Side(config={"disable": ["joint/simplify_views"]})
        found = ctk.diff(program, left=Side(), right=off).graphs[0].comparison
        assert "joint/simplify_views" in {each.pass_id for each in found.only_left}
        assert found.graph is not None
        assert found.graph.left == "joint/simplify_views"

    def test_two_targets(self, program: Path) -> None:
        report = ctk.diff(program, left=Side("ctk"), right=Side("aot_eager"))
        cases = report.graphs[0].cases
        assert [case.target for case in cases] == ["ctk", "aot_eager"]
        assert not report.judgement.fails


class TestCommand:
    def test_the_answer(self, program: Path) -> None:
        options = f"custom_passes={{'joint':['{program}:careless']}}"
        said = run_ctk("diff", program, "--config", "", "--config", f'"{options}"')
        assert said.code == 1, said.err
        assert said.first.startswith("graph0: left is correct, right is wrong")
        assert "rewrites that only the right compile makes: " in said.out
        said = run_ctk("diff", program, "--config", f'"{options}"', "--json")
        (graph,) = said.data["graphs"]
        assert graph["value"]["step"] == "joint/careless"
        assert not said.data["same"]

    def test_a_module_is_imported_only_if_it_is_allowed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, "module_of_diff.py", "")
        monkeypatch.syspath_prepend(str(tmp_path))
        folder = save_case(linear_case(), tmp_path / "case", inputs="full")
        change_manifest(folder, lambda data: data.update(imports=["module_of_diff"]))
        asked = ("diff", folder, "--target", "ctk", "--target", "aot_eager")
        assert "imports the module 'module_of_diff'" in run_ctk(*asked).err
        assert run_ctk(*asked, "--allow-import", "module_of_diff").code == 0

    def test_sides(self) -> None:
        assert sides_of(["a", "b"], []) == (Side("a"), Side("b"))
        assert sides_of(["a"], []) == (Side(), Side("a"))
        assert sides_of([], ["x=1", "x=2 y=3"]) == (
            Side(config={"x": 1}),
            Side(config={"x": 2, "y": 3}),
        )
        assert sides_of([], ["x=1"]) == (Side(), Side(config={"x": 1}))
        assert sides_of(["a", "b"], ["x=1"]) == (Side("a", {"x": 1}), Side("b", {"x": 1}))

    def test_an_option_as_other_commands_take_it(self) -> None:
        wanted = Side(config={"disable": ["joint/cse", "a b"]})
        assert sides_of([], ['disable=["joint/cse", "a b"]']) == (Side(), wanted)
        assert sides_of([], ['disable=\'["joint/cse", "a b"]\'']) == (Side(), wanted)
        with pytest.raises(ConfigError, match="No closing quotation"):
            sides_of([], ['x=1 "y'])

    def test_too_few_and_too_many(self) -> None:
        with pytest.raises(ConfigError, match="nothing to compare"):
            sides_of([], [])
        with pytest.raises(ConfigError, match="--target is given 3 times"):
            sides_of(["a", "b", "c"], [])
