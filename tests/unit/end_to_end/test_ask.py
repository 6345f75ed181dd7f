"""Whole programs: what their compiled calls give beside their eager ones, and the layer."""

import sys
from pathlib import Path

import pytest
import torch

from ctk.repro_templates.program.program_play import How
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.execution.programs import program_worker as worker
from ctk.toolkit.execution.programs.program_protocol import Plan
from ctk.toolkit.importers.in_memory import program_of

HEAD = """
import dataclasses
import torch
import torch.nn as nn
from torch._dynamo import disable  # noqa: F401

def inputs():
    return (torch.randn(3, 4),)
"""

FAILING = {
    "guards: a shadowed submodule": (
        """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = nn.Linear(4, 4)
    def forward(self, x):
        return self.sub(x).relu()
def model():
    return M().eval()
def warmups():
        return [inputs()]
def between(m):
    object.__setattr__(m, "sub", nn.Linear(4, 4))
""",
        ("accuracy", "call2.out0", "dynamo", "guards"),
    ),
    "capture: numpy rounds otherwise": (
        """
import numpy as np
def model():
    return lambda x: torch.from_numpy(np.fix(x.numpy() * 2.0)) + x
""",
        ("accuracy", "call1.out0", "dynamo", "capture"),
    ),
}

OVERLAP = {
    "another argument is read": """
def model():
    def f(x, y):
        x.add_(1)
        return x + y
    return f
def inputs():
    return torch.arange(4.0), torch.arange(4.0)
""",
    "a keyword is written from a list": """
def model():
    def f(parts, *, out):
        out.mul_(0)
        for part in parts:
            out.add_(part)
        return out * 2
    return f
def inputs():
    return {"parts": [torch.ones(3), torch.arange(3.0)], "out": torch.zeros(3)}
""",
    "integers": """
def model():
    def f(x, y):
        y[0] = 7
        return x + y
    return f
def inputs():
    return torch.arange(5), torch.arange(5)
""",
    "a buffer of the model": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))
    def forward(self, x):
        self.cache.add_(1)
        return self.cache.sum() + x
def model():
    return M()
def inputs():
    return torch.ones(4, 3)
""",
}

APART = {
    "nothing is written": """
def model():
    return lambda x, y: (x.sin(), x + y)
def inputs():
    return torch.rand(2, 3), torch.rand(2, 3)
""",
    "all is read before": """
def model():
    def f(x, y):
        z = x + y
        x.zero_()
        return z
    return f
def inputs():
    return torch.rand(4, 3), torch.rand(4, 3)
""",
    "views of one input": """
def model():
    def f(x):
        x.add_(1)
        return x.t(), x[0]
    return f
def inputs():
    return torch.rand(4, 3)
""",
}

OWN_CALLS = """
def model():
    def f(x, y):
        x.add_(1)
        return x + y
    return f
def warmups():
    return [(torch.ones(4), torch.ones(4))]
def inputs():
    b = torch.arange(6.0)
    return b[:4], b[2:]
"""

OPERATORS = """
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
"""

RAISING_OPERATORS = {
    "scan": (
        """
def model():
    return lambda init, xs: scan(lambda c, x: (c + x, c * x), init, xs)
def inputs():
    return torch.zeros(3), torch.ones(4, 3)
""",
        "post_grad.decompose_scan_to_while_loop._",
    ),
    "scan over a dict": (
        """
def model():
    def step(c, x):
        return {"a": c["a"] * x, "b": c["b"] + 1}, {"y": c["a"].sum(-1)}
    return lambda init, xs: scan(step, init, xs, dim=1)
def inputs():
    return {"a": torch.ones(2, 3), "b": torch.zeros(2)}, torch.ones(2, 4, 3)
""",
        "post_grad.decompose_scan_to_while_loop._",
    ),
    "map": (
        """
def model():
    return lambda xs, y: map_rows(lambda x, y: x.sin() + y, xs, y)
def inputs():
    return torch.ones(4, 3), torch.ones(3)
