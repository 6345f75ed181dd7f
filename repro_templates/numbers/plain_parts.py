"""The plain tensors inside a tensor of a class of its own, which can be compared.

torch.ones(2)                 {"": torch.ones(2)}
TwoTensor(a, b)               {".a": a, ".b": b}           (`__tensor_flatten__`)
a jagged nested tensor        {"._values": ..., "._offsets": ...}
t.as_subclass(Tagged)         {"": t}                      (it only marks its tensors)
"""

from torch import Tensor
from torch.nn import Buffer, Parameter

PLAIN_CLASSES = (Tensor, Parameter, Buffer)


def plain_parts(tensor: Tensor) -> dict[str, Tensor]:
    """Return the plain tensors of a tensor by their paths in it; a plain one is its own part."""
    if type(tensor) in PLAIN_CLASSES:
        return {"": tensor}
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return {"": tensor.detach().as_subclass(Tensor)}
    names, _ = flatten()
    return {
        f".{name}{place}": part
        for name in names
        for place, part in plain_parts(getattr(tensor, name)).items()
    }
