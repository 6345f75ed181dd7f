"""Models whose joint graphs are hard to split, and those graphs as AOTAutograd traces them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from ctk.compiler.dispatch.autograd import Stages, dispatch
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.options.config import Config
from ctk.compiler.passes import JOINT
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.fx import graphs


class Calls(nn.Module):
    """A module that calls a function with itself; for what needs no class of its own."""

    def __init__(self, call: Callable[..., object], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> object:
        return self.call(self, *inputs)


@dataclass(frozen=True, slots=True)
class Sample:
    """A model, its inputs, whether its sizes are symbols, and passes that round it otherwise."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    dynamic: bool | None = None
    without: tuple[str, ...] = ()


def _rows(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*(shape or (8, 16)), requires_grad=True),)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def _dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.GELU(), nn.Linear(32, 4))


def _convolutions() -> nn.Module:
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
    return nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.BatchNorm2d(4))


def _plain_convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 4, 3), nn.GroupNorm(2, 4))


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)


def _attend(self: nn.Module, x: Tensor) -> Tensor:
    """Attention by hand, with a residual: many views, a softmax, several matrix products."""
    for _ in range(2):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = ((q @ k.transpose(-1, -2)) / 4).softmax(-1)
        x = x + F.silu(self.out(weights @ v)) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1)
    return x