""",
        "post_grad.decompose_map_to_while_loop._",
    ),
}

HEALTHY = {
    "a counter, a list and a global": """
SEEN = []
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.log = 0, []
        self.norm = nn.BatchNorm1d(4)
    def forward(self, x):
        self.calls += 1
        self.log.append(x.shape[0])
        SEEN.append(self.calls)
        return {"y": self.norm(x), "n": self.calls}
def model():
    return M()
""",
    "dropout and noise": """
def model():
    return lambda x: nn.functional.dropout(x, 0.5) + torch.rand(4)
""",
    "both raise": """
def model():
    def f(x):
        if x.shape[0] == 3:
            raise ValueError("three rows are too many")
        return x
    return f
def warmups():
    return [(torch.ones(2, 4),)]
""",
    "written in place, and returned as a view": """
def model():
    def f(x):
        x.add_(1)
        return x.t(), x[1:], x
    return f
""",
    "a dataclass and a named tuple": """
import collections
@dataclasses.dataclass
class Out:
    y: torch.Tensor
    n: int
Pair = collections.namedtuple("Pair", "a b")
def model():
    return lambda x: (Out(x.sin(), 3), Pair(x.cos(), [x, {"k": None}]))
""",
    "a time is not compared": """
import time
class M(nn.Module):
    def forward(self, x):
        self.at = time.perf_counter_ns()
        return x + 1
def model():
    return M()
""",
    "between calls a program trains its weight": """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)
    def forward(self, x):
        return self.lin(x)
def model():
    return M()
def warmups():
    return [(torch.randn(5, 4),), inputs()]
def between(m):
    with torch.no_grad():
        m.lin.weight.mul_(2)
