"""The text of a repro and what stands beside it: sources, header, options, nothing half done."""

import dataclasses
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError
from ctk.compiler.options.config import resolve
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.repro.header import CleanRun, Versions, shorten_paths
from ctk.toolkit.repro.run import write_repro
from ctk.toolkit.repro.script import literal, render_script
from tests.helpers.repros import make_case, verdict_of


def test_custom_passes_move_with_the_script(backends: Path, folder: Path, tmp_path: Path) -> None:
    passes = tmp_path / "my_passes.py"
    passes.write_text("def fold(graph):\n    pass\n")
    config = {"custom_passes": {"joint": ["my_passes:fold", "json:loads"]}, "disable": ["a" * 60]}
    case = make_case(
        lambda x: (x.sin(),), torch.ones(2), target="ctk", config=config, sources=(passes,)
    )
    text = write_repro(case, folder).read_text()
    assert '"custom_passes": {"joint": ["sources/my_passes.py:fold", "json:loads"]},' in text
    assert 'FUNCTIONS = ["sources/my_passes.py:fold"]' in text
    assert (folder / "sources/my_passes.py").read_text() == passes.read_text()
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    found = {name: str(folder / name) for name in namespace["FUNCTIONS"]}
    joint = namespace["replaced"](namespace["CONFIG"], found)["custom_passes"]["joint"]
    assert joint == [f"{folder}/sources/my_passes.py:fold", "json:loads"]


SCALE = """
from dataclasses import dataclass

import torch

from ctk.compiler.rewriting.base import Pass

aten = torch.ops.aten


@dataclass(frozen=True)
class Scale(Pass):
    name = "scale"
    factors: tuple[float, ...] = (1.0,)

    def run(self, rewriter):
        for node in rewriter.graph.find_nodes(op="call_function", target=aten.sin.default):
            def edit(graph, node=node):
                with graph.inserting_after(node):
                    new = graph.call_function(aten.mul.Tensor, (node, self.factors[-1]))
                node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)

            if self.factors[-1] != 1:
                rewriter.rewrite("sin(x) -> sin(x) * factor", [node], edit)
"""


@pytest.mark.parametrize(
    "options",
    [{"scale.factors": [1, 2.0]}, {"passes": {"joint/scale": {"factors": (2,)}}}],
    ids=["dotted", "nested"],
)
def test_options_of_passes_reach_the_saved_case_and_the_script(
    options: dict[str, object], folder: Path, tmp_path: Path
) -> None:
    passes = tmp_path / "my_passes.py"
    passes.write_text(SCALE)
    custom = {"custom_passes": {"joint": [f"{passes}:Scale"]}}
    wrong = make_case(
        lambda x: (x.sin(),), torch.ones(2), target="ctk", config={**custom, **options}
    )
    loaded = load_case(save_case(wrong, tmp_path / "case"), trust=True)
    assert resolve(loaded.config).passes == resolve(wrong.config).passes
    assert verdict_of(loaded, folder)[0] == 1
    assert verdict_of(dataclasses.replace(wrong, config=custom), folder / "right")[0] == 0


def written(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written; not when it was read last."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def test_writing_into_the_folder_of_the_case_keeps_its_sources(
    folder: Path, backends: Path
) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target=f"{backends}:wrong")
    write_repro(case, folder)
    copied = folder / "sources/planted_backends.py"
    before = written(copied)
    again = dataclasses.replace(case, target=f"{copied}:wrong", sources=(copied,))
    assert verdict_of(again, folder)[0] == 1
    assert written(copied) == before


def test_nothing_half_written(folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target="ctk")
    write_repro(case, folder)
    before = (folder / "repro.py").read_text()
    with pytest.raises(CaseError, match=r"input .* is a object"):
        write_repro(dataclasses.replace(case, inputs=(object(),)), folder)
    with pytest.raises(CaseError, match="2 inputs for 1 placeholder "):
        write_repro(dataclasses.replace(case, inputs=(1, 2)), folder)
    with pytest.raises(CaseError, match="does not exist"):
        write_repro(dataclasses.replace(case, sources=(folder / "gone.py",)), folder)
    assert (folder / "repro.py").read_text() == before
    assert [path.name for path in folder.iterdir()] == ["repro.py"]


def test_graph_that_calls_a_module_is_refused(folder: Path) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(CaseError, match="Linear"):
        write_repro(Case(graph, (torch.ones(2),)), folder)


def test_header_without_paths_or_quotes() -> None:
    home = str(Path.home())
    assert shorten_paths(f"no such file {home}/secret/x.cpp") == "no such file ~/secret/x.cpp"
    assert shorten_paths("in /opt/some/where/pkg/mod.py, line 3") == "in .../pkg/mod.py, line 3"
    assert shorten_paths("a / b, 3/4, and https://a.b/c/d/e") == "a / b, 3/4, and https://a.b/c/d/e"


def test_hostile_message_stays_inside_the_docstring(folder: Path) -> None:
    signature = Signature("compile-error", "E", message='"""; import os; """ \\N{x} \\')
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target="ctk", signature=signature)
    path = write_repro(case, folder)
    namespace = runpy.run_path(str(path), run_name="repro")
    assert "import os" in namespace["__doc__"]


def test_options_are_written_as_they_are() -> None:
    value = {"a": [1, 2.5, None, True, 'quo"te'], "b": {"long": ["x" * 50, "y" * 50]}}
    assert eval(literal(value)) == value
    assert literal({"a": 1}) == '{"a": 1}'


def golden_case() -> Case:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    product = graph.call_function(torch.matmul, (x, w))
    graph.output((graph.call_method("relu", (product,)),))
    return Case(
        GraphModule(torch.nn.Module(), graph),
        (torch.tensor([[0.1, -2.0]]), torch.nn.Parameter(torch.tensor([[1.0], [0.5]]))),
        target="ctk",
        config={"codegen": "eager"},
        modes=Modes(backward=True),
        signature=Signature("accuracy", output="out0", message="max abs 0.77"),
    )


def test_golden_script(golden: Callable[[str, str], None]) -> None:
    case = golden_case()
    script = render_script(
        case,
        plan_sources(case, modules=True),
        culprit_pass="joint/fold",
        clean_run=CleanRun(
            "reproduced on 2024-02-29 (FAILURE: accuracy at out0: max abs 0.77)", ("ctk",), True
        ),
        versions=Versions("2.13.0", "3.11.7", "Linux x86_64"),
    )
    assert all(len(line) <= 100 for line in script.text.splitlines())
    golden("repro.py.txt", script.text)
