"""Emitted repros: what they contain, what they say, and that they say it for the right reason.

Most scripts run in this process (`runpy`), because starting torch takes seconds;
tests/repo/test_repro_standalone.py runs some in a clean one. The targets are small planted
backends.
"""

import contextlib
import dataclasses
import io
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch.fx import GraphModule

from compiler.errors import CaseError
from toolkit.case import Autocast, Case, Modes
from toolkit.oracle.verdict import Signature
from toolkit.repro import clean_environment, read_run, run_repro, write_repro, write_verified_repro
from toolkit.repro_script import Versions, literal, render_script, shorten_paths
from toolkit.repro_sources import plan_sources

PLANTED = "error ValueError: planted compile error"
ACCURACY = Signature("accuracy", output="out0", message="max abs 1")

BACKENDS = """
import torch

def honest(gm, example_inputs, options=None):
    return gm.forward

def wrong(gm, example_inputs, options=None):
    amount = (options or {}).get("amount", 1)
    def run(*args):
        return tuple(
            out + amount if isinstance(out, torch.Tensor) and out.is_floating_point() else out
            for out in gm(*args)
        )
    return run

def wrong_if_dynamic(gm, example_inputs):
    is_dynamic = any(isinstance(x, torch.SymInt) for x in example_inputs)
    return wrong(gm, example_inputs) if is_dynamic else gm.forward

def wrong_input(gm, example_inputs):
    def run(*args):
        out = gm(*args)
        with torch.no_grad():
            for x in args:
                if isinstance(x, torch.Tensor):
                    x.add_(1)
        return out
    return run

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

def wrong_gradient(gm, example_inputs):
    return lambda *args: tuple(Twice.apply(out) for out in gm(*args))

def raises(gm, example_inputs):
    raise ValueError("planted compile error")

def raises_when_called(gm, example_inputs):
    def run(*args):
        raise KeyError("planted runtime error")
    return run

def other_dtype(gm, example_inputs):
    return lambda *args: tuple(out.double() for out in gm(*args))

def other_strides(gm, example_inputs):
    return lambda *args: tuple(out.t().contiguous().t() for out in gm(*args))

def other_draws(gm, example_inputs):
    def run(*args):
        torch.rand(3)
        return gm(*args)
    return run

def makes_nan(gm, example_inputs):
    return lambda *args: tuple(out.log() * 0 + out for out in gm(*args))

def dies(gm, example_inputs):
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.fixture
def backends(tmp_path: Path) -> Path:
    path = tmp_path / "planted_backends.py"
    path.write_text(BACKENDS)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "case"
    path.mkdir()
    return path


def captured(
    program: Callable[..., object], inputs: Sequence[object], *, dynamic: bool | None = None
) -> tuple[GraphModule, tuple[object, ...]]:
    """Return the graph that Dynamo captures of a program, and its inputs."""
    seen: list[tuple[GraphModule, tuple[object, ...]]] = []

    def backend(gm: GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
        def run(*args: object) -> object:
            seen.append(
                (gm, tuple(a.clone().detach() if type(a) is torch.Tensor else a for a in args))
            )
            return gm(*args)

        return run

    torch.compile(program, backend=backend, dynamic=dynamic)(*inputs)
    return seen[0]


def make_case(program: Callable[..., object], *inputs: object, target: str, **more: object) -> Case:
    graph, values = captured(program, inputs)
    return dataclasses.replace(Case(graph, values, target, signature=ACCURACY), **more)


def run_here(path: Path) -> tuple[int, str]:
    """Run a script in this process; return its exit code and verdict."""
    output = io.StringIO()
    default = torch.get_default_dtype()
    torch.compiler.reset()
    try:
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    finally:
        torch.set_default_dtype(default)
        torch.use_deterministic_algorithms(False)
    return int(str(ended.value.code)), output.getvalue()


def verdict_of(case: Case, folder: Path) -> tuple[int, str]:
    return run_here(write_repro(case, folder))


def fails_and_heals(case: Case, folder: Path, backends: Path) -> str:
    """Check that a repro fails with its backend and passes with an honest one; return its text."""
    code, said = verdict_of(case, folder)
    assert code == 1, said
    assert said.startswith("FAILURE: ")
    assert "another failure" not in said
    honest = dataclasses.replace(case, target=f"{backends}:honest")
    code, said = verdict_of(honest, folder)
    assert (code, said) == (0, "NO FAILURE: the compiled program agrees with eager\n")
    return write_repro(case, folder).read_text()


def test_wrong_output(backends: Path, folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert 'TARGET = "sources/planted_backends.py:wrong"' in text
    assert (folder / "sources/planted_backends.py").read_text() == BACKENDS


def test_cond_keeps_both_branches(backends: Path, folder: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    case = make_case(program, torch.tensor([1.0, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "class Repro_cond_true_0(torch.nn.Module):" in text
    assert "class Repro_cond_false_0(torch.nn.Module):" in text


def test_nested_cond(backends: Path, folder: Path) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 9, lambda x: x.tan(), lambda x: x.exp(), (x,))

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))

    case = make_case(program, torch.tensor([1.0, 2.0]), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "class Repro_cond_true_1_cond_true_0(torch.nn.Module):" in text


@pytest.mark.parametrize(
    "modes",
    [
        Modes(grad=False),
        Modes(inference=True, grad=False),
        Modes(autocast=(Autocast("cpu", "bfloat16"),)),
        Modes(deterministic=True),
        Modes(default_dtype="float64"),
        Modes(seed=7),
    ],
    ids=str,
)
def test_modes_are_put_back(modes: Modes, backends: Path, folder: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    program = lambda x, w: (x @ w, torch.tensor([0.1]) + x)  # noqa: E731
    case = make_case(
        program, torch.tensor([[0.5, 2.0]]), weight, target=f"{backends}:wrong", modes=modes
    )
    fails_and_heals(case, folder, backends)


def test_modes_are_those_of_the_case(backends: Path, folder: Path) -> None:
    """The program itself tells in which modes it runs: eager's outputs would differ otherwise."""
    modes = Modes(grad=False, autocast=(Autocast("cpu", "bfloat16"),), default_dtype="float64")
    case = make_case(
        lambda x: (x @ x, torch.ones(2)),
        torch.ones(2, 2),
        target=f"{backends}:other_dtype",
        modes=modes,
    )
    case = dataclasses.replace(case, signature=Signature("dtype"))
    code, said = verdict_of(case, folder)
    assert code == 1
    # out0 is bfloat16 from autocast; out1 is float64 by default, which `other_dtype` leaves alone.
    assert said == "FAILURE: dtype at out0: torch.float64, eager gives torch.bfloat16\n"


