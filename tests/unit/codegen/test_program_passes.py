"""Rewrites of programs have the same numbers in every compile, whatever is left out."""

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.select import generate
from ctk.compiler.observe import PassRecord
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.compile_log.recorder import Recorder, Veto


def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    weights = torch.softmax(x * 2.0 + y, -1)
    first = (weights @ y.t()).sin()
    return (first @ y + weights).relu(), weights.sum(0), first.exp()


INPUTS = (torch.randn(6, 5), torch.randn(6, 5))
GRAPH = make_fx(program, tracing_mode="fake")(*INPUTS)


def compiled(veto: Veto | None = None, fuel: int | None = None) -> list[PassRecord]:
    """Compile, check the values, and return the passes over the program."""
    recorder = Recorder(veto)
    numbering = Numbering(recorder, Config(codegen="c", fallback=(), fuel=fuel))
    found = generate(GRAPH, INPUTS, "forward", numbering)(list(INPUTS))
    for value, expected in zip(found, program(*INPUTS), strict=True):
        torch.testing.assert_close(value, expected)
    return [record for record in recorder.log.passes() if record.id.stage == "lowered"]


def told(records: list[PassRecord]) -> list[tuple[str, bool]]:
    return [(f"{r.id} {r.nodes}", r.vetoed) for record in records for r in record.rewrites]


def test_a_rewrite_has_the_same_number_whatever_is_left_out() -> None:
    every = told(compiled())
    assert [str(r.id) for r in compiled()] == [
        "lowered/lower",
        "lowered/fuse",
        "lowered/plan_memory",
    ]
    fusions = [n for n, (text, _) in enumerate(every, 1) if "lowered/fuse" in text]
    assert len(fusions) > 3
    for numbers in (fusions[:1], fusions[1:3], fusions):
        found = told(compiled(Veto(rewrites=frozenset(numbers))))
        assert [text for text, _ in found[: fusions[-1]]] == [t for t, _ in every[: fusions[-1]]]
        assert [n for n, (_, vetoed) in enumerate(found, 1) if vetoed] == numbers


def test_fuel_reaches_fusions() -> None:
    total = len(told(compiled()))
    for fuel in (0, total // 3, total - 3):
        assert [vetoed for _, vetoed in told(compiled(fuel=fuel))].count(False) == fuel


def test_a_pass_over_a_program_may_be_left_out() -> None:
    for name in ("lower", "fuse", "plan_memory"):
        records = compiled(Veto(passes=frozenset({f"lowered/{name}"})))
        assert [record.id.name for record in records if record.vetoed] == [name]
