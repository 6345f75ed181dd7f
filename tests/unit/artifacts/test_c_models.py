"""Models with operators of torch, packages as they are written, and the example, called from C."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from ctk.compiler.packages.c_wrapper import library
from ctk.compiler.packages.package import load
from ctk.compiler.packages.write import aot_compile
from ctk.compiler.usercode.python_files import load_file
from tests.helpers.c_packages import entry_of, package_of
from tests.helpers.c_program import call
from tests.helpers.cli import ctk
from tests.helpers.project import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/proc/self/fd").exists(), reason="needs cc and Linux"
)

ARGUMENT, CORRUPT, VERSION, MACHINE, LIBRARY, UNSUPPORTED, WEIGHT = 1, 3, 4, 5, 6, 7, 8
INDEX, OPERATOR = 10, 11


# torch copies its own specs when it makes an exported program functional
OWN_WARNING = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")


class Net(nn.Module):
    """Operators of torch between kernels."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)))).softmax(-1)


# --- operators of torch ---------------------------------------------------------------------------


def same_as_live(program, folder, model, args, *, dynamic_shapes=None, others=(), config=None):
    """Call a model from C as compiled, and compare with the live backend bit for bit."""
    entry, weights, live = entry_of(model, args, dynamic_shapes=dynamic_shapes, config=config)
    path = package_of(folder / "model.ctk", [entry], weights)
    for inputs in (args, *others):
        found = call(program, path, inputs)
        assert found.status == 0, found
        expected = [each for each in live(*weights.values(), *inputs) if each is not None]
        for got, wanted in zip(found.outputs[0], expected, strict=True):
            wanted = wanted if isinstance(wanted, torch.Tensor) else torch.tensor(wanted)
            torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    return path, entry


def test_operators_of_torch_run_between_kernels(program, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(5, 8)
    shapes = ({0: Dim("batch", min=1, max=64)},)
    others = [(torch.randn(64, 8),), (torch.randn(8, 3).t(),)]
    path, _ = same_as_live(program, tmp_path, Net(), (x,), dynamic_shapes=shapes, others=others)
    found = call(program, path, [x], torch_library="/no/libtorch_cpu.so")
    assert found.status == LIBRARY and "ctk_open_with_torch" in found.message
    found = call(program, path, [x], calls=400)
    middle, end = map(int, re.findall(r"memory (\d+)", found.stderr))
    assert end - middle < 400, "memory is lost in each call"


def test_another_version_of_torch_is_refused(program, tmp_path):
    entry, weights, _ = entry_of(Net(), (torch.randn(5, 8),))
    with patch.object(library.c_shim, "version", lambda: "2.99.0"):
        path = package_of(tmp_path / "net.ctk", [entry], weights)
    found = call(program, path, [torch.randn(5, 8)])
    assert found.status == VERSION and "made with torch 2.99.0" in found.message


class Parts(nn.Module):
    """Lists, several results, optional arguments, numbers."""

    def forward(self, x, y):
        a, b, c = x.split([2, 1, 3], 1)
        values, at = x.topk(2, 1)
        ordered = torch.sort(y, dim=0, stable=True, descending=True)
        joined = torch.cat([b, torch.cumsum(c, 1)], 1)
        return a @ a.t(), values, at, ordered[0], joined, torch.baddbmm(y, y, y, beta=0.5, alpha=2)


class Picture(nn.Module):
    """A convolution, a pool and a normalization."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3, stride=2, bias=False), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(16, 3),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class Attention(nn.Module):
    """Embeddings, attention, a mask."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


class Numbers(nn.Module):
    """Sizes and numbers among inputs and outputs."""

    def forward(self, x, n: int, scale: float):
        return x * scale + n, x.shape[0] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Parts(), (torch.randn(4, 6), torch.randn(2, 3, 3))),
        (Parts(), (torch.randn(4, 6).double(), torch.randn(2, 3, 3).double())),
        (Parts(), (torch.randn(4, 6).bfloat16(), torch.randn(2, 3, 3).bfloat16())),
        (Picture().eval(), (torch.randn(2, 3, 16, 16),)),
        (Attention().eval(), (torch.randint(0, 11, (2, 5)),)),
        (Numbers(), (torch.randn(3), 2, 1.5)),
    ],
    ids=["parts", "float64", "bfloat16", "convolutions", "attention", "numbers"],
)
def test_models_give_the_bits_of_the_live_backend(program, tmp_path, model, args):
    torch.manual_seed(0)
    same_as_live(program, tmp_path, model, args)


