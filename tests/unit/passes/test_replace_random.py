"""`replace_random`: what is drawn, that seeds decide it, and that backward draws the same."""

import pytest
import torch
import torch.nn.functional as F

from ctk.compiler.options.config import Config
from ctk.compiler.passes.joint.philox import DRAW
from ctk.compiler.passes.joint.replace_random import RECIPES, ReplaceRandom
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.operations.check import check
from tests.helpers.passes import aten_graph, run_pass

aten = torch.ops.aten
ON = ReplaceRandom(enabled=True)
X = torch.full((40, 50), 0.25)
PROGRAMS = {
    "rand": (lambda x: torch.rand(40, 50), 0.5, 1 / 12),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 1 / 12),
    "randn": (lambda x: torch.randn(40, 50), 0, 1),
    "randn_like": (lambda x: torch.randn_like(x, dtype=torch.float64), 0, 1),
    "randint": (lambda x: torch.randint(5, (40, 50)), 2, 2),
    "randint low": (lambda x: torch.randint(-2, 3, (40, 50), dtype=torch.int32), 0, 2),
    "randint_like": (lambda x: torch.randint_like(x.long(), 5), 2, 2),
    "bernoulli": (lambda x: torch.bernoulli(x), 0.25, 0.1875),
    "bernoulli p": (lambda x: aten.bernoulli.p(x, 0.75), 0.75, 0.1875),
    "dropout": (lambda x: aten.native_dropout(x, 0.75, True)[0], 0.25, 0.1875),
    "mask": (lambda x: aten.native_dropout(x, 0.75, True)[1].double(), 0.25, 0.1875),
    "uniform": (lambda x: aten.uniform(x, -1.0, 3.0), 1, 16 / 12),
    "normal": (lambda x: aten.normal_functional(x, 3.0, 0.5), 3, 0.25),
    "exponential": (lambda x: aten.exponential(x, 2.0), 0.5, 0.25),
}


def replaced(function, *inputs, step=ON, veto=None):
    gm = aten_graph(function, *inputs)
    return gm, run_pass(gm, step, observer=Recorder(veto))


def test_every_recipe_is_tried():
    made = {str(n.target) for f, *_ in PROGRAMS.values() for n in aten_graph(f, X).graph.nodes}
    assert {str(target) for target in RECIPES} <= made | {"aten.randint_like.low_dtype"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_type_and_the_distribution_stay(name):
    function, mean, variance = PROGRAMS[name]
    gm, record = replaced(function, X)
    assert len(record.rewrites) == 1
    torch.manual_seed(0)
    first, second, expected = gm(X), gm(X), function(X)
    assert (first.dtype, first.shape, first.stride()) == (
        expected.dtype, expected.shape, expected.stride(),
    )  # fmt: skip
    assert abs(first.double().mean().item() - mean) < 4 * (variance / 2000) ** 0.5
    assert abs(first.double().var().item() / variance - 1) < 0.25
    assert not torch.equal(first, second)  # each call draws anew
    torch.manual_seed(0)
    assert torch.equal(first, gm(X))


def test_a_second_run_is_idle_and_draws_differ():
    gm, record = replaced(lambda x: (torch.rand(9), torch.rand(9), torch.randn(9)), X)
    assert len(record.rewrites) == 3
    assert not run_pass(gm, ON).rewrites
    one, other, _ = gm(X)
    assert not torch.equal(one, other)
    assert [n.target for n in gm.graph.nodes].count(aten.randint.low) == 1


def test_what_is_left_out_changes_no_other_number():
    def program(x):
        return torch.rand(9), torch.randn(9), torch.rand(9)

    torch.manual_seed(0)
    whole = replaced(program, X)[0](X)
    partly, _ = replaced(program, X, veto=Veto(rewrites=frozenset({2})))
    torch.manual_seed(0)
    found = partly(X)
    assert torch.equal(found[0], whole[0]) and torch.equal(found[2], whole[2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.randperm(4),
        lambda x: torch.rand(3, dtype=torch.complex64),
        lambda x: torch.randint(0, 2, (3,), dtype=torch.bool),
        lambda x: torch.randint(0, 9, (3,), dtype=torch.float32),
        lambda x: aten.native_dropout(x, 0.5, False)[0],
        lambda x: aten.native_dropout(x[0].expand(3, 50), 0.5, True)[0],  # becomes dense
        lambda x: torch.multinomial(x, 2),
        lambda x: torch.poisson(x),
    ],
)
def test_must_not_fire(function):
    _, record = replaced(function, X)
    assert not record.rewrites
    assert len(record.notes) <= 1  # a reason, where it is one of the recipes


def test_what_is_drawn_in_backward_stays():
    gm = aten_graph(lambda x: torch.rand(3) + torch.rand(3), X)
    first = next(iter(gm.graph.find_nodes(op="call_function", target=aten.rand.default)))
    first.meta["partitioner_tag"] = "is_backward"
    record = run_pass(gm, ON)
    assert len(record.rewrites) == 1
    assert record.notes == (
        f"{first}: left alone: it draws in backward, which may run more than once",
    )


def test_a_comparison_with_eager_draws_what_eager_draws():
    options = {"replace_random.enabled": True, "joint/replace_random.enabled": True}
    assert check(lambda x: F.dropout(x, 0.5), X, config=options, target="ctk").ok


def test_off_unless_asked_for():
    assert not replaced(lambda x: torch.rand(3), X, step=ReplaceRandom())[1].rewrites


def trained(function, *inputs, enabled=True, dynamic=False, **config):
    torch._dynamo.reset()
    recorder = Recorder()
    config = Config(codegen="eager").patch({"replace_random.enabled": enabled, **config})

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, config, recorder)

    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    given = [each.detach().clone().requires_grad_() for each in inputs]
    torch.manual_seed(5)
    result = compiled(*given)
    result.backward(torch.ones_like(result))
    return result.detach(), [each.grad for each in given], recorder.log


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("budget", [0.0, 1.0])
def test_backward_drops_what_forward_has_dropped(dynamic, budget):
    def program(x):
        return F.dropout(F.dropout(x * 2, 0.5).exp(), 0.25) * torch.rand_like(x)

    result, (gradient,), log = trained(
        program, torch.zeros(30, 20), dynamic=dynamic, **{"partition.memory_budget": budget}
    )
    drawn = {s.stage: sum(n.target is DRAW for n in s.graph.graph.nodes) for s in log.stages()}
    assert drawn["forward"] == 3
    # d/dx exp(2x) at what dropout made of it is twice the result; nothing else is in it
    kept = result != 0
    inner = result[kept]
    assert kept.any() and not kept.all()
    ratio = gradient[kept] / inner
    assert set(ratio.unique().tolist()) <= {0.0, 4.0}  # 2, times 1 / (1 - 0.5) where x was kept
    assert (gradient[~kept] == 0).all()


def test_backward_makes_the_mask_again_from_the_seeds():
    _, _, log = trained(lambda x: F.dropout(x.sin(), 0.5).cos(), torch.randn(64, 64))
    backward = next(s.graph.graph for s in log.stages() if s.stage == "backward")
    assert any(node.target is DRAW for node in backward.nodes)
    saved = [node.meta["val"] for node in backward.nodes if node.op == "placeholder"]
    assert not any(each.dtype is torch.bool for each in saved)
