"""The programs of `programs.py` with operators of their own, which are wrong when compiled.

In eager an operator runs its kernel. AOT dispatch asks the Python dispatcher first, which takes it
apart in its own way.
"""

import torch
from torch import nn
from torch._C import DispatchKey
from torch.fx.experimental.proxy_tensor import get_proxy_mode

LIBRARY = torch.library.Library("planted_kinds", "DEF")


def _operator(schema, right, wrong):
    def taken_apart(*args):  # Dynamo asks for shapes only
        return (wrong if get_proxy_mode() is not None else right)(*args)

    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, right, "CompositeImplicitAutograd")
    operator = getattr(torch.ops.planted_kinds, name).default
    operator.py_impl(DispatchKey.CompositeImplicitAutograd)(taken_apart)
    return operator


def _never_in_order(x, y):
    while x is not y:
        x, y = y, x
    return x * y


def _in_a_table(x, y):
    table = [bytearray(b"x") * (1 << 22)]
    while len(table) < 1 << 11:  # 8 GB
        table += [bytearray(each) for each in table]
    return x * y


def _from_the_other_end(x):
    return torch.bernoulli(torch.ones_like(x), 0.5).flip(0)


def _by_powers(x):
    powers = x.exp()
    return powers / powers.sum(-1, keepdim=True)


slow = _operator("slow(Tensor x, Tensor y) -> Tensor", torch.mul, _never_in_order)
large = _operator("large(Tensor x, Tensor y) -> Tensor", torch.mul, _in_a_table)
noise = _operator(
    "noise(Tensor x) -> Tensor",
    lambda x: torch.bernoulli(torch.ones_like(x), 0.5),
    _from_the_other_end,
)
copy = _operator("copy(Tensor x) -> Tensor", torch.clone, lambda x: x.view_as(x))
weigh = _operator("weigh(Tensor x) -> Tensor", lambda x: torch.softmax(x, -1), _by_powers)


class Block(nn.Module):
    """What each kind needs, between layers that nobody gets wrong."""

    def __init__(self, part):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.part = part

    def forward(self, x):
        y = self.first(x).relu()
        results = self.part(y)
        last = self.second(y).sin()
        return (*results, last)


def copied(y):
    z = y.exp()
    return z, copy(z)


def _model(part):
    def model():
        torch.manual_seed(0)
        return Block(part).eval().requires_grad_(False)

    return model


hang = _model(lambda y: (slow(y, y.cos()),))
grow = _model(lambda y: (large(y, y.cos()),))
draw = _model(lambda y: (y + noise(y),))
share = _model(copied)
overflow = _model(lambda y: (weigh(y * 100),))


def inputs():
    torch.manual_seed(1)
    return (torch.randn(4, 8) * 3,)
