"""Targets: the table, how a spec is resolved, and the events of backends that are not Inductor."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx import Interpreter, symbolic_trace

import ctk.toolkit.targets as targets
from ctk.compiler.errors import ConfigError, TargetError
from ctk.compiler.observe import KernelRecord, Observer
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.targets import TARGETS, resolve_target, target_names, target_of
from ctk.toolkit.targets.base import Compiled, Target
from tests.helpers.project import ROOT, name_of, python_files, tree_of


def net(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (torch.relu(x @ w).softmax(-1),)


def inputs(*, grad: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 4), torch.randn(4, 5, requires_grad=grad)]


def compile_with(target: Target, args: list[Tensor], observer: Observer | None) -> Compiled:
    return target.compile(symbolic_trace(net), args, config={}, observer=observer)


# --- the table -----------------------------------------------------------------------------------


def test_every_module_with_a_target_is_in_the_table():
    names = [m.name for m in pkgutil.walk_packages(targets.__path__, f"{targets.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    found = [module.TARGET for module in modules if hasattr(module, "TARGET")]
    assert sorted(t.name for t in found) == sorted(t.name for t in TARGETS)
    assert all(module.__doc__ for module in modules)


@pytest.mark.parametrize("name", ["ctk", "inductor", "torchscript", "aot_eager", "eager"])
def test_a_name_resolves_to_itself(name: str):
    assert resolve_target(name).name == name
    assert name in target_names()


@pytest.mark.parametrize("name", ["ctk", "inductor", "torchscript", "aot_eager", "eager"])
def test_each_target_computes_the_same(name: str):
    x, w = inputs(grad=True)
    (expected,) = torch.autograd.grad(net(x, w)[0].pow(2).sum(), w)
    for observer in (None, Recorder(keep_calls=True)):
        compiled = compile_with(resolve_target(name), [x, w], observer)
        result = compiled(x, w)
        torch.testing.assert_close(result, net(x, w))
        (gradient,) = torch.autograd.grad(result[0].pow(2).sum(), w)
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("inductr", "did you mean 'inductor'"),
        ("no_such_backend", "known: ctk, inductor, torchscript, "),
        ("no_such_module:backend", "add the folder of no_such_module to PYTHONPATH"),
        ("ctk.toolkit.compile_log.recorder:Recoder", "did you mean 'Recorder'"),
        ("ctk.toolkit.targets:TARGETS", "which cannot be called"),
        ("nowhere.py:backend", "no such file: nowhere.py"),
        (":backend", "is not MODULE:CALLABLE"),
    ],
)
def test_an_unknown_target_says_what_to_do(spec: str, says: str):
    with pytest.raises(TargetError) as caught:
        resolve_target(spec)
    assert says in str(caught.value)


def test_a_file_that_raises_shows_its_line(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("import math\nSCALE = 1 / 0\n")
    with pytest.raises(TargetError) as caught:
        resolve_target(f"{file}:backend")
    assert "ZeroDivisionError: division by zero\n  mine.py, line 2: SCALE = 1 / 0" in str(
        caught.value
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_kernel_of_a_file_is_named_without_its_folder(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def backend(gm, inputs):\n    return gm.forward\n")
    recorder, args = Recorder(), inputs()
    compile_with(resolve_target(f"{tmp_path}/mine.py:backend"), args, recorder)
    (kernel,) = [e for e in recorder.log.events if isinstance(e, KernelRecord)]
    assert str(kernel.id) == "lowered/mine.py:backend:captured"


def test_a_misspelt_file_suggests_its_neighbour(tmp_path: Path):
    (tmp_path / "backend.py").write_text("")
    with pytest.raises(TargetError, match=r"did you mean 'backend\.py'"):
        resolve_target(f"{tmp_path / 'bakend.py'}:f")


# --- MODULE:CALLABLE -----------------------------------------------------------------------------

BACKENDS = """
import torch
from helper import NAME  # a neighbour of this file
from torch._dynamo.backends.common import aot_autograd

def plain(gm, example_inputs):
    return gm.forward

def wrong(gm, example_inputs):
    return lambda *args: tuple(x + 1 for x in gm(*args))

def refuses(gm, example_inputs):
    raise NotImplementedError("cannot take softmax")

def fails_later(gm, example_inputs):
    def run(*args):
        raise OverflowError("too large")
    return run

def boxed(gm, example_inputs):
    def run(args):
        result = gm(*args)
        args.clear()
        return [-x if torch.is_tensor(x) else x for x in result]
    run._boxed_call = True
    return run

def correct(gm, example_inputs):
    def run(args):
        return gm(*args)
    run._boxed_call = True
    return run

aot_wrong_backward = aot_autograd(fw_compiler=correct, bw_compiler=boxed)

def takes_options(gm, example_inputs, *, options=None):
    assert options in (None, {"level": 3}), options
    return gm.forward
