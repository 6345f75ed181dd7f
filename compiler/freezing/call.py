"""Compile a frozen graph, and call it with the inputs that remain.

The constants are right as long as the originals keep their values. A call with other originals
(another module, another value of a version counter) is detected, and runs the graph as it was
before freezing, operator by operator: right, but slow, which is logged. Under Dynamo a guard on the
identity of each original triggers a recompile for another module.

Also detected: steps of fused optimizers, and other memory behind a parameter
(`parameter.data = other`). Not detected: writes that count no version
(`parameter.data.add_(1)`, NumPy), and in-place changes of inference tensors, which have no counter.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.fx import GraphModule, Node
from torch.nn import Parameter
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ctk.compiler.freezing.discard import DiscardedParameter, discard_parameter
from ctk.compiler.freezing.freeze import Transform, constants_of, fold, freeze_values, sources_of
from ctk.compiler.fx.clone import same_bits
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.torch_compat.dynamo.tensor_sources import guard_identity
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed

log = logging.getLogger("ctk.pipeline")


def fw_compiler_freezing(
    graph: GraphModule,
    inputs: Sequence[object],
    *,
    captured: GraphModule,
    example_inputs: Sequence[object],
    inner_compile: Callable[[GraphModule, Sequence[object]], Boxed],
    transform: Transform = fold,
) -> "FrozenCall":
    """Compile an inference graph with the user module's tensors as constants.

    Args:
        graph: An ATen inference graph from autograd dispatch; changed in place.
        inputs: One value per placeholder of `graph`, real or fake.
        captured: The graph before autograd dispatch, as for `freeze`.
        example_inputs: Inputs of `captured`, as for `freeze`.
        inner_compile: Compiles the frozen graph for the inputs that remain.
        transform: As for `freeze`.

    Source: `fw_compiler_freezing` of `torch/_inductor/compile_fx.py`. That one never looks at the
    originals again.
    """
    _count_fused_steps()
    values = constants_of(captured, graph, example_inputs)
    sources = sources_of(captured, example_inputs)
    originals = {i: Original(*sources[i], v, _state(v)) for i, v in values.items()}
    thawed = copy_graph_module(graph, lazy=True)
    preserved = freeze_values(graph, values, transform)
    inner = inner_compile(graph, [inputs[index] for index in preserved])
    return FrozenCall(inner, preserved, originals, thawed)


@dataclass(slots=True)
class Original:
    """A tensor that has the value of a constant.

    Attributes:
        node: Its placeholder in the captured graph, if any.
        state: Its version and the address of its memory, when it had that value.
    """

    name: str
    node: Node | None
    value: torch.Tensor
    state: tuple[int | None, int | None]

    def is_still(self, value: object) -> bool:
        """Return whether a value is the frozen one."""
        if value is self.value:
            return isinstance(value, DiscardedParameter) or _state(self.value) == self.state
        return self._adopts(value)

    def _adopts(self, value: object) -> bool:
        """Take another tensor as the original if it has the same numbers in the same places."""
        mine = self.value
        if isinstance(mine, DiscardedParameter) or _state(mine) != self.state:
            return False
        if not isinstance(value, torch.Tensor) or isinstance(value, DiscardedParameter):
            return False
        if not _same_tensor(mine.detach(), value.detach()):
            return False
        self.value, self.state = value, _state(value)
        return True


class FrozenCall:
    """A compiled frozen graph: takes one list of all inputs, passes on those at `preserved`."""

    def __init__(
        self,
        inner: Boxed,
        preserved: Sequence[int],
        originals: Mapping[int, Original],
        thawed: GraphModule,
    ) -> None:
        self.preserved, self.originals = preserved, originals
        self._inner, self._thawed = inner, thawed
        self._told: set[str] = set()
        boxed(self)

    def __call__(self, args: list[object]) -> Sequence[object]:
        changed = [one.name for i, one in self.originals.items() if not one.is_still(args[i])]
        values = list(args) if changed else [args[index] for index in self.preserved]
        args.clear()
        if not changed:
            return self._inner(values)
        if not self._told.issuperset(changed):
            self._told.update(changed)
            log.warning("%s", _told(changed))
        return self._thawed(*values)

    def settle(self, *, discard: bool = False) -> None:
        """Tie the compile to its originals once it has succeeded; `discard` drops their numbers."""
        for one in self.originals.values():
            is_dropped = discard and type(one.value) is Parameter
            if one.node is not None:
                guard_identity(one.node, only=is_dropped)
            if is_dropped:
                discard_parameter(one.value, one.name)


@cache
def _count_fused_steps() -> None:
    """Count steps of fused optimizers as writes from now on, in this process.

    `Adam(..., fused=True).step()` changes parameters in place, and `parameter._version` stays. This
    hook counts one version up for each of its parameters, as the plain kernels do.
    """
    register_optimizer_step_post_hook(_count_step)


def _count_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
    if torch.compiler.is_compiling():  # a step that is compiled writes by `copy_`, which counts
        return
    for group in optimizer.param_groups:
        if group.get("fused"):
            written = (each for each in group["params"] if each.grad is not None)
            increment_version(each for each in written if not each.is_inference())


def _told(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return (
        f"{changed[0]}{more} changed after freezing: the graph runs in eager, without its "
        "constants. Compile again (torch._dynamo.reset()) once the values are final, or compile "
        "with freezing=False"
    )


def _state(value: torch.Tensor) -> tuple[int | None, int | None]:
    version = None if value.is_inference() else value._version
    return version, value.data_ptr() if value.layout is torch.strided else None


def _same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    is_alike = a.layout == b.layout and a.stride() == b.stride() and not a.is_meta
    return is_alike and same_bits(a, b)
