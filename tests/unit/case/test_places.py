"""Lines and modules of the program, kept with a case."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.schema import decode
from ctk.toolkit.case.graphs.places import PLACES, Places, module_of, place_of
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions

PROGRAM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x):
        y = self.act(x)
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))


def model():
    return Net()


def inputs():
    return (torch.ones(3),)
"""


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(PROGRAM)
    (found,) = load_cases("net.py", request=CaseOptions(target="aot_eager"))
    return found


def test_a_saved_case_keeps_lines_and_modules(case: Case) -> None:
    loaded = load_case(save_case(case, Path("case")))
    known = {node.name: (place_of(node), module_of(node)) for node in loaded.graph.graph.nodes}
    assert known["y"] == ("net.py:12", "act")
    places = Places.of(case.graph)
    assert Places.of(loaded.graph) == places
    in_branches = {
        name.rpartition(".")[2]: place for name, (place, _) in places.nodes.items() if "." in name
    }
    assert in_branches["sin"] == in_branches["cos"] == "net.py:13"
    again = save_case(loaded, Path("again"))
    assert (again / PLACES).read_bytes() == Path("case", PLACES).read_bytes()


def test_a_graph_without_lines_has_no_such_file(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.relu, (graph.placeholder("x"),)),))
    case = Case(torch.fx.GraphModule(nn.Module(), graph), (torch.ones(2),))
    assert not (save_case(case, tmp_path / "case") / PLACES).exists()


@pytest.mark.parametrize(
    "place", ["net.py", "net.py:x", 'a"\n  File "b:3', "a\\:1", 'a", line 3 "b:4', "f:12345678"]
)
def test_a_place_is_a_file_and_a_line(place: str) -> None:
    text = json.dumps({"nodes": {"y": [place, ""]}})
    with pytest.raises(CaseError, match="is not FILE:LINE"):
        decode(Places, text, where=PLACES)