def test_small_buffer_is_a_literal(backends: Path, folder: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.linspace(0, 1, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * self.table,)

    case = make_case(Model(), torch.arange(8.0), target=f"{backends}:wrong")
    text = fails_and_heals(case, folder, backends)
    assert "0.14285715" in text
    assert not (folder / "repro.safetensors").exists()


def test_constants_of_the_graph(backends: Path, folder: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("small", torch.tensor([1.5, -0.0]))
            self.large = torch.nn.Parameter(torch.linspace(0, 1, 200).reshape(2, 100))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return ((x * self.small) @ self.large,)

    graph = torch.fx.symbolic_trace(Model())
    case = Case(graph, (torch.tensor([[1.0, 2.0]]),), f"{backends}:wrong", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert '"small": torch.tensor([1.5, -0.0]),' in text
    assert 'torch.nn.Parameter(stored("constant large", (2, 100), torch.float32))' in text


def test_symbolic_batch_stays_symbolic(backends: Path, folder: Path) -> None:
    x = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    program = lambda x: (x.sum(0).expand(x.shape[0], 4) + x.shape[0],)  # noqa: E731
    graph, inputs = captured(program, (x,))
    symbol = next(node.name for node in graph.graph.nodes)
    tensor = [node.name for node in graph.graph.nodes if node.op == "placeholder"][1]
    assert isinstance(inputs[0], int)
    case = Case(
        graph,
        inputs,
        f"{backends}:wrong_if_dynamic",
        signature=ACCURACY,
        dynamic={tensor: (symbol, None)},
    )
    text = fails_and_heals(case, folder, backends)
    assert f"{symbol} = {tensor}.size(0)" in text
    fixed = dataclasses.replace(case, dynamic={})
    for node in fixed.graph.graph.nodes:
        node.type = None
        node.meta.clear()
    assert verdict_of(fixed, folder)[0] == 0


def test_free_symbolic_int(backends: Path, folder: Path) -> None:
    graph, inputs = captured(lambda x, n: (x * n,), (torch.ones(3), 5), dynamic=True)
    ints = [value for value in inputs if isinstance(value, int)]
    assert 5 in ints
    case = Case(graph, inputs, f"{backends}:wrong_if_dynamic", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert "dynamic=True" in text


def test_wrong_gradient(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.sin(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong_gradient"
    )
    inputs = (case.inputs[0].clone().requires_grad_(),)  # type: ignore[attr-defined]
    case = dataclasses.replace(case, inputs=inputs, modes=Modes(backward=True))
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith("FAILURE: accuracy at grad_in0: ")
    fails_and_heals(case, folder, backends)
    forward_only = dataclasses.replace(case, modes=Modes(backward=False))
    assert verdict_of(forward_only, folder)[0] == 0


def test_mutated_input(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.add_(1).sum(),), torch.tensor([0.5, 2.0]), target=f"{backends}:wrong_input"
    )
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith("FAILURE: accuracy at in0: ")
    fails_and_heals(case, folder, backends)


def test_bfloat16_and_strides(backends: Path, folder: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4).bfloat16().t()
    graph, _ = captured(lambda x: (x.exp(),), (x,))
    case = Case(graph, (x,), f"{backends}:wrong", {"amount": 1e6}, signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert ", (1, 4))" in text


def test_shared_memory_of_inputs(backends: Path, folder: Path) -> None:
    """The second input sees what the program writes into the first."""
    base = torch.arange(6.0)
    graph, _ = captured(lambda a, b: (a.add_(10), b * 1)[1:], (base[:4].clone(), base[2:].clone()))
    case = Case(graph, (base[:4], base[2:]), f"{backends}:wrong", signature=ACCURACY)
    text = fails_and_heals(case, folder, backends)
    assert "storage0.as_strided((4,), (1,), 2)" in text
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    results, _, _ = namespace["run"](namespace["module"]())
    assert results["out0"][0].tolist() == [12.0, 13.0, 4.0, 5.0]


def test_none_int_and_float_inputs(backends: Path, folder: Path) -> None:
    graph = torch.fx.Graph()
    x, n, f, missing = (graph.placeholder(name) for name in ("x", "n", "f", "missing"))
    scaled = graph.call_function(torch.mul, (x, n))
    moved = graph.call_function(torch.add, (scaled, f))
    graph.output((moved, missing, n))
    case = Case(
        GraphModule(torch.nn.Module(), graph),
        (torch.ones(2), 3, 0.25, None),
        f"{backends}:wrong",
        signature=ACCURACY,
    )
    fails_and_heals(case, folder, backends)


@pytest.mark.parametrize(
    ("backend", "signature", "expected"),
    [
        ("raises", Signature("compile-error", "ValueError"), f"compile-{PLANTED}"),
        ("raises_when_called", Signature("runtime-error", "KeyError"),
         "runtime-error KeyError: 'planted runtime error'"),
        ("raises", ACCURACY, f"another failure: compile-{PLANTED}; expected accuracy"),
        ("raises", Signature("compile-error", "KeyError"),
         f"another failure: compile-{PLANTED}; expected compile-error KeyError"),
        ("wrong", Signature("dtype"),
         "another failure: accuracy at out0: max abs 1 (eager 2.8e-08)"),
        ("other_dtype", Signature("dtype"),
         "dtype at out0: torch.float64, eager gives torch.float32"),
        ("other_strides", Signature("stride"), "stride at out0: [1, 2], eager gives [2, 1]"),
        ("makes_nan", Signature("nan"), "nan at out0: "),
    ],
)  # fmt: skip
def test_kinds_of_failure(
    backend: str, signature: Signature, expected: str, backends: Path, folder: Path
) -> None:
    case = make_case(
        lambda x: (x.sin(),), torch.tensor([[0.5, 2.0], [-1.0, 0.25]]),
        target=f"{backends}:{backend}", signature=signature,
    )  # fmt: skip
    code, said = verdict_of(case, folder)
    assert code == 1
    assert said.startswith(f"FAILURE: {expected}")


@pytest.mark.parametrize("target", ["ctk", "torchscript", "aot_eager", "eager"])
def test_named_targets_compile(target: str, folder: Path) -> None:
    case = make_case(lambda x: (x.sin().relu(),), torch.tensor([0.5, -2.0]), target=target)
    case = dataclasses.replace(case, inputs=(torch.ones(2, requires_grad=True),))
    case = dataclasses.replace(case, modes=Modes(backward=True))
    assert verdict_of(case, folder) == (0, "NO FAILURE: the compiled program agrees with eager\n")


def test_strides_alone_are_no_failure(backends: Path, folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2, 2), target=f"{backends}:other_strides")
    assert verdict_of(case, folder)[0] == 0


def test_random_program_with_equal_draws(backends: Path, folder: Path) -> None:
    program = lambda x: (x + torch.rand(2),)  # noqa: E731
    case = make_case(program, torch.ones(2), target=f"{backends}:wrong")
    fails_and_heals(case, folder, backends)


def test_other_random_numbers_are_no_failure(backends: Path, folder: Path) -> None:
    program = lambda x: (x + torch.rand(2), x * 2)  # noqa: E731
    case = make_case(program, torch.ones(2), target=f"{backends}:other_draws")
    code, said = verdict_of(case, folder)
    assert code == 125
    assert said == "CANNOT TELL: flaky: the compiled program does not draw eager's random numbers\n"


def test_what_a_script_cannot_tell(backends: Path, folder: Path, tmp_path: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target=f"{backends}:wrong")
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mm, (x, x)),))
    broken = dataclasses.replace(case, graph=GraphModule(torch.nn.Module(), graph))
    code, said = verdict_of(broken, folder)
    assert code == 125
    assert said.startswith("CANNOT TELL: eager itself fails: RuntimeError: ")
    missing = dataclasses.replace(case, target="no_such_module_of_ctk:backend")
    code, said = verdict_of(missing, folder)
    assert code == 125
    assert "no_such_module_of_ctk:backend is missing" in said
    unknown = dataclasses.replace(case, target="no_such_backend")
    code, said = verdict_of(unknown, folder)
    assert code == 125
    assert "Dynamo knows no backend no_such_backend" in said


def test_custom_passes_move_with_the_script(backends: Path, folder: Path, tmp_path: Path) -> None:
    passes = tmp_path / "my_passes.py"
    passes.write_text("def fold(graph):\n    pass\n")
    config = {"custom_passes": {"joint": ["my_passes:fold", "json:loads"]}, "disable": ["a" * 60]}
    case = make_case(
        lambda x: (x.sin(),), torch.ones(2), target="ctk", config=config, sources=(passes,)
    )
    text = write_repro(case, folder).read_text()
    assert '"custom_passes": {"joint": ["sources/my_passes.py:fold", "json:loads"]},' in text
    assert 'FUNCTIONS = ["sources/my_passes.py:fold"]' in text
    assert (folder / "sources/my_passes.py").read_text() == passes.read_text()
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    joint = namespace["resolved"](namespace["CONFIG"])["custom_passes"]["joint"]
    assert joint == [f"{folder}/sources/my_passes.py:fold", "json:loads"]


def test_writing_into_the_folder_of_the_case_keeps_its_sources(
    folder: Path, backends: Path
) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target=f"{backends}:wrong")
    write_repro(case, folder)
    copied = folder / "sources/planted_backends.py"
    again = dataclasses.replace(case, target=f"{copied}:wrong", sources=(copied,))
    assert verdict_of(again, folder)[0] == 1
    assert copied.read_text() == BACKENDS


