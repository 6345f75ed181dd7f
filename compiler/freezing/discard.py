"""Drop the originals of frozen parameters; a later use of one raises.

A dropped parameter stays the same object for all its holders (several modules, an optimizer, a
list), but its numbers are gone:

    model.encoder.weight + 1
    DiscardedParameterError: the parameter encoder.weight was discarded when a graph was frozen ...

Uses without numbers still work: `repr`, its shape, dtype and device, `requires_grad`, whether it
is a parameter, its place in `model.parameters()`, `model.load_state_dict(state, assign=True)`,
which puts others in its place. Everything else raises: arithmetic, `state_dict()`, `.data`, copies,
a second compile, another graph of the same program.

Source: `ErasedTensor` of `torch/_inductor/freezing.py`. That one puts new objects into the modules
that it finds; other holders of a parameter keep the old one, and its memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Parameter

from ctk.compiler.errors import DiscardedParameterError
from ctk.compiler.fx.types import tensor_text
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs

_HARMLESS = frozenset(
    {"requires_grad", "dtype", "device", "layout", "grad", "grad_fn", "is_leaf", "is_meta"}
)
"""Properties that say nothing of the numbers."""


class DiscardedParameter(Parameter):
    """A parameter whose numbers were dropped; a parameter becomes one by `discard_parameter`."""

    discarded_name: str
    discarded_shape: torch.Size
    discarded_type: str

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        owner = getattr(getattr(func, "__self__", None), "__name__", None)
        name = getattr(func, "__name__", str(func))
        if name == "__get__" and owner in _HARMLESS:
            return super().__torch_function__(func, types, args, kwargs or {})
        leaves = graphs.tree_leaves((args, dict(kwargs or {})))
        touched = next(leaf for leaf in leaves if isinstance(leaf, DiscardedParameter))
        if name == "__get__" and owner == "shape":
            return touched.discarded_shape
        raise _error(touched, str(owner) if name in ("__get__", "__set__") and owner else name)

    def __repr__(self) -> str:  # type: ignore[override]  # torch's takes contents that are gone
        return f"<discarded parameter {self.discarded_name}: {self.discarded_type}>"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        raise _error(self, "deepcopy")

    def __reduce_ex__(self, protocol: object) -> Any:
        raise _error(self, "pickle")


def discard_parameter(parameter: torch.Tensor, name: str) -> None:
    """Drop the numbers of a plain parameter, in place, for all its holders."""
    shape = parameter.shape
    with fake.real_compute():
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    parameter.__class__ = DiscardedParameter
    assert isinstance(parameter, DiscardedParameter)
    parameter.discarded_name = name
    parameter.discarded_shape = shape
    parameter.discarded_type = tensor_text(str(parameter.dtype), shape)


def _error(parameter: DiscardedParameter, what: str) -> DiscardedParameterError:
    return DiscardedParameterError(
        f"the parameter {parameter.discarded_name} ({parameter.discarded_type}) was discarded when "
        f"a graph was frozen (freezing_discard), and now {what} needs its values. If another "
        "graph, shape or mode of the program needs them too, compile with freezing_discard=False; "
        "to use the model in eager, to copy or to save it, load its parameters again: "
        "model.load_state_dict(state, assign=True)"
    )
