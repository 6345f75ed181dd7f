"""`fuse_attention` in models: numbers and gradients as in eager, and where it must not fire."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ctk import save_case
from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint.attention_forms import FORMS
from ctk.compiler.passes.joint.fuse_attention import ALL_RULES, PASS, RULES, replacements
from ctk.compiler.patterns import generated
from ctk.compiler.patterns.expression import Op, Var, ops_of
from ctk.compiler.patterns.matcher import RuleTable, why_not
from ctk.compiler.patterns.replacement import search_pattern
from ctk.compiler.pipeline import compile_fx
from ctk.repro_templates.numbers.tolerance import TABLE, tolerance_for
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.compile_log.unfired_rules import explain_rule
from tests.helpers.case_zoo import capture
from tests.helpers.cli import ctk

QUICK = ("divided", "times_fill", "divided_float")


def compiled(function, *inputs, dynamic=None, config=None):
    """Return what a compiled function returns, and the log of its compile."""
    torch._dynamo.reset()
    recorder = Recorder()
    run = torch.compile(
        function,
        backend=lambda gm, args: compile_fx(gm, args, observer=recorder, config=config),
        dynamic=dynamic,
    )
    return run(*inputs), recorder.log


def rules(log):
    return [
        rewrite.id.rule
        for record in log.passes()
        if record.id.name == PASS.name
        for rewrite in record.rewrites
    ]


def inputs_of(form, *, training=False, shape=(2, 4, 7, 16)):
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=form.dtype, requires_grad=training) for _ in "qkv"]
    if form.mask == "float":
        mask = torch.randn(shape[0], 1, shape[2], shape[2], dtype=form.dtype)
        mask[0, 0, :2, 1:] = -torch.inf
        tensors.append(mask)
    if form.mask == "bool":
        mask = torch.ones(shape[0], 1, shape[2], shape[2], dtype=torch.bool).tril()
        tensors.append(mask if form.name.endswith("where") else ~mask)
    return tensors


def emptied(form, inputs):
    """Return the same with two rows of one head masked as a whole."""
    mask = inputs[3].clone()
    mask[1, 0, 3:5] = {"float": -torch.inf, "bool": not form.name.endswith("where")}[form.mask]
    return [*inputs[:3], mask]


def program_of(form):
    scalars = {name: value for name, value in (("scale", 0.25), ("p", 0.3)) if name in form.scalars}
    return lambda *tensors: form.search(*tensors, **scalars).sin()


def error(value, exact):
    """Return the largest error, in parts of the largest value."""
    exact = exact.detach()
    return float((value.detach().double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "form",
    [
        f if f.name in ("times_fill", "divided_mask") else pytest.param(f, marks=pytest.mark.slow)
        for f in FORMS
        if f.mask is not None and not f.dropout
    ],
    ids=lambda form: form.name,
)
def test_rows_that_are_masked_as_a_whole_are_nan_as_in_eager(form, training):
    scalars = {"scale": 0.25} if form.scalars else {}
    inputs = emptied(form, inputs_of(form, training=training))

    def program(*tensors):
        return form.search(*tensors, **scalars) * 2

    out, log = compiled(program, *inputs)
    assert len(rules(log)) == 1
    eager = program(*inputs)
    exact = program(*(each.double() if each.is_floating_point() else each for each in inputs))
    assert eager.isnan().any()
    found = [(out, eager, exact)]
    if training:
        gradients = [torch.autograd.grad(each.sum(), inputs[:3]) for each in (out, eager, exact)]
        found += zip(*gradients, strict=True)
    for mine, other, true in found:
        assert torch.equal(mine.isnan(), other.isnan())
        if not true.isnan().all():
            mine, other, true = (each.nan_to_num(0.0) for each in (mine, other, true))
            allowed = tolerance_for(form.dtype, TABLE["reassociates"]).rtol
            assert error(mine, true) <= max(allowed, 2 * error(other, true))


@pytest.mark.parametrize("fill", [torch.finfo(torch.float32).min, -1e9])
def test_rows_that_a_large_number_masks_have_the_gradients_of_eager(fill):
    form = next(form for form in FORMS if form.name == "times_mask")
    inputs = inputs_of(form, training=True)
    inputs[3] = inputs[3].nan_to_num(neginf=fill)
    inputs[3][1, 0, 3:5] = fill
    program = program_of(form)
    out, log = compiled(program, *inputs)
    assert len(rules(log)) == 1
    eager = program(*inputs)
    gradients = [torch.autograd.grad(each.sum(), inputs[:3]) for each in (out, eager)]
    for mine, other in zip((out, *gradients[0]), (eager, *gradients[1]), strict=True):
        torch.testing.assert_close(mine, other)


ON_CPU = [form for form in FORMS if not form.dropout]
each_form = pytest.mark.parametrize(
    "form",
    [f if f.name in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in ON_CPU],
    ids=lambda form: form.name,
)


@each_form
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_each_form_is_fused_with_the_numbers_of_eager(form, training):
    program, inputs = program_of(form), inputs_of(form, training=training)
    out, log = compiled(program, *inputs)
    eager = program(*inputs)
    suffix = "training" if training else "inference"
    assert rules(log) == [f"attention_{form.name}_{suffix}"]
    exact = program(*(each.double() if each.is_floating_point() else each for each in inputs))
    assert error(out, exact) <= 2 * error(eager, exact) + torch.finfo(form.dtype).eps
    assert out.stride() == eager.stride()
    if training:
        mine = torch.autograd.grad(out.sum(), inputs[:3])
        others = torch.autograd.grad(eager.sum(), inputs[:3])
        truth = torch.autograd.grad(exact.sum(), inputs[:3])
        for gradient, other, true in zip(mine, others, truth, strict=True):
            assert gradient.dtype == other.dtype
            assert error(gradient, true) <= 2 * error(other, true) + torch.finfo(form.dtype).eps


class Attention(nn.Module):
    """Self-attention as people write it: heads are split, transposed, and put together again."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x, mask=None):
        heads = self.project(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = heads
        scores = q @ k.transpose(2, 3) / math.sqrt(8)
        scores = scores if mask is None else scores + mask
        out = torch.softmax(scores, dim=3) @ v
        return out.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_layer_is_fused_in_inference_and_training(dynamic):
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(2, 6, 32)
    with torch.no_grad():
        out, log = compiled(model, x, dynamic=dynamic)
        assert rules(log) == ["attention_divided_inference"]
        torch.testing.assert_close(out, model(x))
    out, log = compiled(model, x, dynamic=dynamic)
    assert rules(log) == ["attention_divided_training"]
    weights = tuple(model.parameters())
    mine = torch.autograd.grad(out.square().sum(), weights)
    others = torch.autograd.grad(model(x).square().sum(), weights)
    torch.testing.assert_close(mine, others, atol=1e-4, rtol=1e-4)


class Encoder(nn.Module):
    """A transformer encoder that is written out: two layers, padding masked."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 32)
        self.attend = nn.ModuleList(Attention() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.widen = nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(64, 32) for _ in range(2))

    def forward(self, tokens):
        mask = torch.where(tokens == 0, -torch.inf, 0.0)[:, None, None, :]
        x = self.embed(tokens)
        for i in range(2):
            x = x + self.attend[i](self.norms[2 * i](x), mask)
            hidden = functional.gelu(self.widen[i](self.norms[2 * i + 1](x)))
            x = x + self.narrow[i](hidden)
        return x


def test_an_encoder_keeps_its_numbers_and_shows_the_rewrites(tmp_path):
    torch.manual_seed(0)
    model, tokens = Encoder(), torch.randint(1, 11, (3, 6))
    tokens[1, 4:] = 0
    weights = tuple(model.parameters())
    out, log = compiled(model, tokens)
    assert rules(log) == ["attention_divided_mask_training"] * 2
    torch.testing.assert_close(out, model(tokens))
    mine = torch.autograd.grad(out.square().sum(), weights)
    others = torch.autograd.grad(model(tokens).square().sum(), weights)
    torch.testing.assert_close(mine, others, atol=1e-3, rtol=1e-4)
    with torch.no_grad():
        (case,) = capture(model.eval(), tokens)
    save_case(case, tmp_path / "case")
    shown = ctk("show", tmp_path / "case", "--times", "--json")
    (graph,) = shown.data["graphs"]
    steps = {step["name"]: step for step in graph["steps"]}
    assert steps["fuse_attention"]["rewrites"] == 2


Q = torch.randn(2, 3, 5, 8)


def attend(q, k, v, scale=2.0, dim=-1):
    return (torch.softmax(q @ k.transpose(-2, -1) / scale, dim) @ v).sin()


def returns_weights(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1)
    return weights @ v, weights


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda q, k, v: attend(q, k, v, dim=-2), "an operand is -2, not the dimension -1"),
        (lambda q, k, v: attend(q, k, v, scale=v[0, 0, 0, 0]), "not a number"),
        (returns_weights, "outside the match, needs"),
        (lambda q, k, v: attend(q, k.sin(), v).mean() + attend(q, k, v).var(), None),
        (lambda q, k, v: (q @ k.transpose(-2, -1) / 2.0).sigmoid() @ v, "an aten"),
    ],
)
def test_must_not_fire(function, reason):
    _, log = compiled(function, Q, Q.cos(), Q.sin())
    (said,) = explain_rule(log, "attention_divided_inference")
    if reason is None:
        assert said.fired == 2
    else:
        assert rules(log) == []
        assert reason.removeprefix("an ") in str(said)


def test_a_mask_that_requires_a_gradient_is_left_alone():
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]
    mask = torch.randn(2, 3, 5, 5, requires_grad=True)
    _, log = compiled(lambda q, k, v, m: torch.softmax(q @ k.mT / 2.0 + m, -1) @ v, *inputs, mask)
    assert rules(log) == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "draws other random numbers than eager does"),
        ({"draws_otherwise": True}, "torch has no fused kernel for these operands"),
    ],
)
def test_dropout_is_left_alone_on_the_cpu(options, reason):
    inputs = [each.clone().requires_grad_() for each in (Q, Q.cos(), Q.sin())]

    def program(q, k, v):
        return functional.dropout(torch.softmax(q @ k.mT / 2.0, -1), 0.3) @ v

    _, log = compiled(program, *inputs, config=Config(passes={"fuse_attention": options}))
    assert rules(log) == []
    (record,) = [each for each in log.passes() if each.id.name == PASS.name]
    table = (ALL_RULES if options else RULES).get()
    (rule,) = [r for r in table.rules if r.name == "attention_divided_dropout_training"]
    assert reason in (why_not(rule, record.before.graph) or "")


def test_a_mask_of_another_kind_is_left_alone():
    def added(q, k, v, mask):
        return (torch.softmax(q @ k.mT / 2.0 + mask, -1) @ v).sin()

    mask = torch.ones(5, 5).bool().tril()
    out, log = compiled(added, Q, Q.cos(), Q.sin(), mask)
    assert rules(log) == []
    torch.testing.assert_close(out, added(Q, Q.cos(), Q.sin(), mask))
    (said,) = explain_rule(log, "attention_divided_mask_inference")
    assert "the mask is bool[5, 5], not torch.float32" in str(said)


@pytest.mark.parametrize("empty", ["keys", "queries", "batch"])
def test_empty_tensors_are_left_alone(empty):
    q, k, v = Q, Q.cos(), Q.sin()
    if empty == "keys":
        k, v = k[:, :, :0], v[:, :, :0]
    elif empty == "queries":
        q = q[:, :, :0]
    else:
        q, k, v = q[:0], k[:0], v[:0]
    out, log = compiled(attend, q, k, v)
    assert rules(log) == []
    torch.testing.assert_close(out, attend(q, k, v))


def fresh(replacement):
    return generated.source_of({replacement.name: search_pattern(replacement)})


ALL = replacements()


@pytest.mark.parametrize(
    "replacement",
    [
        pytest.param(each, marks=() if number == 0 else pytest.mark.slow)
        for number, each in enumerate(ALL)
    ],
    ids=[each.name for each in ALL],
)
def test_written_patterns_are_fresh(replacement):
    written = generated.read(generated.path_of(replacement.name))[replacement.name]
    source = generated.source_of({replacement.name: written})
    assert source == fresh(replacement), "stale: run ctk gen-patterns"


def test_no_written_pattern_is_left_over():
    files = [path for path in generated.FOLDER.glob("*.py") if path.stem != "__init__"]
    assert {name for path in files for name in generated.read(path)} == {each.name for each in ALL}
    for path in files:
        text = generated.source_of(generated.read(path))
        assert path.read_text(encoding="utf-8") == text, "stale: run ctk gen-patterns"


def test_a_stale_pattern_is_noticed_and_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "FOLDER", tmp_path)
    monkeypatch.setenv("CTK_GEN_PATTERNS", "1")
    table = RuleTable()
    generated.add_generated(ALL[0], table)
    (path,) = tmp_path.iterdir()
    assert path.read_text(encoding="utf-8") == fresh(ALL[0])
    assert fresh(ALL[1]) != fresh(ALL[0])


def test_without_a_file_a_pattern_is_traced(monkeypatch):
    monkeypatch.setattr(generated, "load", lambda name: None)
    table = RuleTable()
    generated.add_generated(ALL[0], table)
    assert fresh(ALL[0]) == generated.source_of({ALL[0].name: table.rules[0].pattern})


def test_written_patterns_share_calls_but_equal_calls_of_one_stay_two_nodes(tmp_path):
    aten, x = torch.ops.aten, Var("x")
    one, other = Op(aten.sin.default, (x,)), Op(aten.sin.default, (x,))
    same = {"same_twice": (Op(aten.add.Tensor, (one, one)),)}
    two = {"same_two": (Op(aten.add.Tensor, (one, other)),)}
    path = tmp_path / "same.py"
    path.write_text(generated.source_of({**same, **two}), encoding="utf-8")
    read = generated.read(path)
    assert len({*ops_of(*read["same_twice"])}) == 2
    assert len({*ops_of(*read["same_two"])}) == 3
    assert read["same_twice"][0].args[0] is read["same_two"][0].args[0]
    assert generated.source_of(read) == path.read_text(encoding="utf-8")


def test_of_patterns_that_differ_in_one_operator_the_first_is_written(tmp_path):
    aten = torch.ops.aten
    inner = Op(aten.sin.default, (Var("x"),))
    patterns = {
        f"same_{name}": (Op(target, (Op(target, (inner, Var("y"))), inner)),)
        for name, target in (("div", aten.div.Tensor), ("mul", aten.mul.Tensor))
    }
    patterns["same_other"] = (Op(aten.mul.Tensor, (inner, inner)),)
    path = tmp_path / "same.py"
    path.write_text(generated.source_of(patterns), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert "same_mul = with_target(same_div, aten.div.Tensor, aten.mul.Tensor)\n" in text
    assert text.count("with_target(") == 1
    read = generated.read(path)
    assert generated.source_of(read) == text
    for name, pattern in patterns.items():
        mine, loaded = (generated.source_of({name: each}) for each in (pattern, read[name]))
        assert mine == loaded
