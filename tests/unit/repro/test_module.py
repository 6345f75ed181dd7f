"""The text of a repro's graph: sub-graphs that are built by functions are in it too."""

import torch

from ctk.toolkit.importers.in_memory import cases_of
from ctk.toolkit.repro.module import module_text
from ctk.toolkit.repro.tensor_source import Sources


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_functions_that_build_subgraphs_are_kept():
    (case,) = cases_of(Double.apply, [torch.ones(2, requires_grad=True)])
    text = module_text(case, Sources()).classes
    assert text.startswith("def Repro_")
    assert "class Repro(" in text
