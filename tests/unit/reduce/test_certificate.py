"""What an edit is about: the names by which its refusal is listed."""

from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.certificate import names_of
from ctk.toolkit.reduce.edits import DropOutputs, Edit, Reconnect, RemoveNodes, Replace
from ctk.toolkit.reduce.subgraph_edits import SubgraphEdit


@dataclass(frozen=True, slots=True)
class Resize:
    name: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Shrink:
    """An edit with descriptions of its own."""

    resizes: tuple[Resize, ...]
    alone: bool = False

    def says(self) -> str:
        return "smaller"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return None


def test_names() -> None:
    expected: dict[Edit, tuple[str, ...]] = {
        RemoveNodes(("mul", "relu", "mul")): ("mul", "relu"),
        Replace((("mul", "x"), ("add", "y"))): ("mul", "add"),
        Reconnect(("mul",), (("mul", "x"),)): ("mul",),
        DropOutputs((0, 1)): (),
        Shrink((Resize("x", 0), Resize("y", 1))): ("x", "y"),
        SubgraphEdit(("true_0", "body"), RemoveNodes(("relu",))): ("true_0.body.relu",),
    }
    for edit, names in expected.items():
        assert names_of(edit) == names, edit