"""


@pytest.fixture
def backends(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")
    file = tmp_path / "my_backends.py"
    file.write_text(BACKENDS)
    return str(file)


def test_a_backend_without_graphs_of_its_own_is_one_kernel(backends: str):
    target = resolve_target(f"{backends}:wrong")
    args, recorder = inputs(), Recorder(keep_calls=True)
    result = compile_with(target, args, recorder)(*args)
    torch.testing.assert_close(result[0], net(*args)[0] + 1)
    assert [s.stage for s in recorder.log.stages()] == ["captured"]
    [kernel] = recorder.log.kernels()
    assert str(kernel.id) == "lowered/my_backends.py:wrong:captured"
    [call] = recorder.log.calls()
    torch.testing.assert_close(call.outputs[0], Interpreter(call.graph).run(*call.inputs)[0] + 1)
    veto = Recorder(Veto(kernels=frozenset({str(kernel.id)})))
    torch.testing.assert_close(compile_with(target, args, veto)(*args), net(*args))
    assert [k.vetoed for k in veto.log.kernels()] == [True]


@pytest.mark.parametrize(
    ("name", "kind"), [("refuses", NotImplementedError), ("fails_later", OverflowError)]
)
def test_a_backend_that_raises_is_located_and_avoided(
    backends: str, name: str, kind: type[Exception]
):
    target, args, recorder = resolve_target(f"{backends}:{name}"), inputs(), Recorder()
    with pytest.raises(kind) as caught:
        compile_with(target, args, recorder)(*args)
    [error] = recorder.log.errors()
    assert error.error is caught.value
    assert caught.value.ctk_where == str(error.kernel) == f"lowered/my_backends.py:{name}:captured"
    veto = Recorder(Veto(kernels=frozenset({str(error.kernel)})))
    torch.testing.assert_close(compile_with(target, args, veto)(*args), net(*args))


def test_an_aot_backend_shows_joint_forward_and_backward(backends: str):
    target = resolve_target(f"{backends}:aot_wrong_backward")
    x, w = inputs(grad=True)
    (expected,) = torch.autograd.grad(net(x, w)[0].pow(2).sum(), w)
    recorder = Recorder(keep_calls=True)
    (gradient,) = torch.autograd.grad(
        compile_with(target, [x, w], recorder)(x, w)[0].pow(2).sum(), w
    )
    torch.testing.assert_close(gradient, -expected)
    assert [c.stage for c in recorder.log.calls()] == ["forward", "backward"]
    assert {"joint", "forward", "backward"} <= {s.stage for s in recorder.log.stages()}
    guilty = "lowered/my_backends.py:aot_wrong_backward:backward"
    veto = Recorder(Veto(kernels=frozenset({guilty})))
    compiled = compile_with(target, [x, w], veto)
    (gradient,) = torch.autograd.grad(compiled(x, w)[0].pow(2).sum(), w)
    torch.testing.assert_close(gradient, expected)


def test_nothing_stays_wrapped(backends: str):
    site = aot.backend_site()
    before = vars(site.owner)[site.name]
    compile_with(resolve_target("aot_eager"), inputs(), Recorder())
    with pytest.raises(NotImplementedError):
        compile_with(resolve_target(f"{backends}:refuses"), inputs(), Recorder())
    assert vars(site.owner)[site.name] is before


def test_options_go_to_backends_that_take_them(backends: str):
    options: dict[str, object] = {"level": 3}
    target = resolve_target(f"{backends}:takes_options")
    target.compile(symbolic_trace(net), inputs(), config=options, observer=None)
    for name, said in (
        (f"{backends}:plain", "takes no options, got"),
        ("torchscript", "no option"),
    ):
        with pytest.raises(ConfigError, match=f"{said} '?level"):
            resolve_target(name).check_config(options)


def test_what_a_repro_needs_is_known_without_loading_the_target():
    assert [target_of(name).needs for name in ("inductor", "aot_eager", "x.py:f")] == ["", "", ""]
    assert target_of("no_such_module:backend").needs == "no_such_module"
    assert target_of("ctk").needs == target_of("torchscript").needs == "ctk"
    assert all(target_of(target.name) is target for target in TARGETS)


def test_no_name_of_a_target_is_compared():
    """Differences between targets are members of `Target`."""
    names = {target.name for target in TARGETS}
    found: list[str] = []
    for path in python_files("toolkit", "repro_templates"):
        if path.is_relative_to(ROOT / "toolkit" / "targets"):
            continue
        for node in ast.walk(tree_of(path)):
            parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            texts = {n.value for p in parts for n in ast.walk(p) if isinstance(n, ast.Constant)}
            found += [f"{name_of(path)}:{node.lineno}"] if texts & names else []
    assert not found, "give Target (toolkit/targets/base.py) a member instead"


@pytest.mark.parametrize("name", ["inductor", "torchscript", "aot_eager"])
def test_an_exception_in_autograd_dispatch_is_nobodys_kernel(name: str):
    def refused(x: Tensor) -> tuple[Tensor]:
        return (x.reshape(7),)

    recorder = Recorder()
    with pytest.raises(RuntimeError) as caught:
        resolve_target(name).compile(
            symbolic_trace(refused), [torch.ones(5)], config={}, observer=recorder
        )
    [error] = recorder.log.errors()
    assert (error.stage, error.kernel) == ("captured", None)
    assert caught.value.ctk_where == "captured/autograd_dispatch"
