"""A repro and the toolkit judge alike: the same verdict, the same result, the same numbers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.repros import BACKENDS, captured, verdict_of

FAULTS = """
def large(gm, example_inputs):
    def run(*args):
        return tuple(out * 1.125 + (out == 0) for out in gm(*args))
    return run

def small(gm, example_inputs):
    def run(*args):
        return tuple(out * (1 + 2 * torch.finfo(out.dtype).eps) for out in gm(*args))
    return run

def off_by_one(gm, example_inputs):
    return lambda *args: tuple(out + 1 for out in gm(*args))

def negated(gm, example_inputs):
    return lambda *args: tuple(~out for out in gm(*args))

def flat(gm, example_inputs):
    return lambda *args: tuple(out.reshape(-1) for out in gm(*args))

def tensors_become_numbers(gm, example_inputs):
    return lambda *args: tuple(float(out.sum()) for out in gm(*args))

def copies(gm, example_inputs):
    return lambda *args: tuple(out.t().clone().t() for out in gm(*args))

def detaches(gm, example_inputs):
    return lambda *args: tuple(out.detach() for out in gm(*args))
"""

MATRIX = torch.randn(4, 4, generator=torch.Generator().manual_seed(3))
POSITIVE = MATRIX.abs() + 1


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    name: str
    backend: str
    run: Callable[..., object]
    inputs: tuple[torch.Tensor, ...] = (MATRIX,)
    kind: FailureKind = "accuracy"
    modes: Modes = dataclasses.field(default_factory=Modes)


ROWS = (
    Row("accuracy", "large", lambda x: (x @ x,)),
    Row("within the tolerance", "small", lambda x: (x @ x,)),
    Row("equal", "honest", lambda x: (x @ x,)),
    Row("second result", "wrong", lambda x: (x.argmax(0), x.sin())),
    Row("nan", "makes_nan", lambda x: (x.sin(),), kind="nan"),
    Row("dtype", "other_dtype", lambda x: (x.sin(),), kind="dtype"),
    Row("shape", "flat", lambda x: (x.sin(),), kind="shape"),
    Row("stride", "other_strides", lambda x: (x.sin(),), kind="stride", modes=Modes(strides=True)),
    Row("stride of the compiler", "other_strides", lambda x: (x.sin(),)),
    Row("alias lost", "copies", lambda x: (x.t(),), kind="alias"),
    Row("gradient lost", "detaches", lambda x: (x.sin(),),
        (MATRIX.clone().requires_grad_(),), kind="requires-grad"),
    Row("numbers", "tensors_become_numbers", lambda x: (x.sin(),), kind="structure"),
    Row("integers", "off_by_one", lambda x: (x.argmax(0),)),
    Row("bools", "negated", lambda x: (x > 0,)),
    Row("complex", "large", lambda x: (x * x,), (torch.complex(MATRIX, MATRIX.t()),)),
    Row("complex, right", "small", lambda x: (x * x,), (torch.complex(MATRIX, MATRIX.t()),)),
    Row("bfloat16", "large", lambda x: (x @ x,), (MATRIX.bfloat16(),)),
    Row("bfloat16, right", "small", lambda x: (x @ x,), (MATRIX.bfloat16(),)),
    Row("float16", "large", lambda x: (x.half().float() * 2,), (MATRIX,)),
    Row("float64", "large", lambda x: (x @ x,), (MATRIX.double(),)),
    Row("bits have no float64", "off_by_one", lambda x: (x.view(torch.int32),)),
    Row("same draws", "wrong", lambda x: (x + torch.rand(4),)),
    Row("other draws", "other_draws", lambda x: (x + torch.rand(4),)),
    Row("written input", "wrong_input", lambda x: (x.sin(),), kind="accuracy"),
    Row(
        "gradients", "wrong_gradient", lambda x: (x.sin(), x.cos().sum()),
        (MATRIX.clone().requires_grad_(),), modes=Modes(backward=True),
    ),
    Row(
        "gradients, right", "honest", lambda x: (x.sin(), x.cos().sum()),
        (MATRIX.clone().requires_grad_(),), modes=Modes(backward=True),
    ),
    Row(
        "autocast", "large", lambda x: (x @ x,),
        modes=Modes(grad=False, autocast=(Autocast("cpu", "bfloat16"),)),
    ),
    Row("default dtype", "wrong", lambda x: (x + torch.ones(4),), (POSITIVE,),
        modes=Modes(default_dtype="float64", seed=7)),
    Row("raises", "raises_when_called", lambda x: (x.sin(),), kind="runtime-error"),
)  # fmt: skip


def test_the_table_has_every_answer() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_script_judges_as_the_toolkit_does(row: Row, tmp_path: Path) -> None:
    backends = tmp_path / "agreement_backends.py"
    backends.write_text(BACKENDS + FAULTS)
    graph, inputs = captured(row.run, row.inputs)
    given = tuple(
        value.detach().clone().requires_grad_(like.requires_grad)
        for value, like in zip(row.inputs, row.inputs, strict=True)
    )
    assert len(given) == len(inputs)
    exception = "KeyError" if row.kind == "runtime-error" else None
    signature = Signature(row.kind, exception)
    case = Case(graph, given, f"{backends}:{row.backend}", modes=row.modes, signature=signature)
    judgement = judge(case)
    code, said = verdict_of(case, tmp_path)
    seen = judgement.signature
    if judgement.verdict is Verdict.PASSES:
        assert (code, said) == (0, "NO FAILURE: the compiled program agrees with eager\n")
    elif judgement.verdict is Verdict.FLAKY:
        assert (code, said) == (125, f"CANNOT TELL: flaky: {judgement.detail}\n")
    else:
        assert judgement.verdict is Verdict.REPRODUCES and seen is not None
        name = seen.exception if seen.exception else f"at {seen.output}"
        assert (code, said) == (1, f"FAILURE: {seen.kind} {name}: {seen.message}\n")