""",
}


def asked(tmp_path: Path, text: str, target: str = "aot_eager", **options: object) -> EndToEnd:
    path = tmp_path / "program.py"
    path.write_text(HEAD + text)
    return ask(ProgramQuestion(load_program(str(path)), target, **options))  # type: ignore[arg-type]  # keywords of a test


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_is_seen_in_its_call_and_layer(name: str, tmp_path: Path) -> None:
    text, wanted = FAILING[name]
    found = asked(tmp_path, text)
    signature = found.judgement.signature
    assert signature is not None, found
    assert (signature.kind, signature.output, found.layer, found.cause) == wanted, found


@pytest.mark.parametrize("name", OVERLAP)
def test_a_guard_on_shared_memory_is_missed_with_aliases_only(name: str, tmp_path: Path) -> None:
    assert asked(tmp_path, OVERLAP[name]).judgement.verdict is Verdict.PASSES
    found = asked(tmp_path, OVERLAP[name], aliases=True)
    assert found.judgement.fails and found.layer == "dispatch", found
    assert found.more in ("overlaps", "twins", "buffers"), found
    assert found.evidence[-1].startswith(f"call {found.call} has inputs ")


@pytest.mark.parametrize("name", APART)
def test_other_memory_changes_no_result_of_a_healthy_program(name: str, tmp_path: Path) -> None:
    found = asked(tmp_path, APART[name], aliases=True)
    assert found.judgement.verdict is Verdict.PASSES, found


def test_calls_of_the_program_that_overlap_are_compared_with_overlapping_float64(
    tmp_path: Path,
) -> None:
    found = asked(tmp_path, OWN_CALLS)
    signature = found.judgement.signature
    assert signature is not None and signature.output == "call2.out0", found
    assert found.layer == "dispatch", found


@pytest.mark.filterwarnings("ignore")  # Inductor's own
@pytest.mark.parametrize("name", RAISING_OPERATORS)
def test_an_operator_that_inductor_cannot_compile_names_the_pass(name: str, tmp_path: Path) -> None:
    text, raising = RAISING_OPERATORS[name]
    found = asked(tmp_path, OPERATORS + text, "inductor")
    signature = found.judgement.signature
    assert signature is not None and signature.kind == "compile-error", found
    assert (found.layer, found.cause) == ("forward", raising), found


@pytest.mark.filterwarnings("ignore")  # Dynamo warns of functions that it does not know
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_raises_no_alarm(name: str, backward: bool, tmp_path: Path) -> None:
    if backward and "between" not in name:
        pytest.skip("nothing to differentiate")
    found = asked(tmp_path, HEALTHY[name], backward=backward)
    assert found.judgement.verdict is Verdict.PASSES, found


def wrong_on_the_second_call(gm: torch.fx.GraphModule, inputs: object) -> object:
    calls = [0]

    def run(*args: object) -> object:
        calls[0] += 1
        out = gm(*args)
        return out if calls[0] == 1 else tuple(each + 1 for each in out)

    return run


def test_a_second_call_of_a_program_that_has_one_is_made() -> None:
    program = program_of(lambda x: x.sin(), [torch.randn(3)])
    target = f"{__name__}:wrong_on_the_second_call"
    found = ask(ProgramQuestion(program, target))
    assert (found.call, found.layer, found.cause) == (2, "runtime", "later call")
    assert found.where == "a later call (2nd)"
    assert ask(ProgramQuestion(program, target, calls=1)).judgement.verdict is Verdict.PASSES


def test_what_a_callable_keeps_is_as_it_was() -> None:
    log: list[int] = []
    weight = torch.zeros(3)

    def program(x: torch.Tensor) -> torch.Tensor:
        log.append(1)
        weight.add_(1)
        return x + weight

    found = ask(ProgramQuestion(program_of(program, [torch.randn(3)]), "aot_eager"))
    assert found.judgement.verdict is Verdict.PASSES, found
    assert not log
    assert torch.equal(weight, torch.zeros(3))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("stride", "lambda x: x.t().contiguous()"),
        ("alias", "lambda x: x.view(-1)"),
        ("requires-grad", "lambda x: nn.Linear(4, 2)(x)"),
    ],
)
def test_what_is_no_number_counts(kind: str, text: str, tmp_path: Path) -> None:
    text = f"def model():\n    return {text}\n"
    found = asked(tmp_path, text, f"{__name__}:forgets_{kind[:5]}", strides=True)
    assert found.judgement.signature is not None
    assert found.judgement.signature.kind == kind


def forgets_strid(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(each.t().contiguous().t() for each in gm(*args))


def forgets_alias(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(each.clone() for each in gm(*args))


def forgets_requi(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(each.detach() for each in gm(*args))


def test_strides_of_equal_values_are_left_out(tmp_path: Path) -> None:
    text = "def model():\n    return lambda x: x.t().contiguous()\n"
    found = asked(tmp_path, text, f"{__name__}:forgets_strid")
    assert found.judgement.verdict is Verdict.PASSES


def test_a_target_that_freezes_gets_the_parameters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it has nothing to fold, and what it folds wrongly passes."""
    held: list[int] = []

    def target_backend(*_: object) -> object:
        def compile_graph(gm: torch.fx.GraphModule, _: object) -> object:
            held.append(len(list(gm.parameters())))
            return gm.forward

        return compile_graph

    monkeypatch.setattr("ctk.toolkit.end_to_end.question.target_backend", target_backend)
    path = tmp_path / "linear.py"
    path.write_text(f"{HEAD}\ndef model():\n    return nn.Linear(4, 4).eval()\n")
    for freezing in (False, True):
        program = load_program(str(path))
        ask(ProgramQuestion(program, "inductor", {"freezing": freezing}, calls=1))
    assert held == [0, 2]

    def compile_with(*_: object) -> object:
        return lambda model: torch.compile(model, backend=target_backend())

    monkeypatch.setattr(worker, "_compile_with", compile_with)
    monkeypatch.setattr(sys, "path", [*sys.path])  # it adds the folder of the program
    for freezing in (False, True):  # and in a process of its own
        worker._play_one_side(path, Plan("inductor", {"freezing": freezing}), True, How())
    assert held == [0, 2, 0, 2]
