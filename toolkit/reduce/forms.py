"""The forms of values in a changed graph, by fake tensors: no number is computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.reduce.eager_values import TensorInfo, call_node, describe


class Refused(Exception):
    """A node does not take operands of these forms."""


@dataclass(slots=True)
class Forms:
    """The forms of a case's values while its graph changes, by node name.

    Attributes:
        known: Forms in the original case (`eager_values.describe`).
    """

    case: Case
    known: Mapping[str, object]
    changed: dict[str, object] = field(default_factory=dict[str, object])
    _mode: Any = None

    def of(self, name: str) -> object:
        """Return the current form of a value."""
        return self.changed.get(name, self.known[name])

    def was(self, name: str) -> object:
        """Return the original form of a value."""
        return self.known[name]

    def run(self, node: Node, read: Callable[[Node], object]) -> None:
        """Record the result form of a node for operands of other forms.

        Args:
            read: Maps an operand to the form of the value that is read in its place.

        Raises:
            Refused: It takes no such operands, or fake tensors cannot run it.
        """
        try:
            found = self._run(node, read)
        except Exception as error:
            raise Refused(f"{node.name}: {error}") from error
        before = self.known[node.name]
        found = _as_before(found, before)
        if found != before:
            self.changed[node.name] = found

    def _run(self, node: Node, read: Callable[[Node], object]) -> object:
        self._mode = self._mode or fake.new_fake_mode()
        with fake.without_log(), apply_modes(self.case.modes), fake.fake_compute(self._mode):
            arguments = map_arg((node.args, node.kwargs), lambda each: _compute_form(read(each)))
            args, kwargs = cast("tuple[tuple[Any, ...], dict[str, Any]]", arguments)
            return describe(call_node(self.case.graph, node, args, kwargs))


def _compute_form(info: object) -> Any:
    if isinstance(info, TensorInfo):
        device = torch.device(info.device)
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=device)
    return tuple(_compute_form(item) for item in info) if isinstance(info, tuple) else info


def _as_before(found: object, before: object) -> object:
    """Return a form with the gradient flags that a fake run does not compute."""
    if isinstance(found, tuple) and isinstance(before, tuple) and len(found) == len(before):
        return tuple(_as_before(*pair) for pair in zip(found, before, strict=True))
    if isinstance(found, TensorInfo) and isinstance(before, TensorInfo):
        return replace(found, requires_grad=before.requires_grad, in_transform=before.in_transform)
    return found
