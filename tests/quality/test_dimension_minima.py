"""Exact least shapes by family, and budgets of oracle questions."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps import STEPS, shrink_dimensions
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, op_name, op_names

R = torch.randn
ONLY = (shrink_dimensions.STEP,)


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in case.inputs if isinstance(value, torch.Tensor)]


def size(index: int, dim: int, least: int) -> Callable[[Case], bool]:
    """Return the predicate that a dimension of an input is large enough."""
    return lambda case: shapes(case)[index][dim] >= least


def multiple(factor: int) -> Callable[[Case], bool]:
    """Return the predicate that a size is a multiple, as vectorized kernels ask for."""
    return lambda case: shapes(case)[0][0] % factor == 0


def every(*conditions: Callable[[Case], bool]) -> Callable[[Case], bool]:
    return lambda case: all(condition(case) for condition in conditions)


def reduced(case, predicate, steps=ONLY) -> tuple[Reduction, int]:
    oracle = FakeOracle(predicate)
    result = minimize(Problem(case, oracle), steps)
    assert result.finished, result.problems
    return result, len(oracle.asked)


def attention(x, w):
    batch, length, width = x.shape
    q = F.linear(x, w).view(batch, length, 12, 16).transpose(1, 2)
    mixed = (q @ q.transpose(-2, -1)).softmax(-1) @ q
    return mixed.transpose(1, 2).reshape(batch, length, width)


def heads(least_heads: int, least_size: int) -> Callable[[Case], bool]:
    def holds(case: Case) -> bool:
        views = [node for node in case.graph.graph.nodes if op_name(node) == "view"]
        return all(n.args[3] >= least_heads and n.args[4] >= least_size for n in views)

    return holds


def joined_and_parted(x, y):
    a, b = torch.split(torch.cat([x, y], -1), [10, 14], -1)
    c, d = b.chunk(2, -1)
    return a.sum() + c.relu() @ d.transpose(0, 1)


def network(x, w, v):
    y = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2)
    return F.linear(y.flatten(1), v)


def conv(x, w, b):
    return F.relu(F.conv2d(x, w, b, stride=2, padding=3))


def looped(x, w):
    def body(i, x):
        return i + 1, (x @ w).view(2, 4, 6).reshape(8, 6)

    return torch.while_loop(lambda i, x: i < 3, body, (torch.tensor(0), x))


def branched(p, x, w):
    return torch.cond(
        p, lambda x, w: (x @ w).view(2, 4, 5), lambda x, w: (x @ w).view(2, 4, 5) + 1, (x, w)
    )


ANY = has_ops()
FAMILIES = {
    "one needed": (
        lambda: captured(lambda x: x.relu(), R(64, 96)), size(0, 0, 17), [(17, 1)], 18,
    ),
    "multiple of 8": (
        lambda: captured(lambda x: x.relu(), R(64, 5)), multiple(8), [(8, 1)], 14,
    ),
    "multiple of 32": (
        lambda: captured(lambda x: x.relu(), R(224, 5)), multiple(32), [(32, 1)], 21,
    ),
    "even": (lambda: captured(lambda x: x.relu(), R(96, 5)), multiple(2), [(2, 1)], 9),
    "multiple of 24": (
        lambda: captured(lambda x: x.relu(), R(240, 5)), multiple(24), [(24, 1)], 40,
    ),
    "multiple of 8 from 20 on": (
        lambda: captured(lambda x: x.relu(), R(64, 5)), every(multiple(8), size(0, 0, 20)),
        [(24, 1)], 22,
    ),
    "broadcast": (
        lambda: captured(lambda x, y: x + y, R(64, 96), R(64, 96)),
        lambda case: case.graph(*case.inputs)[0].shape[0] >= 17, [(1, 1), (17, 1)], 19,
    ),
    "equal sizes needed": (
        lambda: captured(lambda x: x.relu(), R(64, 64)),
        lambda case: shapes(case)[0][0] == shapes(case)[0][1] >= 5, [(5, 5)], 38,
    ),
    "attention": (
        lambda: captured(attention, R(2, 10, 192), R(192, 192)), ANY, [(1, 1, 1), (1, 1)], 3,
    ),
    "heads": (
        lambda: captured(attention, R(2, 10, 192), R(192, 192)), heads(3, 1),
        [(1, 1, 1), (3, 1)], 16,
    ),
    "heads and their size": (
        lambda: captured(attention, R(2, 10, 192), R(192, 192)), heads(3, 5),
        [(1, 1, 1), (15, 1)], 22,
    ),
    "view": (
        lambda: captured(lambda x: x.view(2, 3, 4).relu(), R(6, 4)), size(0, 1, 2),
        [(1, 2)], 8,
    ),
    "another grouping": (
        lambda: captured(lambda x: x.reshape(8, 3).relu(), R(6, 4)), size(0, 0, 3), [(3, 1)], 10,
    ),
    "embedding": (
        lambda: captured(F.embedding, torch.randint(0, 100, (4, 9)), R(100, 16)),
        lambda case: max(s[0] for s in shapes(case)) >= 5, [(1, 1), (5, 1)], 16,
    ),
    "cat and split": (
        lambda: captured(joined_and_parted, R(6, 8), R(6, 16)), ANY, [(1, 1), (1, 2)], 8,
    ),
    "layer norm": (
        lambda: captured(lambda x, w: F.layer_norm(x, (32,), w), R(4, 32), R(32)),
        size(1, 0, 9), [(1, 9), (9,)], 14,
    ),
    "group norm": (
        lambda: captured(lambda x, w: F.group_norm(x, 4, w), R(2, 16, 8, 8), R(16)), ANY,
        [(1, 4, 1, 2), (4,)], 8,
    ),
    "batch norm": (
        lambda: captured(
            lambda x, w, m, v: F.batch_norm(x, m, v, w, None, True),
            R(8, 16, 8, 8), *map(R, [16] * 3),
        ),
        ANY, [(1, 1, 1, 2), (1,), (1,), (1,)], 8,
    ),
    "convolution": (
        lambda: captured(conv, R(2, 64, 224, 224), R(64, 64, 7, 7), R(64)),
        every(size(0, 1, 4), size(0, 2, 9), size(1, 3, 3)),
        [(1, 4, 9, 1), (1, 4, 1, 3), (1,)], 40,
    ),
    "convolution without padding": (
        lambda: captured(lambda x, w: F.conv2d(x, w), R(2, 64, 224, 224), R(64, 64, 3, 3)),
        every(size(0, 1, 16), size(1, 2, 2)), [(1, 16, 2, 1), (1, 16, 2, 1)], 40,
    ),
    "network": (
        lambda: captured(network, R(2, 8, 32, 32), R(16, 8, 3, 3), R(10, 4096)), ANY,
        [(1, 1, 1, 1), (1, 1, 1, 1), (1, 1)], 3,
    ),
    "interpolate": (
        lambda: captured(
            lambda x, w: F.linear(F.interpolate(x, size=(16, 16), mode="bilinear").flatten(1), w),
            R(2, 3, 8, 8), R(10, 768),
        ),
        ANY, [(1, 1, 1, 1), (1, 1)], 3,
    ),
    "einsum": (
        lambda: captured(lambda x, y: torch.einsum("bij,bkj->bik", x, y), R(4, 5, 6), R(4, 7, 6)),
        size(0, 2, 4), [(1, 1, 4), (1, 1, 1)], 14,
    ),
    "expand": (
        lambda: captured(
            lambda x, y: (x[:, None, :].expand(8, 7, 10) * y).reshape(56, 10), R(8, 10), R(7, 10)
        ),
        size(1, 0, 3), [(1, 1), (3, 1)], 10,
    ),
    "slices": (
        lambda: captured(lambda x: x[:, 2:5].relu() * x[:, 3:4] + x[:, 0, None], R(8, 10)), ANY,
        [(1, 2)], 5,
    ),
    "factories": (
        lambda: captured(lambda x: x + torch.zeros(16, 8) + torch.arange(8), R(16, 8)),
        size(0, 0, 3), [(3, 1)], 14,
    ),
    "cond": (
        lambda: captured(branched, torch.tensor(True), R(8, 6), R(6, 5)), ANY,
        [(), (1, 1), (1, 1)], 3,
    ),
    "while_loop": (lambda: captured(looped, R(8, 6), R(6, 6)), ANY, [(1, 1), (1, 1)], 4),
    "symbolic sizes": (
        lambda: captured(lambda x: x.view(x.shape[0], 2, -1) + 1, R(8, 6), dynamic=True),
        size(0, 0, 3), [(3, 2)], 12,
    ),
    "nothing": (
        lambda: captured(lambda x: x + 1, R(4, 4)), lambda case: shapes(case) == [(4, 4)],
        [(4, 4)], 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_least_shapes(name):
    make, predicate, least, budget = FAMILIES[name]
    torch.manual_seed(0)
    result, questions = reduced(make(), predicate)
    assert shapes(result.best) == least
    assert questions <= budget


def test_together_with_all_other_steps():
    def run(x):
        for _ in range(10):
            x = (x.sin() + x.cos()).tanh()
        return (x.softmax(0) * 2).sum(0)

    needed = every(has_ops("softmax"), size(0, 0, 17))
    result, questions = reduced(captured(run, R(64, 96)), needed, STEPS)
    assert shapes(result.best) == [(17, 1)]
    assert op_names(result.best) == ["softmax"]
    assert questions <= 40


class Attention(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (p.view(batch, length, 4, width // 4).transpose(1, 2) for p in parts)
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def exported(module: nn.Module, *inputs: torch.Tensor) -> Case:
    """Return the aten graph of an exported module, with its parameters as inputs."""
    program = torch.export.export(module.eval(), inputs).run_decompositions()
    given = iter(inputs)
    values = tuple(
        program.state_dict.get(spec.target) if spec.target else next(given)
        for spec in program.graph_signature.input_specs
    )
    return Case(program.graph_module, values, target="fake")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of `run_decompositions`
def test_an_exported_attention():
    result, questions = reduced(exported(Attention(), R(2, 10, 32)), lambda case: True)
    assert {dim for shape in shapes(result.best) for dim in shape} == {1, 3}
    assert shapes(result.best)[2] == (3, 1)  # three of everything: q, k and v
    assert questions <= 4


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of `run_decompositions`
def test_an_exported_network():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=2, padding=3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 3, padding=1, groups=4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    case = exported(net, R(2, 3, 224, 224))
    result, questions = reduced(case, lambda case: shapes(case)[-1][3] >= 9)
    assert shapes(result.best)[-1] == (1, 1, 1, 9)
    assert all(set(shape) <= {1} for shape in shapes(result.best)[:-1])
    assert questions <= 25
