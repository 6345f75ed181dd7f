"""Random graphs: what every pass of the pipeline keeps, with and without some of its rewrites."""

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import Numerics, PassRecord
from ctk.compiler.options.config import Config
from ctk.compiler.passes import PASSES
from ctk.compiler.passes.joint.replace_random import ReplaceRandom
from ctk.compiler.passes.pre_grad import remove_inference_dropout
from ctk.repro_templates.numbers.tolerance import TABLE, tolerance_for
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.verify_rules.subjects import enable_pass
from tests.helpers.pass_programs import Program, programs
from tests.helpers.passes import run_pass, text_of

ATEN_PASSES = {
    step.name: (stage, enable_pass(step))
    for stage, steps in PASSES.items()
    if stage != "pre_grad"
    for step in steps
    if step.name not in ("replace_random", "sample_by_gumbel_max")  # tried in tests of their own
}
EAGER = Config(codegen="eager")
SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)
HOW_MANY = pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])

# What these passes once got wrong.
SMALL_PRODUCT = Program(
    (("mean", (1, 0, 0), 0), ("c + mm", (2, 0, 1), 0)), (0,), (), (False,) * 3, 0
)
BIAS_CHOOSES_STRIDES = Program((("c + mm", (1, 1, 1), 0),), (0,), (), (False, True, False), 0)
UNDECLARED_VIEWS = Program(
    (("flat", (1, 0, 0), 0), ("again", (0, 0, 0), 0)), (0, 1), (), (False, True, False), 0
)
EXPANDED_CONSTANT = Program((("rows + x", (1, 0, 0), 2),), (0,), (), (False, True, False), 0)
TWO_LAYOUTS = Program((("pieces", (1, 0, 0), 0),), (0,), (), (False, True, False), 0)
REFUTERS = (
    SMALL_PRODUCT, BIAS_CHOOSES_STRIDES, EXPANDED_CONSTANT, UNDECLARED_VIEWS, TWO_LAYOUTS,
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """What one run left: its outputs, then its inputs; and what the graph itself holds."""

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]

    @property
    def values(self) -> tuple[Tensor, ...]:
        return (*self.outputs, *self.inputs)

    def sharing(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Return which values share memory with one another, and which with a constant."""
        places = [value.untyped_storage().data_ptr() for value in self.values]
        held = {constant.untyped_storage().data_ptr() for constant in self.constants}
        pairs = itertools.combinations(range(len(places)), 2)
        shared = [(i, j) for i, j in pairs if places[i] == places[j]]
        return shared, [i for i, place in enumerate(places) if place in held]


def ran(gm: fx.GraphModule, program: Program) -> Ran:
    inputs = clone_inputs(program.inputs())
    torch.manual_seed(program.seed)
    targets = [str(node.target) for node in gm.graph.nodes if node.op == "get_attr"]
    constants = tuple(operator.attrgetter(target)(gm) for target in targets)
    return Ran(tuple(gm(*inputs)), inputs, constants)


def rewritten(
    gm: fx.GraphModule, name: str, veto: Veto | None = None
) -> tuple[fx.GraphModule, PassRecord]:
    """Run a pass over a copy of a graph."""
    stage, step = ATEN_PASSES[name]
    copied = copy_graph_module(gm)
    return copied, run_pass(copied, step, stage=stage, observer=Recorder(veto), config=EAGER)


def assert_same(before: Ran, after: Ran, numerics: Numerics) -> None:
    """Check values, types, strides and who shares memory with whom."""
    assert after.sharing() == before.sharing()
    for old, new in zip(before.values, after.values, strict=True):
        assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        if numerics == "exact":
            assert bits(new) == bits(old)
        else:
            row = tolerance_for(old.dtype, TABLE[numerics])
            torch.testing.assert_close(new, old, rtol=row.rtol, atol=row.atol, equal_nan=True)


def bits(tensor: Tensor) -> list[str]:
    """Return the numbers so that zeros of both signs differ and NaNs are equal."""
    return [repr(number) for number in tensor.flatten().tolist()]


def hold(
    count: int,
    check: Callable[..., None],
    examples: Sequence[Program] = (),
    **more: st.SearchStrategy[object],
) -> None:
    """Check a property of programs on the examples, and on so many drawn ones."""
    drawn = given(program=programs(), **more)(check)
    for each in examples:
        drawn = example(program=each)(drawn)
    settings(SETTINGS, max_examples=count)(drawn)()


@HOW_MANY
def test_a_pass_keeps_values_strides_and_sharing(count: int):
    def check(program: Program) -> None:
        gm = program.graph()
        before = ran(gm, program)
        for name, (_, step) in ATEN_PASSES.items():
            note(name)
            after, record = rewritten(gm, name)
            if record.changed:
                assert_same(before, ran(after, program), step.numerics)
            else:
                assert text_of(after) == text_of(gm)

    hold(count, check, REFUTERS)


@HOW_MANY
def test_a_second_run_of_a_pass_is_idle(count: int):
    def check(program: Program) -> None:
        gm = program.graph()
        for name in ATEN_PASSES:
            note(name)
            after, first = rewritten(gm, name)
            if not first.changed:  # then the second would be the same as the first
                continue
            again, record = rewritten(after, name)
            assert [rewrite.id.rule for rewrite in record.rewrites] == []
            assert text_of(again) == text_of(after)

    hold(count, check)


@HOW_MANY
def test_a_pass_without_one_of_its_rewrites_or_without_any(count: int):
    def check(program: Program, choice: int) -> None:
        gm = program.graph()
        before = ran(gm, program)
        for name, (_, step) in ATEN_PASSES.items():
            note(name)
            untouched, record = rewritten(gm, name, Veto(fuel=0))
            assert not record.changed
            assert text_of(untouched) == text_of(gm)
            if record.rewrites:
                left_out = choice % len(record.rewrites) + 1
                partly, _ = rewritten(gm, name, Veto(rewrites=frozenset({left_out})))
                assert_same(before, ran(partly, program), step.numerics)

    hold(count, check, choice=st.integers(0, 20))


@pytest.mark.slow
@HOW_MANY
def test_all_passes_in_order_on_symbolic_sizes(count: int):
    def check(program: Program) -> None:
        gm = program.graph("symbolic")
        after = copy_graph_module(gm)
        for stage in ("joint", "forward"):
            for step in PASSES[stage]:
                run_pass(after, step, stage=stage)
        assert_same(ran(gm, program), ran(after, program), "reassociates")

    hold(count, check)


draws = st.lists(
    st.tuples(
        st.sampled_from(["rand", "randn", "uniform", "normal", "exponential", "dropout", "coin"]),
        st.sampled_from([torch.float16, torch.float32, torch.float64]),
        st.lists(st.integers(0, 4), max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(steps=draws, left_out=st.integers(0, 5))
@settings(SETTINGS, max_examples=20)
def test_other_random_numbers_keep_types_strides_and_what_is_left_out(
    steps: list[tuple[str, torch.dtype, list[int], bool]], left_out: int
):
    """What is drawn from seeds has the old type; without one rewrite all others draw the same."""
    aten = torch.ops.aten

    def program() -> list[Tensor]:
        found: list[Tensor] = []
        for kind, dtype, sizes, is_turned in steps:
            x = torch.full(sizes, 0.5, dtype=dtype)
            x = x.permute(list(reversed(range(x.dim())))) if is_turned else x
            found += {
                "rand": lambda x=x: [torch.rand_like(x)],
                "randn": lambda x=x: [torch.randn(x.shape, dtype=x.dtype)],
                "uniform": lambda x=x: [aten.uniform(x, -1.0, 2.0)],
                "normal": lambda x=x: [aten.normal_functional(x, 1.0, 0.5)],
                "exponential": lambda x=x: [aten.exponential(x, 3.0)],
                "dropout": lambda x=x: list(aten.native_dropout(x, 0.5, True)),
                "coin": lambda x=x: [torch.bernoulli(x)],
            }[kind]()
        return found

    def run(gm: fx.GraphModule) -> list[Tensor]:
        torch.manual_seed(0)
        return gm()

    gm = make_fx(program, tracing_mode="fake")()
    whole, partly = copy_graph_module(gm), copy_graph_module(gm)
    step = ReplaceRandom(enabled=True)
    record = run_pass(whole, step)
    assert len(record.rewrites) + len(record.notes) == len(steps)
    assert not run_pass(copy_graph_module(whole), step).rewrites
    vetoed = min(left_out, len(steps))
    run_pass(partly, step, observer=Recorder(Veto(rewrites=frozenset({vetoed}))))
    owner = [at + 1 for at, (kind, *_) in enumerate(steps) for _ in range(1 + (kind == "dropout"))]
    for old, new, other, at in zip(run(gm), run(whole), run(partly), owner, strict=True):
        assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        assert at == vetoed or bits(new) == bits(other)


WHOLE_GRAPH = ("to_channels_last",)
"""Passes that rewrite a graph once."""


DRAWN_ELSEWHERE = {
    "chunk_losses": "test_chunk_losses.py",
    "fuse_quantized": "test_quantized_properties.py",
    "recover_linear": "test_quantized_properties.py",
    "bucket_gathers": "test_collectives.py",
    "bucket_reductions": "test_collectives.py",
    "overlap_collectives": "test_collectives.py",
    "reinplace_operators": "test_reinplace_operators.py",
    "weight_only": "test_frozen_layers.py",
    "prepack_recurrent": "test_frozen_layers.py",
}
"""Passes for graphs that cannot be traced or drawn here, and the tests that have such graphs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ATEN_PASSES if name not in DRAWN_ELSEWHERE])
def test_the_programs_make_each_pass_work(name: str):
    """The properties above say nothing of a pass that never fires: each makes two rewrites."""
    wanted = 1 if name in WHOLE_GRAPH else 2
    hypothesis.find(
        programs(),
        lambda program: len(rewritten(program.graph(), name)[1].rewrites) >= wanted,
        settings=settings(SETTINGS, phases=[hypothesis.Phase.generate], max_examples=500),
        random=random.Random(0),
    )


