"""The TorchScript code that is generated for small graphs, and the messages of a refusal."""

import pytest
import torch
from torch import nn

from ctk.compiler.codegen import eager
from ctk.compiler.codegen.kernels import KernelContext
from ctk.compiler.codegen.torchscript import torchscript_codegen as torchscript
from ctk.compiler.rewriting.numbering import Numbering
from tests.helpers.codegen_graphs import functional, module_graph

X = torch.ones(2, 3)


def mutating(x):
    x.add_(1)
    return x.to(torch.float64, copy=True)


def dynamic(x):
    return x.reshape(x.shape[0] * x.shape[1]), torch.full((x.shape[0],), float("inf"))


GRAPHS = {
    "linear": lambda: module_graph(nn.Linear(3, 2), X),
    "mutating": lambda: (functional(mutating, X), [X]),
    "dynamic": lambda: (functional(dynamic, X, symbolic=True), [X]),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("codegen", [torchscript, eager], ids=["torchscript", "eager"])
def test_source(name: str, codegen, golden) -> None:
    gm, inputs = GRAPHS[name]()
    context = KernelContext(codegen.CODEGEN, "forward", Numbering())
    compiled = codegen.CODEGEN.compile(gm, inputs, context)
    source = "\n".join(line.rstrip() for line in compiled.ctk_source().strip().splitlines())
    golden(f"codegen/{name}.{codegen.CODEGEN.name}.txt", source + "\n")
