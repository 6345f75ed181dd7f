"""Values of a graph's nodes in eager, where eager itself would break a GPU for its process."""

import dataclasses

import torch
from torch.fx import symbolic_trace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.reduce.eager_values import TensorInfo, node_infos, values_before

DEADLY = Signature("missing-error", exception="AcceleratorError")


def program(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    doubled = x * 2
    doubled.add_(1)
    loss = torch.nn.functional.binary_cross_entropy(doubled, target)
    return loss + torch.ones(2, device="cpu").sum(), doubled.view(-1)


def deadly_case() -> Case:
    graph = symbolic_trace(program)
    return Case(graph, (torch.full((3,), -3.0), torch.ones(3)), "eager", signature=DEADLY)


def test_nodes_run_with_copies_on_the_cpu_tell_what_the_program_tells() -> None:
    case = deadly_case()
    names = {node.target: node.name for node in case.graph.graph.nodes}
    loss = names[torch.nn.functional.binary_cross_entropy]
    assert node_infos(case)[0] == node_infos(dataclasses.replace(case, signature=None))[0]
    info = node_infos(case)[0][loss]
    assert isinstance(info, TensorInfo) and info.shape == ()  # a stand-in: eager raises there
    before, after = (values_before(case, {"mul": user})["mul"] for user in ("add_", loss))
    assert torch.equal(before, torch.full((3,), -6.0))
    assert torch.equal(after, torch.full((3,), -5.0))
