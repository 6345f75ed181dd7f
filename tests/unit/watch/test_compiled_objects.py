"""A compiled model under watch is pickled, copied and inspected as without."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch._dynamo.eval_frame import OptimizedModule, innermost_backend, innermost_fn

from ctk.toolkit.watch.hooks import WatchedBackend, debug_compile, install


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, *, scale=2):
        return self.linear(x).relu() * scale


def program(x, *, plus=1):
    """Add."""
    return x.sin() + plus


def own_backend(gm, example_inputs):
    return gm.forward


X = torch.ones(2, 3)
BACKENDS = ("inductor", "aot_eager", "ctk", own_backend)


@pytest.fixture
def watched(tmp_path):
    with install(dump=tmp_path, check="output") as hooks:
        yield hooks


def reloaded(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("make", [reloaded, saved, copy.deepcopy, copy.copy])
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_copies_of_a_compiled_model_are_compiled_and_watched(watched, make, backend):
    model = torch.compile(Model(), backend=backend)
    expected = model(X)
    other = make(model)
    assert isinstance(other, OptimizedModule)
    torch.testing.assert_close(other(X), expected)
    assert other.state_dict().keys() == model.state_dict().keys()
    assert watched.session.calls.whole == 2


def test_a_pickle_needs_nothing_of_ctk(watched):
    for backend in BACKENDS:
        assert b"ctk.toolkit" not in pickle.dumps(torch.compile(Model(), backend=backend))


def test_a_module_that_compiles_itself(watched):
    model = Model()
    model.compile(backend="aot_eager")
    model(X)
    assert type(copy.deepcopy(model)) is type(reloaded(model)) is Model
    assert watched.session.calls.whole == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_shows_the_same(tmp_path, backend):
    def facts():
        compiled = torch.compile(program, backend=backend)
        return {
            "signature": str(inspect.signature(compiled)),
            "names": (compiled.__name__, compiled.__qualname__, compiled.__module__),
            "doc": compiled.__doc__,
            "wrapped": compiled.__wrapped__ is program,
            "unwrapped": inspect.unwrap(compiled) is program,
            "original": compiled._torchdynamo_orig_callable is program,
            "innermost": innermost_fn(compiled) is program,
            "id": compiled._torchdynamo_wrapper_id == id(compiled),
            "attributes": sorted(compiled.__dict__),
            "code": compiled.__code__.co_name,
            "copy": copy.deepcopy(compiled) is compiled,
        }

    expected = facts()
    with install(dump=tmp_path, check="output"):
        assert facts() == expected


def test_a_compiled_module_shows_the_same(tmp_path):
    def facts(model):
        compiled = torch.compile(model, backend=own_backend)
        return {
            "attributes": sorted(compiled.__dict__),
            "original": compiled._orig_mod is model,
            "callable": compiled._torchdynamo_orig_callable == model.forward,
            "forward": compiled.forward.__wrapped__ == model.__call__,
            "backend": type(innermost_backend(compiled.dynamo_ctx.callback)),
        }

    model = Model()
    expected = facts(model)
    with install(dump=tmp_path, check="output"):
        assert facts(model) == expected


def test_hooks_moves_and_comparisons(watched):
    model = torch.compile(Model(), backend="aot_eager")
    seen = []
    model.register_forward_hook(lambda *_: seen.append("model"))
    model._orig_mod.linear.register_forward_hook(lambda *_: seen.append("linear"))
    model.to(torch.float64)
    assert model(X.double()).dtype is torch.float64
    assert seen == ["linear", "model"]
    assert model == model and model.linear.weight.dtype is torch.float64


def test_a_watching_backend_is_pickled_by_its_options(tmp_path):
    backend = debug_compile("aot_eager", check="output", dump=tmp_path, calls=3)
    other = reloaded(torch.compile(Model(), backend=backend))
    watching = innermost_backend(other.dynamo_ctx.callback).compiler_fn
    assert isinstance(watching, WatchedBackend)
    assert watching.session.options == backend.session.options
    torch.testing.assert_close(other(X), other._orig_mod(X))
    assert copy.deepcopy(backend) is backend