@OWN_WARNING
def test_the_example_runs_and_gives_what_eager_gives(tmp_path):
    folder = ROOT / "examples" / "c_api"
    example = load_file(folder / "model.py")
    model = example.classifier()
    example.main(str(tmp_path / "model.ctk"))
    flags = shlex.split(ctk("c-api", "--cflags", "--sources", "--libs").out)
    command = ["cc", "-std=c11", *flags[:1], str(folder / "main.c"), *flags[1:], "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    done = subprocess.run(
        ["./main", "model.ctk", library], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    numbers = torch.arange(24) % 5 - 2.0
    wanted = [*model(numbers[:16].view(2, 8)), *model(numbers.view(3, 8))]
    told = re.findall(r"row \d: (.*)", done.stdout)
    assert told == [" ".join(f"{each:.4f}" for each in row.tolist()) for row in wanted]
    assert "(1 to 64) 8" in done.stdout


# --- packages as they are written -----------------------------------------------------------------


class Product(nn.Module):
    """One operator of torch, and no kernel."""

    def forward(self, x, y):
        return x @ y


class Counter(nn.Module):
    """Writes to an input and to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        self.count.add_(1)
        x.mul_(2)
        return x + self.count


@OWN_WARNING
def test_packages_of_aot_compile_run_from_c(program, tmp_path):
    torch.manual_seed(0)
    batch = Dim("batch", min=2, max=64)
    x = torch.randn(5, 8)
    cases = [
        (Net(), (x,), ({0: batch},), "keep"),
        (Net(), (x,), ({0: batch},), "leave_out"),
        (Product(), (x, torch.randn(8, 3)), None, "keep"),
        (Numbers(), (x, 2, 1.5), None, "keep"),
        (Counter(), (torch.randn(4),), None, "keep"),
    ]
    for number, (model, args, shapes, weights) in enumerate(cases):
        path = tmp_path / f"{number}.ctk"
        aot_compile(model, args, dynamic_shapes=shapes, path=path, weights=weights)
        package = load(path)
        bound = {k: v.detach() for k, v in model.state_dict().items()} if weights != "keep" else {}
        if bound:
            package.bind(bound)
        tensors = [each.clone() for each in args if isinstance(each, torch.Tensor)]
        found = call(program, path, tensors, weights=bound, calls=1)
        assert found.status == 0, found
        wanted = [e for e in tree_leaves(package(*args)) if isinstance(e, torch.Tensor)]
        for got, each in zip(found.outputs[0], wanted, strict=True):
            assert torch.equal(got, each)


@OWN_WARNING
def test_an_input_that_is_written_to_must_have_its_strides(program, tmp_path):
    path = tmp_path / "counter.ctk"
    aot_compile(Counter(), (torch.randn(4),), path=path)
    found = call(program, path, [torch.randn(8)[::2]])
    assert found.status == ARGUMENT and "writes to x" in found.message, found


class Spectrum(nn.Module):
    """Complex numbers between two operators of torch."""

    def forward(self, x):
        return torch.fft.rfft(x).abs()


class Lazy(nn.Module):
    """A negative that is in no memory."""

    def forward(self, x):
        return torch._neg_view(x) + 1


class Whole(nn.Module):
    """A product of integers with a `Scalar`."""

    def forward(self, x):
        return torch.addmm(x, x, x)


@pytest.mark.slow
@OWN_WARNING
@pytest.mark.parametrize(
    ("model", "x", "told"),
    [
        (Spectrum(), torch.randn(8), "complex64"),
        (Lazy(), torch.randn(8), "not what its memory holds"),
        (Whole(), torch.ones(2, 2, dtype=torch.int64), "a tensor of integers"),
    ],
)
def test_what_c_cannot_do_is_refused_and_never_wrong(program, tmp_path, model, x, told):
    path = tmp_path / "refused.ctk"
    aot_compile(model, (x,), path=path)
    found = call(program, path, [x])
    assert found.status == UNSUPPORTED and told in found.message, found
