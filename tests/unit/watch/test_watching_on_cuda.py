"""Watching changes nothing on a GPU: two steps of a program leave the same bits there too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctk.toolkit.watch.hooks import install
from tests.helpers.faulty_backends import run_python
from tests.helpers.threaded_programs import PROGRAMS as THREADED
from tests.helpers.training_zoo import (
    PROGRAMS,
    Compile,
    Program,
    State,
    Step,
    differences,
    model_state,
    on,
    small_net,
    steps_of,
    whole_training,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]

CHECKS = ("off", "output", "pass")
BACKENDS = ("ctk", "aot_eager", "inductor")


def two_generators() -> tuple[Callable[..., object], tuple[Any, ...]]:
    def function(x: Tensor, here: torch.Generator, there: torch.Generator) -> Tensor:
        near = torch.rand(3, generator=here) + torch.rand(3)
        far = torch.rand(3, generator=there, device=x.device)
        return F.dropout(x, 0.5) + far + near.to(x.device)

    seeded = (torch.Generator("cpu").manual_seed(1), torch.Generator("cuda").manual_seed(2))
    return function, (torch.randn(3), *seeded)


def host_inputs() -> tuple[Callable[..., object], tuple[Any, ...]]:
    return lambda x: x.cuda() + torch.rand(3, device="cuda"), (torch.randn(3, device="cpu"),)


def scaled_training(compile: Compile, device: str) -> tuple[Step, State]:
    """Autocast to float16 with a gradient scaler, as people train."""
    model = small_net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(device)
    compiled = compile(model)

    def step() -> object:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = compiled(torch.randn(6, 4, device=device)).square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step, lambda: [model_state(model), scaler.state_dict()]


class Images(nn.Sequential):
    def __init__(self) -> None:
        norm = nn.BatchNorm2d(8)
        super().__init__(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 8, 1), norm, nn.Flatten())


ON_CUDA = (
    Program("two_generators", on(two_generators)),
    Program("host_inputs", on(host_inputs)),
    Program("scaled_training", scaled_training),
    Program("images", whole_training(Images)),
)

ROWS = [
    pytest.param(program, backend, id=f"{program.name}-{backend}")
    for program in (*PROGRAMS, *ON_CUDA)
    for backend in BACKENDS
    if backend not in program.wrong_with
]


@pytest.mark.parametrize(("program", "backend"), ROWS)
def test_watching_changes_nothing(
    program: Program, backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_same(program, tmp_path, lambda f, **more: torch.compile(f, backend=backend, **more))
    said = [record.getMessage() for record in caplog.records if record.name.startswith("ctk")]
    assert [text for text in said if "not checked" in text or "no result shows it" in text] == []


def assert_same(program: Program, dump: Path, compile: Compile, *, count: int = 2) -> None:
    plain = steps_of(program, compile, "cuda", count=count)
    for check in CHECKS:
        with install(dump=dump / check, check=check) as hooks:
            watched = steps_of(program, compile, "cuda", count=count)
        assert hooks.session.failures == [], check
        assert hooks.session.graphs > 0
        assert differences(plain, watched) == [], check


RECORDED = ("adam_capturable", "moving_average", "view", "later_backward")


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"backend": "cudagraphs"}])
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """CUDA graphs: the first call warms up, the second records, the others replay."""
    program = next(each for each in (*PROGRAMS, *ON_CUDA) if each.name == name)

    def compile(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
        compiled = torch.compile(function, **options, **more)

        def call(*args: object) -> object:
            result = compiled(*args)
            return result.clone() if isinstance(result, Tensor) else result

        return call

    assert_same(program, tmp_path, compile, count=4)


FIRST = """
import torch

torch.manual_seed(3)

def f(x):
    return x.sin(), torch.rand(4, device="cuda")

assert not torch.cuda.is_initialized()
for _ in range(2):
    print([value.tolist() for value in torch.compile(f, backend="BACKEND")(torch.ones(3))])
print(torch.rand(2, device="cuda").tolist())
"""


@pytest.mark.parametrize("backend", ["ctk", "aot_eager"])
def test_a_graph_may_be_the_first_to_use_cuda(backend: str, tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST.replace("BACKEND", backend))
    plain = run_python(script, is_clean=True)
    assert plain.returncode == 0, plain.stderr
    for check in CHECKS:
        done = watched(script, tmp_path / check, "--check", check)
        assert done.returncode == 0, done.stdout + done.stderr
        assert plain.stdout in done.stderr


@pytest.mark.parametrize("name", THREADED)
def test_threads_compile_at_the_same_time(name: str, tmp_path: Path) -> None:
    """They share one CUDA device, and one generator of random numbers."""
    script = tmp_path / f"{name}.py"
    script.write_text(on_cuda(THREADED[name]))
    for check in CHECKS:
        done = watched(script, tmp_path / check, "--check", check, arguments=["inductor,ctk"])
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("no failure: ")


def on_cuda(text: str) -> str:
    """Return a program with its tensors on the GPU."""
    text = text.replace("torch.Generator()", "torch.Generator('cuda')")
    for made in ("4, 5, generator=g", "5, 3, generator=g", "0, 1, 6 + k", "(4,), k + 0.5"):
        text = text.replace(f"({made}", f"({made}, device='cuda'")
    return text.replace("torch.ones(3)", "torch.ones(3, device='cuda')").replace(
        "torch.ones(())", "torch.ones((), device='cuda')"
    )


def watched(script: Path, out: Path, *options: str, arguments: list[str] | None = None):
    command = ("-c", "from ctk.toolkit.cli.main import main; main()", "run", "--out", out)
    return run_python(*command, *options, script, *(arguments or []), is_clean=True)