def test_large_input_goes_to_the_data_file(backends: Path, folder: Path) -> None:
    x = torch.linspace(0, 1, 300, dtype=torch.float64).reshape(20, 15).t()
    graph, _ = captured(lambda x: (x.sin(),), (x,))
    case = Case(graph, (x,), f"{backends}:wrong", signature=ACCURACY)
    fails_and_heals(case, folder, backends)
    namespace = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    value = next(iter(namespace["inputs"]().values()))
    assert torch.equal(value, x)
    assert value.stride() == x.stride()
    small = dataclasses.replace(case, inputs=(torch.ones(2),))
    write_repro(small, folder)
    assert not (folder / "repro.safetensors").exists()


def test_nothing_half_written(folder: Path) -> None:
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target="ctk")
    write_repro(case, folder)
    before = (folder / "repro.py").read_text()
    with pytest.raises(CaseError, match=r"input .* is a object"):
        write_repro(dataclasses.replace(case, inputs=(object(),)), folder)
    with pytest.raises(CaseError, match="2 inputs for 1 placeholders"):
        write_repro(dataclasses.replace(case, inputs=(1, 2)), folder)
    with pytest.raises(CaseError, match="does not exist"):
        write_repro(dataclasses.replace(case, sources=(folder / "gone.py",)), folder)
    assert (folder / "repro.py").read_text() == before
    assert [path.name for path in folder.iterdir()] == ["repro.py"]


