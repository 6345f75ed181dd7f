"""What a trace can see of an input besides its numbers, as text; symbols by numbers.

    Parameter torch.float32 cpu torch.strided [2,["symbol",0]] ... requires_grad leaf memory#0

Inputs that are one object, or share memory, have equal numbers there.
"""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ctk.compiler.torch_compat import fake, graphs, shape_guards
from ctk.compiler.torch_compat.aot_data import NoDataForm


@dataclass(slots=True)
class InputFacts:
    """Describes inputs one after the other; equal memory gets equal numbers."""

    numbers: Mapping[str, int]
    objects: dict[int, int] = field(default_factory=dict[int, int])
    memories: dict[int, int] = field(default_factory=dict[int, int])

    def text(self, value: object) -> str:
        """Return the text of one input.

        Raises:
            NoDataForm: It is neither a plain tensor nor a number, a string or None.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if fake.is_symbolic(value):
            return f"{type(value).__name__} {self._number(value)}"
        if type(value) in (bool, int, float, complex, str, type(None), torch.device, torch.dtype):
            return f"{type(value).__name__} {value!r}"
        raise NoDataForm(f"an input is a {type(value).__qualname__}")

    def _tensor(self, value: torch.Tensor) -> str:
        kind = type(value)
        is_plain = kind in (torch.Tensor, torch.nn.Parameter) or fake.is_fake(value)
        if not is_plain and not (isinstance(value, torch.nn.Buffer) and kind is torch.Tensor):
            raise NoDataForm(f"an input is a {kind.__qualname__}, a subclass of Tensor")
        if value.layout != torch.strided or value.is_quantized:
            raise NoDataForm(f"an input is {value.layout}, quantized or not dense")
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            raise NoDataForm("an input belongs to a transform of functorch")
        role = "Parameter" if isinstance(value, torch.nn.Parameter) else "Tensor"
        one = self.objects.setdefault(id(value), len(self.objects))
        memory = self.memories.setdefault(graphs.storage_of(value), len(self.memories))
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


def describe_inputs(named: Mapping[str, torch.Tensor], inputs: Sequence[object]) -> Iterator[str]:
    """Yield a line for each symbol, parameter or buffer of the graph, and input.

    Raises:
        NoDataForm: An input has no text.
    """
    symbols = shape_guards.symbols_of(inputs)
    facts = InputFacts({name: place for place, name in enumerate(symbols)})
    for place, (name, value) in enumerate(symbols.items()):
        yield f"symbol {place} {'' if value is None else _range(name, value)}"
    for name, tensor in named.items():
        yield f"{name} {facts.text(tensor)}"
    for place, value in enumerate(inputs):
        yield f"input {place} {facts.text(value)}"


def _range(name: str, value: Any) -> str:
    """Return what is known of a symbol (torch 2.11, 2.13: `ShapeEnv.var_to_range`)."""
    env = value.node.shape_env
    known = env.var_to_range.get(value.node.expr)
    bounds = "" if known is None else f"{known.lower}..{known.upper}"
    return f"{type(value).__name__} {bounds} {value.node.has_hint()} {env.settings}"