def _attention() -> nn.Module:
    return Calls(_attend, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def _overwrite(self: nn.Module, x: Tensor) -> Tensor:
    """Use a buffer, then overwrite it: computed again from the buffer, `sin` would be another."""
    result = (torch.sin(self.count) * x * self.weight).tanh()
    self.count.add_(1)
    return result


def _overwriting() -> nn.Module:
    return Calls(_overwrite, count=torch.ones(16), weight=nn.Parameter(torch.ones(16)))


def _checkpoint(self: nn.Module, x: Tensor, drop: float) -> Tensor:
    for _ in range(2):
        x = checkpoint(lambda t: F.dropout(F.gelu(self.a(t)), drop), x, use_reentrant=False)
    return x.sin()


def _checkpointed() -> nn.Module:
    return Calls(
        lambda self, x: checkpoint(
            lambda t: self.b(F.gelu(self.a(t))).tanh(), x, use_reentrant=False
        ).sin(),
        a=nn.Linear(16, 16),
        b=nn.Linear(16, 16),
    )


def _checkpointed_dropout() -> nn.Module:
    return Calls(lambda self, x: _checkpoint(self, x, 0.5), a=nn.Linear(16, 16))


def _branch(_self: nn.Module, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda t: (t.sin() * 2,), lambda t: (t.cos(),), (x,))[0].exp()


def _tie(self: nn.Module, x: Tensor) -> Tensor:
    return F.gelu(x @ self.weight).tanh() @ self.weight.t()


def _tied() -> nn.Module:
    return Calls(_tie, weight=nn.Parameter(torch.randn(16, 16)))


def _recur(self: nn.Module, x: Tensor) -> Tensor:
    """An LSTM's loop over the second dimension."""
    hidden = cell = x.new_zeros(x.shape[0], 16)
    for step in x.unbind(1):
        gates = (self.a(step) + self.b(hidden)).chunk(4, -1)
        cell = gates[0].sigmoid() * cell + gates[1].sigmoid() * gates[2].tanh()
        hidden = gates[3].sigmoid() * cell.tanh()
    return hidden


def _mix(self: nn.Module, x: Tensor) -> Tensor:
    """A mixture of experts with dropout."""
    weights = self.gate(x).softmax(-1)
    experts = [F.dropout(F.relu(expert(x)), 0.2) for expert in self.experts]
    return sum((weights[:, i, None] * each for i, each in enumerate(experts)), torch.zeros(()))


def _mixture() -> nn.Module:
    experts = nn.ModuleList(nn.Linear(16, 32) for _ in range(3))
    return Calls(_mix, gate=nn.Linear(16, 3), experts=experts)


def _attend_causally(self: nn.Module, x: Tensor) -> Tensor:
    """The fused operator, whose dropout is 0: it may run again."""
    q, k, v = (each.unflatten(-1, (4, 4)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.out(found.transpose(1, 2).flatten(2)) + x


def _causal() -> nn.Module:
    return Calls(_attend_causally, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def _embedding() -> nn.Module:
    parts = (nn.Embedding(1000, 32), nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU())
    return nn.Sequential(*parts, nn.Linear(64, 1000))


def _tokens() -> tuple[Tensor, ...]:
    return (torch.randint(0, 1000, (4, 16)),)


def _aliased() -> tuple[Tensor, ...]:
    base = torch.randn(8, 16)
    return base[:4].requires_grad_(), base[2:6]


SAMPLES = (
    Sample("mlp", _mlp, _rows()),
    Sample("dropout", _dropout, _rows()),
    # oneDNN rounds channels last in another way (torch 2.15), and that pass only reassociates
    Sample("batch_norm", _convolutions, _rows(2, 3, 8, 8), without=("to_channels_last",)),
    Sample("convolutions", _plain_convolutions, _rows(2, 3, 8, 8), without=("to_channels_last",)),
    Sample("encoder", _encoder, _rows(2, 5, 16)),
    Sample("attention", _attention, _rows(2, 5, 16), without=("fuse_attention",)),
    Sample("dynamic", _attention, _rows(2, 5, 16), dynamic=True, without=("fuse_attention",)),
    Sample(
        "lstm",
        lambda: Calls(_recur, a=nn.Linear(8, 64), b=nn.Linear(16, 64)),
        _rows(4, 6, 8),
        without=("fuse_addmm",),
    ),
    Sample("mixture", _mixture, _rows(64, 16)),
    Sample("causal", _causal, _rows(4, 10, 16)),
    Sample("embedding", _embedding, _tokens, without=("tune_products",)),
    Sample(
        "dynamic_sizes",
        lambda: Calls(lambda _, x: (x.view(-1) * x.shape[0], x.shape[0] * x.sin().sum(0))),
        _rows(),
        dynamic=True,
    ),
    Sample("overwritten_buffer", _overwriting, _rows()),
    Sample("aliased_inputs", lambda: Calls(lambda _, a, b: a.sin() * b.cos()), _aliased),
    Sample("views_out", lambda: Calls(lambda _, x: ((x * 2).t(), (x * 2).view(-1))), _rows()),
    Sample("tied", _tied, _rows()),
    Sample("cond", lambda: Calls(_branch), _rows()),
    Sample("checkpoint", _checkpointed, _rows()),
    Sample("checkpoint_dropout", _checkpointed_dropout, _rows()),
)

BY_NAME = {sample.name: sample for sample in SAMPLES}


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint graph, and the keyword arguments with which AOTAutograd has it split."""

    graph: GraphModule
    given: Mapping[str, object]

    def copy(self) -> GraphModule:
        """Return a copy: torch's partitioner changes what it splits."""
        return copy_graph_module(self.graph)


def joint_of(
    model: nn.Module,
    inputs: Sequence[Tensor],
    *,
    dynamic: bool | None = None,
    without: tuple[str, ...] = (),
) -> Joint:
    """Return the joint graph of a model, as it is after the passes of the joint stage."""
    found: list[Joint] = []

    def keep(joint: GraphModule, joint_inputs: object, options: Mapping[str, object]):
        run_stage(
            joint,
            "joint",
            JOINT,
            Numbering(None, Config(disable=without)),
            inputs=graphs.tree_leaves(joint_inputs),
        )
        found.append(Joint(copy_graph_module(joint), dict(options)))
        return aot.plain_partition(joint, joint_inputs, options)

    def as_it_is(gm: GraphModule, _inputs: object):
        return graphs.boxed(lambda args: gm(*args))

    stages = Stages(lambda *_: None, as_it_is, as_it_is, as_it_is, keep)
    torch.compiler.reset()
    compiled = torch.compile(
        model, backend=lambda gm, example: dispatch(gm, example, stages), dynamic=dynamic
    )
    compiled(*inputs)
    return found[0]


@functools.cache
def joint_of_sample(name: str) -> Joint:
    """Return the joint graph of a sample."""
    sample = BY_NAME[name]
    return joint_of(sample.model(), sample.inputs(), dynamic=sample.dynamic, without=sample.without)
