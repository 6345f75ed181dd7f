"""halve: the first, the second, the middle half of the program."""

from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.steps.halve import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_three_halves():
    def run(x):
        for _ in range(8):
            x = x.sin()
        return x

    case = traced(run, X)
    names = [node.name for node in case.graph.graph.nodes][1:9]
    found = proposals(STEP, case)
    assert kinds(found) == ["guesses"]
    assert edits(found[0]) == [
        RemoveNodes(tuple(names[4:])),
        RemoveNodes(tuple(names[:4])),
        RemoveNodes((*names[:2], *names[6:])),
    ]


def test_a_small_program_is_left_to_others():
    assert proposals(STEP, traced(lambda x: x.sin().cos(), X)) == []
