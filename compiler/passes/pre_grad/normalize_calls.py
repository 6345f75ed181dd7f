"""Write calls of torch in one form: a function, with its arguments in the schema's places.

Rules:
    1. `x.relu()`, `F.relu(x)`, `torch.relu(input=x)` -> `torch.relu(x)`, for the functions in
       `fx/torch_signatures.py`; `x @ y` -> `torch.matmul(x, y)`, and so on for `+ - * / **`
    2. a module (`nn.Linear`, `nn.Conv2d`, `nn.ReLU`, a batch norm that uses its statistics...)
       -> the call of its function, with its parameters
Preconditions: 1. the operands are plain tensors or numbers, the call is not in place and has no
`out`. 2. the class is torch's own, nothing hooks the module, and it keeps no state of the call.
Exact: the same kernels run on the same values. Off by default: the built-in passes read every form
(`fx/torch_calls.py`), so only later passes of users need it, and it costs time.

Source: `torch/fx/experimental/normalize.py` and Inductor's `normalization_pass` group use keywords
throughout and try overloads; this pass looks a call up in a table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node
from torch.fx.node import Argument

from ctk.compiler.fx.torch_calls import TorchCall, call_of, write_arguments
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs

_CONVOLUTIONS = {nn.Conv1d: torch.conv1d, nn.Conv2d: torch.conv2d, nn.Conv3d: torch.conv3d}
_POINTWISE = {nn.ReLU: torch.relu, nn.Sigmoid: torch.sigmoid, nn.Tanh: torch.tanh, nn.SiLU: F.silu}
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True, slots=True)
class _Body:
    """The computation of a module: a function, parameters by name, and settings."""

    function: Callable[..., object]
    parameters: tuple[str, ...] = ()
    settings: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class NormalizeCalls(Pass):
    """Write calls of torch in one form.

    Attributes:
        enabled: Whether to do it; for passes of users that look for one form only.
    """

    name = "normalize_calls"
    enabled: bool = False

    def run(self, rewriter: Rewriter) -> None:
        if not self.enabled:
            return
        for node in rewriter.nodes():
            if node.op == "call_module":
                normalize_module(rewriter, node)
            elif (call := call_of(node)) is not None:
                _normalize(rewriter, node, call)


def _normalize(rewriter: Rewriter, node: Node, call: TorchCall) -> None:
    args, kwargs = write_arguments(call)
    form = ("call_function", call.function, args, kwargs)
    if form == (node.op, node.target, node.args, node.kwargs):
        return

    def edit(graph: Graph) -> None:
        node.op, node.target, node.args, node.kwargs = form

    rewriter.rewrite(_rule(node, call), [node], edit)


def _rule(node: Node, call: TorchCall) -> str:
    name = getattr(call.function, "__name__", str(call.function))
    if node.op == "call_method":
        return f"x.{node.target}(...) -> {name}(x, ...)"
    if node.target is call.function:
        return f"{name}(...) -> arguments in their places"
    module = getattr(node.target, "__module__", "torch").lstrip("_")
    return f"{module}.{getattr(node.target, '__name__', node.target)}(...) -> {name}(...)"


def normalize_module(rewriter: Rewriter, node: Node) -> None:
    """Rewrite the call of a module as a call of its function (rule 2), if it has one."""
    module = fetch(rewriter.module, node.target)
    body = _body(module) if len(node.args) == 1 and not node.kwargs else None
    if body is None or graphs.has_hooks(cast("nn.Module", module)):
        return

    def edit(graph: Graph) -> None:
        parameters = [_parameter(rewriter, node, name) for name in body.parameters]
        node.op, node.target = "call_function", body.function
        node.args = (*node.args, *parameters, *body.settings)
        if (call := call_of(node)) is not None:
            node.args, node.kwargs = write_arguments(call)

    rule = f"{type(module).__name__} -> {getattr(body.function, '__name__', body.function)}(...)"
    rewriter.rewrite(rule, [node], edit)


def _body(module: Any) -> _Body | None:
    kind = type(module)
    if kind in _POINTWISE:
        return None if getattr(module, "inplace", False) else _Body(_POINTWISE[kind])
    if kind is nn.Linear:
        return _Body(F.linear, ("weight", "bias"))
    if kind in _CONVOLUTIONS and module.padding_mode == "zeros":
        settings = (module.stride, module.padding, module.dilation, module.groups)
        return _Body(_CONVOLUTIONS[kind], ("weight", "bias"), settings)
    if kind in _NORMS and not module.training and module.running_mean is not None:
        buffers = ("running_mean", "running_var", "weight", "bias")
        return _Body(F.batch_norm, buffers, (False, module.momentum or 0.0, module.eps))
    return None


def _parameter(rewriter: Rewriter, node: Node, name: str) -> Node | None:
    target = f"{node.target}.{name}"
    value = fetch(rewriter.module, target)
    if value is None:
        return None
    with rewriter.graph.inserting_before(node):
        parameter = rewriter.graph.get_attr(target)
    mode = fake.mode_of([value_of(node)])
    if mode is not None:
        parameter.meta["val"] = fake.to_fake(value, mode)
    return parameter


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y = torch.ones(2, 3), torch.ones(3, 2)
    return [
        (lambda x: x.relu(), (x,)),
        (lambda x: F.relu(x) + x, (x,)),
        (lambda x, y: x @ y, (x, y)),
    ]


PASS = NormalizeCalls()
