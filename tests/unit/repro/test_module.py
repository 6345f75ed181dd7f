"""The text of a repro's graph: sub-graphs that are built by functions are in it too."""

import ast
import textwrap

import pytest
import torch

from ctk.toolkit.importers import load_cases
from ctk.toolkit.repro.module import fold, module_text
from ctk.toolkit.repro.tensor_source import Sources


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


# Dynamo makes an instance of the class, which torch itself warns of
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_functions_that_build_subgraphs_are_kept():
    (case,) = load_cases(Double.apply, [torch.ones(2, requires_grad=True)])
    text = module_text(case, Sources()).classes
    assert text.startswith("def Repro_")  # a function builds each graph
    assert "def Repro(constants)" in text


@pytest.mark.parametrize(
    "line",
    [
        f"        value = torch.{'package.' * 9}call(first_argument, [second], third=3)",
        f"        x[{'0, ' * 40}1] = {'long_name' * 6}; y = None",
    ],
)
def test_a_long_line_is_broken_where_python_takes_it(line):
    folded = fold(line)
    assert "\n" in folded
    ast.parse(textwrap.dedent(folded))
