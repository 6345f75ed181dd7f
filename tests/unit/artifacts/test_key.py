"""The key of a compile: what differs is in it, by name; what does not matter is not."""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config
import torch._functorch.config
from torch.fx import symbolic_trace

from ctk.compiler.cache.key import key_parts
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.errors import Uncacheable
from ctk.compiler.options.config import Config
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes
from tests.helpers.project import ROOT

Tensor = torch.Tensor


def parts_of(
    function: Callable[..., Any] | torch.nn.Module, *inputs: Any, **options: Any
) -> dict[str, str]:
    config = Config(**options)
    passes = select_passes(PASSES, config, CODEGEN_OPTIONS)
    return key_parts(symbolic_trace(function), inputs, config, passes)


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    names = {*one, *other}
    return {name for name in names if one.get(name) != other.get(name)}


def add(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x + y)


def plain(*shape: int, **more: Any) -> Tensor:
    return torch.ones(*(shape or (4, 6)), **more)


def base() -> dict[str, str]:
    return parts_of(add, plain(), plain())


# --- the graph ----------------------------------------------------------------------------------


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


def add_with_other_names(first: Tensor, second: Tensor) -> Tensor:
    total = first + second
    return torch.relu(total)


def subtract(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x - y)


def test_names_of_nodes_do_not_count() -> None:
    assert parts_of(add_with_other_names, plain(), plain()) == base()


@pytest.mark.parametrize(
    "function",
    [
        subtract,
        lambda x, y: torch.relu(y + x),
        lambda x, y: torch.relu(x + y) + 1,
        lambda x, y: (torch.relu(x + y),),
        lambda x, y: [torch.relu(x + y)],
        lambda x, y: torch.relu(x.add(y)),
        lambda x, y: torch.nn.functional.relu(x + y),
    ],
)
def test_another_program_is_another_graph(function: Any) -> None:
    assert differing(base(), parts_of(function, plain(), plain())) == {"graph"}


def test_arguments_of_equal_value_and_another_type_differ() -> None:
    graphs = [parts_of(lambda x, n=n: x * n, plain())["graph"] for n in (1, 1.0, True, -1, 1 + 0j)]
    assert len(set(graphs)) == 5
    zeros = [parts_of(lambda x, n=n: x * n, plain())["graph"] for n in (0.0, -0.0, float("nan"))]
    assert len(set(zeros)) == 3


class Shifted(torch.nn.Module):
    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.shift = value

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


def shifted(value: Tensor) -> dict[str, str]:
    """Return the key of a graph that adds a tensor which is neither parameter nor buffer."""
    gm = symbolic_trace(Shifted(value))
    del gm.shift  # torch.fx makes it a buffer
    gm.shift = value
    passes = select_passes(PASSES, Config(), CODEGEN_OPTIONS)
    return key_parts(gm, (plain(),), Config(), passes)


def test_constants_count_by_their_bytes() -> None:
    one = shifted(torch.arange(6.0))
    assert shifted(torch.arange(6.0)) == one
    for other in (torch.arange(6.0) + 1, torch.arange(12.0)[::2], torch.arange(6)):
        assert differing(one, shifted(other)) == {"graph"}


def test_numbers_in_parameters_do_not_count_their_types_do() -> None:
    one = parts_of(torch.nn.Linear(6, 3), plain())
    assert parts_of(torch.nn.Linear(6, 3), plain()) == one
    frozen = torch.nn.Linear(6, 3).requires_grad_(False)
    assert differing(one, parts_of(frozen, plain())) == {"inputs"}
    assert "inputs" in differing(one, parts_of(torch.nn.Linear(6, 5), plain()))


def helper_of_the_program(x: Tensor) -> Tensor:
    return x * 2


torch.fx.wrap("helper_of_the_program")


def test_a_function_of_the_program_in_the_graph_is_refused() -> None:
    with pytest.raises(Uncacheable, match=r"helper_of_the_program, which is not torch's"):
        parts_of(lambda x: helper_of_the_program(x), plain())


def test_a_function_put_in_the_place_of_torchs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "twice", lambda x: x * 2, raising=False)
    with pytest.raises(Uncacheable, match=r"Tensor\.twice"):
        parts_of(lambda x: x.twice(), plain())


# --- inputs -------------------------------------------------------------------------------------


def overlapping() -> tuple[Tensor, Tensor]:
    memory = torch.ones(6, 6)
    return memory[:4], memory[2:]


@pytest.mark.parametrize(
    "inputs",
    [
        (plain(dtype=torch.float64), plain()),
        (plain(), plain(1, 6)),
        (plain(6, 4).t(), plain()),
        (torch.ones(25)[1:].view(4, 6), plain()),
        (plain().requires_grad_(), plain()),
        (torch.nn.Parameter(plain()), plain()),
        (plain().requires_grad_() * 1, plain()),
        (plain(), plain(1, 6).expand(4, 6)),
        (plain(dtype=torch.complex64).conj(), plain()),
        (plain(device="meta"), plain(device="meta")),
        (plain(), 2.0),
        (plain(), 2),
        (plain(), True),
        overlapping(),
    ],
)
def test_another_input_is_another_key(inputs: tuple[Any, ...]) -> None:
    assert "inputs" in differing(base(), parts_of(add, *inputs))


def test_numbers_and_versions_of_inputs_do_not_count() -> None:
    changed = plain() * 3
    assert parts_of(add, changed.add_(1), plain()) == base()


def test_inputs_that_are_one_or_share_memory_count() -> None:
    x = plain()
    texts = {parts_of(add, *each)["inputs"] for each in ((x, x), (x, x.view(4, 6)), (x, plain()))}
    assert len(texts) == 3


def test_inference_tensors_count() -> None:
    with torch.inference_mode():
        x = plain()
    assert "inputs" in differing(base(), parts_of(add, x, plain()))


