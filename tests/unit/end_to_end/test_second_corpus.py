"""What once passed: state in containers, what an exception leaves, held tensors, other sizes."""

from pathlib import Path

import pytest
import torch

from ctk.repro_templates.program.program_arguments import (
    Arguments,
    exchange_values,
    resize_arguments,
)
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.importers.in_memory import program_of

HEAD = """
import collections, time
import torch
import torch.nn as nn
def inputs():
    return (torch.linspace(-2, 3, 12).reshape(3, 4),)
"""

ORDER = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = collections.OrderedDict(a=1, b=2)
    def forward(self, x):
        self.table.move_to_end("a")
        return x + 1
def model():
    return M()
"""

RAISES = """
def f(x):
    x.mul_(2)
    torch._dynamo.graph_break()
    raise ValueError("no")
def model():
    return f
"""

KEEPS = """
class M(nn.Module):
    def forward(self, x):
        self.cache = x.t()
        return x.sum()
def model():
    return M()
"""

UNSTEADY = """
class M(nn.Module):
    def forward(self, x):
        return {"seconds": torch.full((2,), float(time.perf_counter_ns() % 9973)), "y": x.sin()}
def model():
    return M()
"""


def asked(tmp_path: Path, text: str, backend: str) -> EndToEnd:
    path = tmp_path / "program.py"
    path.write_text(HEAD + text)
    target = f"{__name__}:{backend}" if backend in globals() else backend
    return ask(ProgramQuestion(load_program(str(path)), target, strides=True))


def forgets_writes(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: gm(*(arg.clone() for arg in args))


def forgets_views(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(out.clone() for out in gm(*args))


def swaps_strides(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(
        out.t().contiguous().t() if out.dim() == 2 else out for out in gm(*args)
    )


def wrong_sizes(gm: torch.fx.GraphModule, inputs: list[object]) -> object:
    """Right for the sizes that it is compiled for, wrong when they are symbolic."""
    off = any(isinstance(each, torch.SymInt) for each in inputs)
    return lambda *args: tuple(out + off for out in gm(*args))


def wrong_sines(gm: torch.fx.GraphModule, inputs: object) -> object:
    return lambda *args: tuple(out + 1 for out in gm(*args))


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning")
@pytest.mark.parametrize(
    ("text", "backend", "wanted"),
    [
        (ORDER, "eager", ("state", "call1.state.table in order", "dynamo")),
        (RAISES, "forgets_writes", ("accuracy", "call1.held.in0", "runtime")),
        (KEEPS, "forgets_views", ("alias", "call1.held.cache", "runtime")),
        (
            KEEPS.replace("x.t()", "x + 1"),
            "swaps_strides",
            ("stride", "call1.held.cache", "runtime"),
        ),
        (
            "def model():\n    return lambda x: x.sin()\n",
            "wrong_sizes",
            ("accuracy", "call3.out0", "runtime"),
        ),
        (UNSTEADY, "wrong_sines", ("accuracy", "call1.out.y", "runtime")),
    ],
)
def test_what_passed_before_is_seen(
    text: str, backend: str, wanted: tuple[str, str, str], tmp_path: Path
) -> None:
    found = asked(tmp_path, text, backend)
    signature = found.judgement.signature
    assert signature is not None, found
    assert (signature.kind, signature.output, found.layer) == wanted, found


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace:UserWarning")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (ORDER.replace("a=1, b=2", "a=1"), Verdict.PASSES),
        (RAISES, Verdict.INVALID),  # eager raises: no result is compared
        (KEEPS, Verdict.PASSES),
        (UNSTEADY, Verdict.PASSES),
    ],
)
def test_the_same_programs_are_healthy_otherwise(
    text: str, verdict: Verdict, tmp_path: Path
) -> None:
    found = asked(tmp_path, text, "aot_eager")
    assert found.judgement.verdict is verdict, found


def test_a_program_that_takes_no_other_sizes_is_not_given_any() -> None:
    program = program_of(lambda x: x @ torch.ones(3, 3), [torch.randn(3, 3)])
    assert "4 calls" in str(ask(ProgramQuestion(program, "eager")))
    program = program_of(lambda x: torch.ones(3, 3) @ x, [torch.randn(3, 3)])
    assert "3 calls" in str(ask(ProgramQuestion(program, "eager")))


def test_a_program_that_only_takes_other_sizes_has_no_results() -> None:
    x, weight = torch.randn(3, 4), torch.randn(3, 4)  # one more row in each: 4x4 @ 4x4
    found = ask(ProgramQuestion(program_of(torch.mm, [x, weight]), "eager"))
    assert found.judgement.verdict is Verdict.INVALID, found
    operator = "mm: " if torch.__version__ >= "2.15" else ""  # 2.15 names it
    assert f"eager raises RuntimeError: {operator}mat1 and mat2" in str(found)


def test_each_input_with_the_batch_size_gets_one_more_row() -> None:
    x, y, weight = torch.randn(3, 4, requires_grad=True), torch.arange(3), torch.randn(4, 3)
    (found,) = resize_arguments(Arguments((x, [y], 7), {"weight": weight}))
    grown, labels, seven = found.args
    assert isinstance(grown, torch.Tensor) and grown.shape == (4, 4) and grown.requires_grad
    assert isinstance(labels, list) and torch.equal(labels[0], torch.tensor([0, 1, 2, 2]))
    assert seven == 7 and found.kwargs["weight"] is weight


def test_other_values_are_the_same_numbers_elsewhere() -> None:
    x, mask, n = torch.arange(4.0).reshape(2, 2).t(), torch.tensor([True, False]), torch.tensor(3)
    (found,) = exchange_values(Arguments((x, {"mask": mask}, n)))
    rolled, table, same = found.args
    assert isinstance(rolled, torch.Tensor) and rolled.tolist() == [[3.0, 0.0], [2.0, 1.0]]
    assert rolled.stride() == x.stride() and table == {"mask": mask} and same is n
    assert not exchange_values(Arguments((torch.ones(3), mask, n)))
    assert not exchange_values(Arguments((torch.ones(3, device="meta"),)))


def test_views_of_each_other_and_single_rows_are_left_alone() -> None:
    x = torch.randn(4, 4)
    assert not resize_arguments(Arguments((x, x[1:])))
    assert not resize_arguments(Arguments((torch.randn(1, 4),)))
    assert not resize_arguments(Arguments((3,)))
