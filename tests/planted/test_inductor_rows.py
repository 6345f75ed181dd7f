"""A fault planted in each pass that does the work of one of Inductor's: named, and confirmed."""

from pathlib import Path

import pytest
import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.types import tensor_of
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.program import capture_cases
from tests.helpers.inductor_rows import Row, table

OURS = {f"{stage}/{step.name}" for stage, steps in PASSES.items() for step in steps}


LEFT_OUT = {"joint/replace_random": "comparisons with eager compile without it"}


def rows() -> list[tuple[str, Row]]:
    """Return a row for each pass."""
    found: dict[str, Row] = {}
    for row in table():
        if row.program is not None:
            found |= {ours: row for ours in row.ours if ours in OURS and ours not in found}
    return [(ours, row) for ours, row in found.items() if ours not in LEFT_OUT]


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let each rewrite of a pass change a result of the graph as well, a float one first."""
    right = Rewriter.rewrite

    def rewrite(self, rule, nodes, edit):
        def wrong(graph: Graph) -> None:
            edit(graph)
            output = graph.output_node()
            result = max(output.all_input_nodes, key=is_float)
            change = (torch.mul, 1.5) if is_float(result) else (torch.add, 1)
            changed = self.insert(change[0], (result, change[1]), before=output)
            output.replace_input_with(result, changed)

        return right(self, rule, nodes, wrong if self._run.id.name == name else edit)

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)


def is_float(node: Node) -> bool:
    tensor = tensor_of(node)
    return tensor is not None and tensor.is_floating_point()


CASES = [
    pytest.param(where, row, id=where, marks=[pytest.mark.slow] if number % 4 else [])
    for number, (where, row) in enumerate(rows())
]


@pytest.mark.parametrize(("where", "row"), CASES)
def test_a_wrong_rewrite_is_named_and_confirmed(where, row, monkeypatch):
    name = where.partition("/")[2]
    plant(monkeypatch, name)
    torch.manual_seed(0)
    function, inputs = row.program()
    program = UserProgram(function, tuple(inputs), dict(row.config), "planted", Path(__file__))
    with torch.set_grad_enabled(row.train):
        (case,) = capture_cases(program, backward=row.train)
        search = find_culprit(case)
    assert search.judgement.verdict is Verdict.REPRODUCES, search.judgement
    assert search.judgement.signature.kind == "accuracy"
    assert search.culprit is not None, search.reason
    assert name in {each.where.partition("/")[2] for each in (search.culprit, *search.also)}
    assert search.confirmed
