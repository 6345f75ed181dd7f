"""What a failing first call leaves behind: what eager leaves, or what was there before."""

from pathlib import Path

import pytest
import torch
from torch import fx, nn
from torch.utils.checkpoint import checkpoint

from ctk.compiler.errors import MiscompileError
from ctk.toolkit.watch.hooks import debug_compile, install
from tests.helpers.training_zoo import copied, differences

pytestmark = pytest.mark.filterwarnings("ignore:ctk:RuntimeWarning")


def doubles_steps(gm, example_inputs):
    """A miscompile that only what the graph holds shows: it returns nothing."""

    def call(*args):
        gm(*args)
        return gm(*args)

    return call


def raises_half_way(gm, example_inputs):
    """Writes to all that it reaches, draws, takes the steps, and only then raises."""

    def call(*args):
        torch.rand(3)
        gm(*args)
        with torch.no_grad():
            for value in args:
                if isinstance(value, torch.Tensor):
                    value.add_(7)
        raise ArithmeticError("half way")

    return call


def train(backend, *, momentum: float = 0.9) -> object:
    """Take two steps, with a loss whose graph has saved the weights before the compiled step.

    Eager is the captured graph in eager: torch 2.11 captures other operators than it runs itself.
    """
    torch.compiler.reset()
    torch.manual_seed(5)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, foreach=False)
    step = torch.compile(optimizer.step, backend=backend)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        step()
    gradients = [parameter.grad for parameter in model.parameters()]
    state = [model.state_dict(), optimizer.state_dict(), gradients, torch.get_rng_state()]
    return copied(state)


@pytest.mark.parametrize("check", ["off", "output", "pass"])
@pytest.mark.parametrize("on_failure", ["fallback", "warn"])
def test_a_step_that_raises_half_way_leaves_what_eager_leaves(tmp_path: Path, check, on_failure):
    options = {"dump": tmp_path, "check": check, "on_failure": on_failure}
    assert differences(train("eager"), train(debug_compile(raises_half_way, **options))) == []


@pytest.mark.parametrize("check", ["output", "pass"])
def test_a_wrong_step_with_fallback_leaves_what_eager_leaves(tmp_path: Path, check):
    backend = debug_compile(doubles_steps, dump=tmp_path, check=check, on_failure="fallback")
    assert differences(train("eager"), train(backend)) == []


def test_a_wrong_step_with_warn_leaves_what_the_compiled_step_leaves(tmp_path: Path):
    backend = debug_compile(doubles_steps, dump=tmp_path, check="output", on_failure="warn")
    alone = train(doubles_steps)
    assert differences(alone, train("eager")) != []
    assert differences(alone, train(backend)) == []


def test_a_wrong_step_with_raise_changes_nothing(tmp_path: Path):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    model(torch.ones(4, 3)).sum().backward()
    before = copied([model.state_dict(), torch.get_rng_state()])
    step = torch.compile(
        optimizer.step, backend=debug_compile(doubles_steps, dump=tmp_path, check="output")
    )
    with pytest.raises(MiscompileError, match="at held_"):
        step()
    assert differences(before, copied([model.state_dict(), torch.get_rng_state()])) == []


@pytest.mark.parametrize("check", ["off", "output"])
def test_a_failed_call_leaves_saved_tensors_usable(tmp_path: Path, check):
    weight, x = nn.Parameter(torch.randn(3)), torch.randn(3)
    early = (weight * x).sum()  # saves x, which the compiled call changes before it raises
    version = x._version
    backend = debug_compile(raises_half_way, dump=tmp_path, check=check, on_failure="fallback")
    torch.compile(lambda y: y.sin(), backend=backend)(x)
    assert x._version == version
    early.backward()
    assert torch.equal(weight.grad, x)


def test_hooks_on_saved_tensors_see_the_programs_call_only(tmp_path: Path):
    def packed(backend) -> int:
        torch.compiler.reset()
        seen = []
        weight = nn.Parameter(torch.ones(3))
        compiled = torch.compile(lambda w: (w * w).sin(), backend=backend)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
            compiled(weight)
        return len(seen)

    watched = debug_compile("aot_eager", dump=tmp_path, check="output")
    assert packed(watched) == packed("aot_eager") > 0


@pytest.mark.parametrize("check", ["off", "output"])
def test_a_checkpoint_around_a_compiled_module_recomputes_it(tmp_path: Path, check):
    def gradient(backend) -> torch.Tensor:
        torch.compiler.reset()
        weight = nn.Parameter(torch.ones(3))
        compiled = torch.compile(lambda w: (w * w).sin().tanh(), backend=backend)
        for _ in range(2):  # a recomputation ends with an exception, raised in a hook
            checkpoint(compiled, weight, use_reentrant=False).sum().backward()
        assert weight.grad is not None
        return weight.grad

    with install(dump=tmp_path, check=check) as hooks:
        watched = gradient("aot_eager")
    assert torch.equal(watched, gradient("aot_eager"))
    assert hooks.session.failures == []


# --- graphs that Dynamo does not make today, given to the backend itself ---


def holding(**attributes: object) -> fx.GraphModule:
    """Return a graph that draws from a generator it holds and writes to tensors in a list."""
    root = nn.Module()
    for name, value in attributes.items():
        setattr(root, name, value)
    graph = fx.Graph()
    x = graph.placeholder("x")
    generator = graph.get_attr("generator")
    drawn = graph.call_function(torch.rand, (3,), {"generator": generator})
    first = graph.call_function(lambda items: items[0].add_(1), (graph.get_attr("items"),))
    graph.output((graph.call_function(torch.add, (x, drawn)), first))
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("check", ["off", "output", "pass"])
def test_lists_and_generators_that_a_graph_holds(tmp_path: Path, check):
    seen = []
    for watched in (False, True):
        generator = torch.Generator().manual_seed(2)
        base, x = torch.zeros(4), torch.ones(3)
        gm = holding(generator=generator, items=[base[:3], base])
        backend = debug_compile("eager", dump=tmp_path, check=check, on_failure="fallback")
        call = backend(gm, (x,)) if watched else gm
        results = [copied(call(x)) for _ in range(2)]
        seen.append([results, copied(base), generator.get_state(), base._version])
    assert differences(*seen) == []


@pytest.mark.parametrize("check", ["off", "output", "pass"])
def test_a_generator_as_an_input(tmp_path: Path, check):
    def draw(x, generator):
        return x + torch.rand(3, generator=generator)

    seen = []
    for watched in (False, True):
        generator = torch.Generator().manual_seed(2)
        gm = fx.symbolic_trace(draw)
        backend = debug_compile("eager", dump=tmp_path, check=check, on_failure="fallback")
        call = backend(gm, (torch.ones(3), generator)) if watched else gm
        results = [copied(call(torch.ones(3), generator)) for _ in range(2)]
        seen.append([results, generator.get_state()])
    assert differences(*seen) == []