def test_symbols_count_by_their_place_and_range_not_by_name() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def symbolic(skip: int, least: int = 2) -> str:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        for _ in range(skip):  # gives the names of symbols to others
            mode.from_tensor(torch.ones(3, 5))
        x = mode.from_tensor(torch.ones(7, 11), static_shapes=False)
        if least > 2:
            torch._check(x.shape[0] >= least)
        return parts_of(relu, x)["inputs"]

    assert symbolic(0) == symbolic(3)
    assert symbolic(0) != symbolic(0, least=5)
    assert symbolic(0) != parts_of(relu, torch.ones(7, 11))["inputs"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (plain().to_sparse(), "sparse"),
        (torch.Generator(), "a Generator"),
        (torch.nn.Linear(2, 2), "a Linear"),
    ],
)
def test_inputs_without_a_text_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(Uncacheable, match=reason):
        parts_of(add, plain(), value)


# --- modes, settings, options -------------------------------------------------------------------


@contextlib.contextmanager
def put_on(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Any:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


SWITCHES: list[tuple[Any, str]] = [
    (torch.no_grad, "ambient.grad mode"),
    (torch.inference_mode, "ambient.inference mode"),
    (functools.partial(torch.autocast, "cpu", dtype=torch.float16), "ambient.autocast.cpu"),
    (functools.partial(torch.autocast, "cpu"), "ambient.autocast.cpu"),
    (functools.partial(torch.autocast, "cpu", cache_enabled=False), "ambient.autocast.cache"),
    (functools.partial(torch.device, "meta"), "ambient.default device"),
    (functools.partial(torch.autograd.set_detect_anomaly, True), "ambient.anomaly mode"),
    (functools.partial(torch.nn.attention.sdpa_kernel, []), "ambient.sdp.math"),
    (functools.partial(torch.backends.mkldnn.flags, enabled=False), "ambient.mkldnn"),
    (functools.partial(torch.backends.cudnn.flags, enabled=False), "ambient.cudnn"),
    (
        functools.partial(torch._functorch.config.patch, donated_buffer=False),
        "settings.torch._functorch.config",
    ),
    (
        functools.partial(torch._dynamo.config.patch, capture_scalar_outputs=True),
        "settings.torch._dynamo.config",
    ),
    (
        functools.partial(put_on, torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        "ambient.default dtype",
    ),
    (
        functools.partial(
            put_on,
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
            True,
        ),
        "ambient.deterministic",
    ),
    (
        functools.partial(
            put_on,
            functools.partial(getattr, torch.backends.cuda.matmul, "fp32_precision"),
            functools.partial(setattr, torch.backends.cuda.matmul, "fp32_precision"),
            "tf32",
        ),
        "ambient.precision.cuda.matmul",
    ),
]


@pytest.mark.parametrize(("mode", "part"), SWITCHES)
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:TF32 acceleration")
def test_each_switch_is_a_part(mode: Any, part: str) -> None:
    inputs = plain(), plain()
    before = parts_of(add, *inputs)
    with mode():
        inside = parts_of(add, *inputs)
    assert part in differing(before, inside)
    assert parts_of(add, *inputs) == before


OPTIONS: list[dict[str, Any]] = [
    {"codegen": "eager"},
    {"fallback": ("eager",)},
    {"passes": {"fold_constants": {"max_nbytes": 7}}},
    {"decompositions": ("aten.gelu",)},
    {"disable": ("fold_constants",)},
    {"fuel": 3},
    {"on_failure": "fallback"},
    {"verify": False},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_each_option_is_a_part(options: dict[str, Any]) -> None:
    (name,) = options
    assert differing(base(), parts_of(add, plain(), plain(), **options)) == {f"config.{name}"}


def test_every_option_was_looked_at() -> None:
    """A new option must be in the table above, or have a test of its own."""
    elsewhere = {"cache", "custom_passes", "freezing", "freezing_discard"}
    named = {name for options in OPTIONS for name in options}
    assert set(Config.__dataclass_fields__) == named | elsewhere


def test_freezing_and_transforms_are_refused() -> None:
    with pytest.raises(Uncacheable, match="freezing"):
        parts_of(add, plain(), plain(), freezing=True)
    x = plain()
    reasons: list[str] = []

    def inner(y: Tensor) -> Tensor:
        with pytest.raises(Uncacheable) as caught:
            parts_of(add, x, x)
        reasons.append(str(caught.value))
        return y

    torch.vmap(inner)(torch.ones(2))
    assert "functorch" in reasons[0]


def test_variables_and_the_compiler_are_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = base()
    monkeypatch.setenv("CC", "cc -O1")
    assert differing(before, base()) == {"version.C compiler"}
    monkeypatch.delenv("CC")
    monkeypatch.setenv("CPATH", "/elsewhere")
    assert differing(before, base()) == {"environment"}


# --- another process ----------------------------------------------------------------------------

PROGRAM = """
import json, torch
from ctk.compiler.cache.key import key_parts
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.options.config import Config
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes

def backend(gm, inputs):
    config = Config(passes={"fold_constants": {"max_nbytes": 7}})
    print(json.dumps(key_parts(gm, inputs, config, select_passes(PASSES, config, CODEGEN_OPTIONS))))
    return gm

layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
def program(x):
    with torch.autocast("cpu"):
        y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (y + torch.tensor([1.0]),))

torch.compile(program, backend=backend, dynamic=True)(torch.ones(2, 3, 8))
"""


@pytest.mark.slow
def test_another_process_has_the_same_key(tmp_path: Path) -> None:
    """Whatever the seed of hashes, the working folder and the address space are."""
    found: list[dict[str, str]] = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=folder,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    assert differing(*found) == set()