def test_graph_that_calls_a_module_is_refused(folder: Path) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(CaseError, match="Linear"):
        write_repro(Case(graph, (torch.ones(2),)), folder)


def test_header_without_paths_or_quotes() -> None:
    home = str(Path.home())
    assert shorten_paths(f"no such file {home}/secret/x.cpp") == "no such file ~/secret/x.cpp"
    assert shorten_paths("in /opt/some/where/pkg/mod.py, line 3") == "in .../pkg/mod.py, line 3"
    assert shorten_paths("a / b, 3/4, and https://a.b/c/d/e") == "a / b, 3/4, and https://a.b/c/d/e"


def test_hostile_message_stays_inside_the_docstring(folder: Path) -> None:
    signature = Signature("compile-error", "E", message='"""; import os; """ \\N{x} \\')
    case = make_case(lambda x: (x.sin(),), torch.ones(2), target="ctk", signature=signature)
    path = write_repro(case, folder)
    namespace = runpy.run_path(str(path), run_name="repro")
    assert "import os" in namespace["__doc__"]


def test_options_are_written_as_they_are() -> None:
    value = {"a": [1, 2.5, None, True, 'quo"te'], "b": {"long": ["x" * 50, "y" * 50]}}
    assert eval(literal(value)) == value
    assert literal({"a": 1}) == '{"a": 1}'


