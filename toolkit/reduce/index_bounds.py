"""Find candidates on a GPU that index out of bounds, which breaks CUDA for the whole process.

On the CPU such an index is an exception, so the candidate runs there, once, on copies:

    x = float32[4, 2] on cuda;  x[torch.randperm(7, device="cuda")]     IndexError on the CPU
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import Target

from ctk.compiler.torch_compat.fx.graphs import tree_map
from ctk.repro_templates.graph.exceptions import TOPICS
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_private
from ctk.toolkit.execution.private_copy import Eager
from ctk.toolkit.reduce.eager_values import TensorInfo

CPU = torch.device("cpu")


def may_index(infos: Iterable[object]) -> bool:
    """Return whether any of the described values of a graph may be an index: integers."""
    dtypes = (info.dtype for info in infos if isinstance(info, TensorInfo))
    return any(not (dtype.is_floating_point or dtype.is_complex) for dtype in dtypes)


def is_out_of_bounds(case: Case) -> bool:
    """Return whether the program of a case indexes out of bounds; its own device is not used."""
    inputs = [_on_cpu(value) for value in case.inputs]
    modes = dataclasses.replace(case.modes, default_device="")
    try:
        run_private(case.graph, inputs, modes, runner=_EagerOnCpu)
    except Exception as error:  # others mean nothing: the CPU may lack an operator
        return re.search(TOPICS["index"], str(error)) is not None
    return False


class _EagerOnCpu(Eager):
    """Runs a graph on the CPU; other devices that it names are replaced."""

    def fetch_attr(self, target: str) -> Any:
        return _on_cpu(super().fetch_attr(target))

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_method("cpu" if target == "cuda" else target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        if isinstance(kwargs.get("device"), str):
            kwargs = {**kwargs, "device": "cpu"}
        return tree_map(_on_cpu, args), tree_map(_on_cpu, kwargs)


def _on_cpu(value: Any) -> Any:
    """Return a tensor or device on the CPU; any other value as it is."""
    if isinstance(value, Tensor) and value.device != CPU:
        return value.detach().to(CPU).requires_grad_(value.requires_grad)
    return CPU if isinstance(value, torch.device) else value
