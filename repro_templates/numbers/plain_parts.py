"""The plain tensors inside a tensor of a class of its own, which can be compared.

torch.ones(2)                 {"": torch.ones(2)}
TwoTensor(a, b)               {".a": a, ".b": b}           (`__tensor_flatten__`)
a jagged nested tensor        {"._values": ..., "._offsets": ...}
t.as_subclass(Tagged)         {"": t}                      (it only marks its tensors)
"""

from collections.abc import Mapping

from torch import Tensor

from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES, parts_of


def plain_parts(tensor: Tensor) -> dict[str, Tensor]:
    """Return the plain tensors of a tensor by their paths in it; a plain one is its own part."""
    if type(tensor) in PLAIN_CLASSES:
        return {"": tensor}
    plain = parts_of(tensor).plain()
    return {"".join(f".{name}" for name in path if name): part for path, part in plain}


def take_apart(values: Mapping[str, object]) -> dict[str, object]:
    """Return values by name; a tensor of a class of its own as its parts: `out0.a`, `out0.b`."""
    named: dict[str, object] = {}
    for name, value in values.items():
        is_own = isinstance(value, Tensor) and hasattr(value, "__tensor_flatten__")
        parts = plain_parts(value) if isinstance(value, Tensor) and is_own else {"": value}
        named |= {f"{name}{place}": part for place, part in parts.items()}
    return named