dropouts = st.tuples(
    st.sampled_from([0.0, 0, 0.5, 1.0]), st.booleans(), st.booleans(), st.sampled_from([0, 1, 2])
)


@given(steps=st.lists(dropouts, min_size=1, max_size=6))
@settings(SETTINGS)
def test_dropouts_that_do_nothing_are_all_that_goes(
    steps: list[tuple[float, bool, bool, int]],
):
    """Programs before autograd: in-place dropouts, and every way to write the arguments."""

    def program(x: Tensor) -> Tensor:
        for p, training, inplace, form in steps:
            y = x.sin()
            if form == 0:
                x = F.dropout(y, p, training, inplace)
            elif form == 1:
                x = F.dropout(y, p=p, training=training, inplace=inplace)
            else:
                x = torch.dropout(y, p, training)
        return x

    gm = fx.symbolic_trace(program)
    after = copy_graph_module(gm)
    record = run_pass(after, remove_inference_dropout.PASS, stage="pre_grad")
    idle = [
        p == 0 or not training for p, training, inplace, form in steps if form == 2 or not inplace
    ]
    assert len(record.rewrites) == sum(idle)
    x = torch.linspace(-1, 1, 8)
    torch.manual_seed(0)
    expected = gm(x)
    torch.manual_seed(0)
    assert bits(after(x)) == bits(expected)