def test_a_verdict_needs_its_exit_code() -> None:
    assert read_run(1, "FAILURE: accuracy at out0\n", "").says == "reproduced"
    assert read_run(1, "FAILURE: another failure: x\n", "").says == "not reproduced"
    assert read_run(0, "NO FAILURE: fine\n", "").says == "not reproduced"
    assert read_run(125, "CANNOT TELL: x\n", "").says == "cannot tell"
    assert read_run(1, "", "SyntaxError: x\n").says == "cannot tell"
    assert read_run(-11, "FAILURE: x\n", "").says == "cannot tell"


def test_clean_environment_drops_what_could_change_the_answer() -> None:
    kept = clean_environment(
        {
            "PATH": "p",
            "OMP_NUM_THREADS": "1",
            "CTK_DUMP": "d",
            "TORCH_LOGS": "all",
            "MY_SECRET_TOKEN": "s",
        }
    )
    assert kept == {"PATH": "p", "OMP_NUM_THREADS": "1"}


def test_script_that_hangs_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text("import time\ntime.sleep(600)\n")
    result = run_repro(path, timeout_seconds=1.0)
    assert (result.exit_code, result.says) == (124, "cannot tell")


def test_crash_is_told_in_a_clean_process(backends: Path, folder: Path) -> None:
    case = make_case(
        lambda x: (x.sin(),),
        torch.ones(2),
        target=f"{backends}:dies",
        signature=Signature("signal", signal=11),
    )
    path, result = write_verified_repro(case, folder)
    assert result.verdict == "FAILURE: signal 11: the compiled program was killed"
    assert result.says == "reproduced"
    header = path.read_text().split('"""')[1]
    assert "Clean run:  reproduced on 20" in header


def golden_case() -> Case:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    product = graph.call_function(torch.matmul, (x, w))
    graph.output((graph.call_method("relu", (product,)),))
    return Case(
        GraphModule(torch.nn.Module(), graph),
        (torch.tensor([[0.1, -2.0]]), torch.nn.Parameter(torch.tensor([[1.0], [0.5]]))),
        target="ctk",
        config={"codegen": "eager"},
        modes=Modes(backward=True),
        signature=Signature("accuracy", output="out0", message="max abs 0.77"),
    )


def test_golden_script(golden: Callable[[str, str], None]) -> None:
    case = golden_case()
    script = render_script(
        case,
        plan_sources(case),
        culprit_pass="joint/fold",
        clean_run="reproduced on 2024-02-29 (FAILURE: accuracy at out0: max abs 0.77)",
        versions=Versions("2.13.0", "3.11.7", "Linux x86_64"),
    )
    assert all(len(line) <= 100 for line in script.text.splitlines())
    golden("repro.py.txt", script.text)
