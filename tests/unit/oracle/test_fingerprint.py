"""What makes two questions different: all that an oracle may answer by, and nothing else."""

import copy
import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import symbolic_trace

from ctk.compiler.fx.walk import attribute_targets
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.roles import Role
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.oracle.answers import fingerprint as cache
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint

X = torch.arange(1.0, 5.0)


def given(*inputs: object) -> Case:
    """Return a case that reads its inputs."""
    program = (lambda a: a + 1) if len(inputs) == 1 else (lambda a, b: a + b)
    return Case(symbolic_trace(program), inputs, target="fake")


class Holds(nn.Module):
    def __init__(self, one: Tensor, other: Tensor | None = None) -> None:
        super().__init__()
        self.one, self.other = one, one if other is None else other

    def forward(self, x: Tensor) -> Tensor:
        return self.one * x + self.other


def holding(*held: Tensor) -> Case:
    """Return a case whose graph reads constants."""
    return Case(symbolic_trace(Holds(*held)), (X,), target="fake")


class Calls(nn.Module):
    def __init__(self, called: nn.Module) -> None:
        super().__init__()
        self.called = called

    def forward(self, x: Tensor) -> Tensor:
        return self.called(x)


def calling(change: Callable[[nn.Module], object]) -> Case:
    """Return a case that calls a changed module."""
    called = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    with torch.no_grad():
        for each in called.parameters():
            each.fill_(1)
    change(called)
    tracer = torch.fx.Tracer()
    tracer.is_leaf_module = lambda m, module_qualified_name: m is called
    graph = tracer.trace(root := Calls(called))
    return Case(torch.fx.GraphModule(root, graph), (X,), target="fake")


def quantized(scale: float, zero: int = 0) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ints = torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8).int_repr()
        return torch._make_per_tensor_quantized_tensor(ints, scale, zero)


def per_channel(*scales: float) -> Tensor:
    ints, zeros = torch.ones(2, 2, dtype=torch.int8), torch.zeros(2, dtype=torch.long)
    return torch._make_per_channel_quantized_tensor(ints, torch.tensor(scales), zeros, 0)


def csr(value: float) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (torch.eye(3) * value).to_sparse_csr()


def coo(row: int) -> Tensor:
    with torch.sparse.check_sparse_tensor_invariants():  # torch 2.11 warns unless it is told
        return torch.sparse_coo_tensor([[row], [0]], [1.0], (3, 3))


def nested(*tensors: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(tensors))


def behind(count: int, held: Tensor = X) -> Tensor:
    """Return equal elements that start behind so many others."""
    return torch.cat([torch.zeros(count), held])[count:]


C = torch.complex(X, X)
PARAMETER = nn.Parameter(X.clone())
FROZEN = nn.Parameter(X.clone(), requires_grad=False)

DIFFERENT = {
    "offset": [given(X.clone()), given(behind(1)), given(behind(2))],
    "offset of a constant": [holding(X.clone()), holding(behind(1))],
    "more memory": [given(X.clone()), given(torch.cat([X, X])[:4])],
    "gradient": [given(X.clone()), given(X.clone().requires_grad_())],
    "parameter": [given(X.clone().requires_grad_()), given(PARAMETER)],
    "gradient of a constant": [holding(PARAMETER), holding(FROZEN)],
    "conjugate": [given(torch.complex(X, -X)), given(C.conj())],
    "inputs that share": [
        given(X, X.clone()), given(X, X[:]), given(X, X), given(*behind(4).split(2)),
    ],
    "constants that share": [holding(X, X.clone()), holding(X, X[:]), holding(X, X)],
    "an input that shares with a constant": [
        dataclasses.replace(holding(X[:]), inputs=(X,)), holding(X.clone()),
    ],
    "training": [calling(nn.Module.train), calling(nn.Module.eval), calling(lambda m: m[1].eval())],
    "a number": [calling(lambda m, n=n: setattr(m, "limit", n)) for n in (1, 2, None)],
    "buffers": [
        calling(lambda m, b=b: m[0].register_buffer("b", b, persistent=False))
        for b in (torch.zeros(2), torch.ones(2))
    ],
    "an attribute": [calling(lambda m, t=t: setattr(m[0], "t", t)) for t in (X, X + 1)],
    "a parameter's gradient": [
        calling(lambda m: m[0].bias.requires_grad_(False)), calling(lambda m: None),
    ],
    "tied parameters": [
        calling(lambda m: setattr(m, "w", nn.Parameter(m[0].weight.detach().clone()))),
        calling(lambda m: setattr(m, "w", m[0].weight)),
    ],
    "sparse values": [given(coo(0)), given(2 * coo(0))],
    "sparse indices": [given(coo(0)), given(coo(1)), given(torch.cat([coo(1), coo(1)], 1))],
    "compressed rows": [given(csr(1)), given(csr(2))],
    "scale": [given(quantized(0.1)), given(quantized(0.2)), given(quantized(0.1, 1))],
    "scales": [given(per_channel(0.1, 0.2)), given(per_channel(0.1, 0.3))],
    "nested": [given(nested(X, X[:n])) for n in (1, 2)],
    "what it is": [
        dataclasses.replace(given(X), roles={"a": Role(kind)}) for kind in ("parameter", "buffer")
    ],
    "what a constant is": [
        dataclasses.replace(case, roles={f"self.{name}": Role("buffer", name, static)})
        for case in [holding(X)]
        for name in attribute_targets(case.graph.graph)[:1]
        for static in ("guarded", None)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_an_oracle_may_see_makes_another_question(name: str) -> None:
    cases = DIFFERENT[name]
    assert len({fingerprint(case) for case in cases}) == len(cases)


NO_COPIES = ("conjugate", "compressed rows", "scale", "scales", "nested")
"""Of these `copy.deepcopy` makes none, or others."""


@pytest.mark.parametrize("name", [each for each in DIFFERENT if each not in NO_COPIES])
def test_equal_cases_are_one_question_wherever_they_lie_in_memory(name: str) -> None:
    for case in DIFFERENT[name]:
        graph, inputs = copy.deepcopy((case.graph, case.inputs))
        assert fingerprint(dataclasses.replace(case, graph=graph, inputs=inputs)) == fingerprint(
            case
        )


@pytest.mark.parametrize("name", ["offset", "gradient", "inputs that share", "what it is"])
def test_a_case_is_the_same_question_when_it_was_saved_and_loaded(
    name: str, tmp_path: Path
) -> None:
    for number, case in enumerate(DIFFERENT[name]):
        case = dataclasses.replace(case, target="ctk")
        folder = save_case(case, tmp_path / str(number), inputs="full")
        assert fingerprint(load_case(folder)) == fingerprint(case)


def test_tensors_without_values_have_a_question_too() -> None:
    fake = FakeTensorMode().from_tensor(X)
    assert fingerprint(given(fake)) != fingerprint(given(X.to("meta")))


def test_the_contents_of_a_sparse_tensor_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    raw = cache.raw_bytes
    monkeypatch.setattr(cache, "raw_bytes", lambda t: read.append(t.numel()) or raw(t))
    case, digests = given(coo(0)), Digests()
    first = fingerprint(case, digests)
    count = len(read)
    again = dataclasses.replace(case, target="other")
    assert fingerprint(again, digests) != first and len(read) == count > 0
