"""Programs of many kinds as packages: results, writes, aliases and nesting are those of eager."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch.export import Dim
from torch.utils import _pytree as pytree

import ctk

R = torch.randn
BATCH, ROWS = Dim("batch", min=2, max=100), Dim("rows", min=1, max=50)


DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.bool,
)


class Tied(nn.Module):
    """Two names, one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, index: Tensor) -> Tensor:
        return self.out(self.embedding(index))


class Buffers(nn.Module):
    """Buffers that are written, not persistent, or returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("own", torch.ones(3), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total.add_(x)
        self.count += 1
        return self.total * 2 + self.count + self.own, self.total.clone()


class Attributes(nn.Module):
    """Tensors that are neither parameters nor buffers, and a parameter that is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.constant = torch.ones(3)
        self.listed = [torch.ones(3)]
        self.weight = nn.Parameter(R(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x + self.constant + self.listed[0], self.weight, self.weight[1:], x


@dataclass
class Pair:
    """A class that is registered with torch.export."""

    tensor: Tensor
    number: int


torch.export.register_dataclass(Pair, serialized_type_name="tests.test_programs.Pair")


@torch.library.custom_op("ctk_test_programs::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """An operator of the program's own."""
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@dataclass(frozen=True)
class Program:
    """A model, and its calls; the first one is traced."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shapes: Any = None
    more: tuple[tuple[Any, ...], ...] = ()


def of(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    return Program(model, args, kwargs)


def varying(model: Callable[..., Any], shapes: tuple[Any, ...], *calls: tuple[Any, ...]) -> Program:
    return Program(model, calls[0], {}, (shapes,), calls[1:])


def default_arguments(x: Tensor, k: int = 2, y: Tensor | None = None) -> Tensor:
    return x * k if y is None else x * k + y


def chosen(x: Tensor, *, scale: int = 2, flag: bool = False, mode: str = "a") -> Tensor:
    return x * scale if flag and mode == "b" else x


def nested(x: Tensor, named: dict[str, Any], listed: list[Tensor]) -> dict[str, Any]:
    return {"a": [x + named["k"], (listed[0],)], "n": named["n"]}


def of_three(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.t(), y[0], y


def of_type(dtype: torch.dtype) -> Program:
    return of(lambda x: (x + x, x.t(), x[1:]), (R(3, 4) * 3).to(dtype))


QUICK = {
    "results of torch's own class": of(lambda x: torch.sort(x, -1), R(3, 4)),
    "sizes that stand nowhere alone": varying(
        lambda x: x.view(x.shape[0] // 2, 2, -1).sum(1), ({0: 2 * ROWS},), (R(8, 3),), (R(20, 3),)
    ),
    "complex": of_type(torch.complex64),
}
PROGRAMS = {
    "tied": of(Tied(), torch.tensor([1, 2, 3])),
    "buffers": of(Buffers(), R(3)),
    "attributes": of(Attributes(), R(3)),
    "batch norm in training": of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), R(5, 4)),
    "writes": of(lambda x, y: (x.add_(1).mul_(y), None)[1], R(3), R(3)),
    "writes to a view": of(lambda x: (x[0].zero_(), x.sum())[1], R(3, 4)),
    "an input as result": of(lambda x: (x, x * 2, x), R(3)),
    "views of an input": of(lambda x: (x.t(), x[1:], x.view(-1)), R(3, 4)),
    "results that share": of(of_three, R(3, 4)),
    "a number as result": of(lambda x: 5, R(3)),
    "no result": of(lambda x: None, R(3)),
    "constants": of(lambda x: (torch.ones(3), x, "s", 1.5, True, None), R(3)),
    "nested": of(
        lambda x, d, p: {"a": [x + d["k"], (p[0],)], "n": d["n"]}, R(3), {"k": R(3), "n": 4}, [R(2)]
    ),
    "a class": of(lambda p: Pair(p.tensor * 2, p.number), Pair(R(3), 3)),
    "keywords": of(chosen, R(3), scale=3, flag=True, mode="b"),
    "defaults": of(default_arguments, R(3)),
    "an optional": of(default_arguments, R(3), y=R(3)),
    "any number of arguments": of(lambda *a, **k: sum(a) + k["z"], R(3), R(3), z=R(3)),
    "texts": of(lambda x, names: x + len(names), R(3), ["a", "b"]),
    "no arguments": of(lambda: torch.ones(3) * 2),
    "linear": varying(nn.Linear(4, 3).forward, ({0: BATCH},), (R(5, 4),), (R(2, 4),), (R(100, 4),)),
    "twice the rows": varying(
        lambda x, y: x + y.reshape(-1, 2).sum(1),
        ({0: ROWS}, {0: 2 * ROWS}),
        (R(5), R(10)),
        (R(7), R(14)),
    ),
    "one row more": varying(
        lambda x, y: x + y[1:], ({0: ROWS}, {0: ROWS + 1}), (R(5), R(6)), (R(7), R(8))
    ),
    "equal sizes": varying(
        lambda x, y: x @ y, ({1: BATCH}, {0: BATCH}), (R(3, 5), R(5, 2)), (R(3, 9), R(9, 2))
    ),
    "a number that varies": varying(
        lambda x, n: x * n + n, (None, Dim.DYNAMIC), (R(3), 4), (R(3), 9)
    ),
    "sizes as results": varying(
        lambda x: (x.shape[0] * 2 + 1, torch.arange(x.shape[0])),
        ({0: BATCH},),
        (R(4, 2),),
        (R(9, 2),),
    ),
    "joined": varying(
        lambda x, y: torch.cat([x, y]).view(-1, 2),
        ({0: BATCH}, {0: Dim("other", min=2, max=100)}),
        (R(4, 2), R(6, 2)),
        (R(9, 2), R(3, 2)),
    ),
    "no rows": varying(
        lambda x: x.sum(0) + x.shape[0],
        ({0: Dim("some", min=0, max=9)},),
        (R(4, 3),),
        (R(0, 3),),
        (R(1, 3),),
    ),
    "empty": of(lambda x: (x + 1, x.sum(), x.t()), R(0, 3)),
    "no dimensions": of(lambda x, y: (x * y, x.view(1)), torch.tensor(2.0), R(3)),
    "an operator of its own": of(lambda x: twice(x) + 1, R(3)),
    "as many as there are": of(lambda x: x[x > 0].sum(), R(6)),
    "lstm": of(nn.LSTM(4, 5, batch_first=True).eval(), R(2, 3, 4)),
    "transformer": of(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), R(2, 3, 8)),
    "channels last": of(nn.Conv2d(3, 4, 3), R(2, 3, 8, 8).to(memory_format=torch.channels_last)),
    "not contiguous": of(lambda x: x + 1, R(4, 6)[:, ::2]),
    "expanded": of(lambda x: x + 1, R(4).expand(3, 4)),
    **{
        str(dtype): of_type(dtype)
        for dtype in (
            torch.bfloat16,
            torch.float16,
            torch.float64,
            torch.int8,
            torch.uint8,
            torch.bool,
        )
    },
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]


def copied(tree: Any) -> Any:
    return pytree.tree_map(lambda each: each.clone() if isinstance(each, Tensor) else each, tree)


def shared(tensors: list[Any]) -> list[int]:
    """Return for each tensor the first one that has the same memory."""
    places = [
        each.untyped_storage().data_ptr() if isinstance(each, Tensor) and each.numel() else -n - 1
        for n, each in enumerate(tensors)
    ]
    return [places.index(place) for place in places]


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # torch.export of an LSTM
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_package_does_what_the_program_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = (QUICK | PROGRAMS)[name]
    eager = copy.deepcopy(program.model) if isinstance(program.model, nn.Module) else program.model
    args, kwargs = copied((program.args, dict(program.kwargs)))
    path = tmp_path / "p.ctk"
    ctk.aot_compile(program.model, args, kwargs, dynamic_shapes=program.shapes, path=path)
    package = ctk.load(path)
    calls = [program.args, *program.more]
    for given in [each for each in calls for _ in range(2)]:
        ours, theirs = (copied((given, dict(program.kwargs))) for _ in range(2))
        result = package(*ours[0], **ours[1])
        with torch.no_grad():
            expected = eager(*theirs[0], **theirs[1])
        leaves, spec = pytree.tree_flatten((result, ours))
        wanted, wanted_spec = pytree.tree_flatten((expected, theirs))
        assert spec == wanted_spec
        for one, other in zip(leaves, wanted, strict=True):
            if isinstance(other, Tensor):
                torch.testing.assert_close(one, other, equal_nan=True)
                assert one.stride() == other.stride()
            else:
                assert (type(one), one) == (type(other), other)
        assert shared(leaves) == shared(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sizes that stand nowhere alone"])
def test_a_size_that_does_not_fit(name: str, tmp_path: Path) -> None:
    program = QUICK[name]
    path = tmp_path / "p.ctk"
    ctk.aot_compile(program.model, program.args, dynamic_shapes=program.shapes, path=path)
    package = ctk.load(path)
    with pytest.raises(ctk.CtkError, match=r"size\(0\) is 7; it must be s\d+\*2"):
        package(R(7, 3))
    with pytest.raises(ctk.CtkError, match="the package was compiled for"):
        package(R(102, 3))


class Branches(nn.Module):
    """Conditions within conditions, and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def inner(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 5, lambda x: x * 3, lambda x: x - 1, (x,))

        y = torch.cond(x.sum() > 0, lambda x: inner(self.linear(x)), lambda x: x.sin() * 2, (x,))
        count, z = while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z * 2), (torch.tensor(0), y))
        return torch.softmax(z, -1), count


@pytest.mark.slow
def test_graphs_that_operators_call_are_stored(tmp_path: Path) -> None:
    model = Branches().eval()
    dims = ({0: torch.export.Dim("rows", min=2, max=9)},)
    path = ctk.aot_compile(
        model, (torch.randn(3, 4),), dynamic_shapes=dims, path=tmp_path / "branches.ctk"
    )
    package = ctk.load(path)
    for x in (torch.ones(3, 4), -torch.ones(5, 4), torch.ones(2, 4) * 9):
        with torch.no_grad():
            torch.testing.assert_close(package(x), model(x))
