"""The properties of an input that a trace can read, without its numbers, as text.

    Parameter torch.float32 cpu torch.strided [2,["symbol",0]] ... requires_grad leaf memory#0

Inputs that are one object, or share memory, have equal numbers there.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ctk.compiler.torch_compat.aot.aot_data import NoDataForm
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fake import shape_guards
from ctk.compiler.torch_compat.fx import graphs


@dataclass(slots=True)
class InputFacts:
    """Describes inputs one after the other; equal memory gets equal numbers."""

    numbers: Mapping[str, int]
    objects: dict[int, int] = field(default_factory=dict[int, int])
    memories: dict[int, int] = field(default_factory=dict[int, int])

    def text(self, value: object, given: object) -> str:
        """Return the text of one input.

        Args:
            value: As a trace will get it: maybe fake, with symbols.
            given: The original, which identifies equal inputs and shared memory.

        Raises:
            NoDataForm: It is neither a plain tensor nor a number, a string or None.
        """
        if isinstance(value, torch.Tensor) and isinstance(given, torch.Tensor):
            return self._tensor(value, given)
        if fake.is_symbolic(value):
            return f"{type(value).__name__} {self._number(value)}"
        if type(value) in (bool, int, float, complex, str, type(None), torch.device, torch.dtype):
            return f"{type(value).__name__} {value!r}"
        raise NoDataForm(f"an input is a {type(value).__qualname__}")

    def _tensor(self, value: torch.Tensor, given: torch.Tensor) -> str:
        kind = type(given)
        if kind not in (torch.Tensor, torch.nn.Parameter) and not fake.is_fake(given):
            raise NoDataForm(f"an input is a {kind.__qualname__}, a subclass of Tensor")
        if value.layout != torch.strided or value.is_quantized:
            raise NoDataForm(f"an input is {value.layout}, quantized or not dense")
        if torch._C._functorch.is_functorch_wrapped_tensor(given):
            raise NoDataForm("an input belongs to a transform of functorch")
        role = "Parameter" if isinstance(given, torch.nn.Parameter) else "Tensor"
        one = self.objects.setdefault(id(given), len(self.objects))
        memory = self.memories.setdefault(graphs.storage_of(given), len(self.memories))
        nbytes = self._number(value.untyped_storage().nbytes())
        return f"{role}#{one} {self._look(value)} memory#{memory} of {nbytes}"

    def _look(self, value: torch.Tensor) -> str:
        layout = ",".join(self._number(each) for each in shape_guards.layout_of(value))
        flags = (
            value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(),
            value.is_inference(), value.retains_grad,
        )  # fmt: skip
        text = f"{value.dtype} {value.device} [{layout}] {''.join('01'[flag] for flag in flags)}"
        if value._base is not None:
            made = torch._C._autograd._get_creation_meta(value)
            text += f" view {made} of ({self._look(value._base)})"
        return text

    def _number(self, value: Any) -> str:
        if not fake.is_symbolic(value):
            return str(value)
        return json.dumps(shape_guards.encode_expression(value.node.expr, self.numbers))


def describe_inputs(
    named: Mapping[str, torch.Tensor], traced: Sequence[object], given: Sequence[object]
) -> Iterator[str]:
    """Yield a line for each symbol, parameter or buffer of the graph, and input.

    Args:
        named: Parameters and buffers.
        traced: The inputs as a trace will see them.
        given: The inputs as they came.

    Raises:
        NoDataForm: An input has no text.
    """
    symbols = shape_guards.symbols_of(traced)
    facts = InputFacts({name: place for place, name in enumerate(symbols)})
    for place, (name, value) in enumerate(symbols.items()):
        yield f"symbol {place} {'' if value is None else _range(name, value)}"
    for name, tensor in named.items():
        yield f"{name} {facts.text(tensor, tensor)}"
    for place, (value, one) in enumerate(zip(traced, given, strict=True)):
        yield f"input {place} {facts.text(value, one)}"


def _range(name: str, value: Any) -> str:
    """Return the range of a symbol (`ShapeEnv.var_to_range`)."""
    env = value.node.shape_env
    known = env.var_to_range.get(value.node.expr)
    bounds = "" if known is None else f"{known.lower}..{known.upper}"
    return f"{type(value).__name__} {bounds} {value.node.has_hint()} {env.settings}"
