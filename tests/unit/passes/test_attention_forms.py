"""Attention as people write it: fused beside Inductor, with the numbers and gradients of eager."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.compile_fx import compile_fx as inductor_fx

from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint.fuse_attention import PASS
from ctk.compiler.pipeline import compile_fx
from ctk.repro_templates.numbers.tolerance import TABLE, tolerance_for
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.attention_programs import INDUCTOR, OTHERS

EAGER = Config(codegen="eager")
QUICK = ("1", "5", "18", "19", "22", "24", "29", "einsum_tokens", "bloom", "swin", "three_masks")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NOT_FUSED = {("19", torch.float16): "a score may be as low"}
"""In float16 a sum of a fill and a mask does not absorb the scores of a row without others."""


def params():
    for form in (*INDUCTOR, *OTHERS):
        for dtype in DTYPES if form in INDUCTOR else DTYPES[:1]:
            for training in (False, True):
                is_quick = form.name in QUICK and (dtype is torch.float32) == (form.name != "24")
                name = f"{form.name}-{str(dtype)[6:]}-{'training' if training else 'inference'}"
                marks = () if is_quick and dtype is not torch.float16 else pytest.mark.slow
                yield pytest.param(form, dtype, training, id=name, marks=marks)


def inputs_of(form, dtype, training, wanted=None):
    torch.manual_seed(0)
    tensors = form.inputs(dtype)
    if wanted is not None:
        tensors = [each.to(wanted) if each.is_floating_point() else each for each in tensors]
    return [each.requires_grad_() if training and i < 3 else each for i, each in enumerate(tensors)]


def values(function, inputs, training):
    """Return results, and gradients of `q`, `k` and `v`."""
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    if not training:
        return [each.detach() for each in results]
    weights = [torch.linspace(0.5, 1.5, each.numel()).reshape(each.shape) for each in results]
    loss = sum((each.float() * w).sum() for each, w in zip(results, weights, strict=True))
    return [*(each.detach() for each in results), *torch.autograd.grad(loss, inputs[:3])]


def inductor_fires(form, inputs, training):
    """Return whether a pattern of Inductor fires; nothing is generated."""
    torch._dynamo.reset()
    counters.clear()

    def leave(gm, example_inputs, **options):
        def call(arguments):
            return gm(*arguments)

        call._boxed_call = True
        return call

    run = torch.compile(form.run, backend=lambda *a: inductor_fx(*a, inner_compile=leave))
    with torch.set_grad_enabled(training):
        run(*inputs)
    return counters["inductor"]["fuse_attention"] > 0


def rules_of(log):
    records = [record for record in log.passes() if record.id.name == PASS.name]
    return [rewrite.id.rule for record in records for rewrite in record.rewrites]


@pytest.mark.parametrize(("form", "dtype", "training"), [*params()])
def test_each_form_is_fused_with_the_numbers_of_eager(form, dtype, training):
    torch._dynamo.reset()
    recorder = Recorder()
    run = torch.compile(
        form.run, backend=lambda *a: compile_fx(*a, observer=recorder, config=EAGER)
    )
    with torch.set_grad_enabled(training):
        mine = values(run, inputs_of(form, dtype, training), training)
        eager = values(form.run, inputs_of(form, dtype, training), training)
    fired = rules_of(recorder.log)
    if (form.name, dtype) in NOT_FUSED:
        assert fired == []
    else:
        kind = "safe_attention" if form.name in ("29", "30") else "attention"
        assert fired == [f"{kind}_{'training' if training else 'inference'}"]
    least = torch.bfloat16 if form.name == "autocast" else dtype
    allowed = tolerance_for(least, TABLE["reassociates"]).rtol
    for found, wanted in zip(mine, eager, strict=True):
        assert found.dtype == wanted.dtype
        assert found.stride() == wanted.stride()
        assert torch.equal(found.isnan(), wanted.isnan())
        scale = wanted.nan_to_num(0.0).abs().max()
        torch.testing.assert_close(
            found, wanted, atol=float(allowed * scale), rtol=allowed, equal_nan=True
        )


@pytest.mark.slow
@pytest.mark.parametrize("form", INDUCTOR, ids=lambda form: form.name)
def test_inductor_fires_at_each_of_its_forms(form):
    """The table holds the forms of Inductor, not forms that resemble them."""
    fired = [
        inductor_fires(form, inputs_of(form, dtype, False), False)
        for dtype in (torch.float32, torch.float16)
    ]
    assert any(fired)
