"""Packages for GPUs: machine code for every size and alignment, called without Triton."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ctk
from ctk.compiler.errors import InputError
from tests.helpers.model_families import FAMILIES, dynamic_shapes
from tests.helpers.project import ROOT

pytestmark = pytest.mark.gpu


def exported(name: str) -> tuple[nn.Module, tuple[Tensor, ...], torch.export.ExportedProgram]:
    make, inputs = FAMILIES[name][:2]
    torch.manual_seed(0)
    model, args = make().eval().cuda(), tuple(each.cuda() for each in inputs(4))
    with torch.no_grad():
        program = torch.export.export(model, args, dynamic_shapes=dynamic_shapes(name))
    return model, args, program


@pytest.mark.parametrize("name", FAMILIES)
def test_one_package_serves_all_sizes(name: str, tmp_path: Path) -> None:
    model, _, program = exported(name)
    package = ctk.load(ctk.aot_compile(program, path=tmp_path / "p.ctk"))
    for batch in (2, 5, 8, 33, 300):
        args = tuple(each.cuda() for each in FAMILIES[name][1](batch))
        with torch.no_grad():
            torch.testing.assert_close(package(*args), model(*args), rtol=2e-5, atol=2e-5)


class Rows(nn.Module):
    """Rows that are kept, walked and split: what is made depends on their number and length."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return F.gelu(x).softmax(-1), x.sum(0), x.std()


def test_the_layout_fits_rows_from_few_to_many_and_short_to_long(tmp_path: Path) -> None:
    dims = {0: torch.export.Dim("rows", min=2), 1: torch.export.Dim("length", min=2)}
    path = ctk.aot_compile(
        Rows(), (torch.randn(64, 64).cuda(),), dynamic_shapes=(dims,), path=tmp_path / "p.ctk"
    )
    package = ctk.load(path)
    sizes = [(2, 2), (64, 64), (65, 1000), (3, 70_001), (20_000, 129), (4, 1 << 20)]
    for size in sizes:
        x = torch.randn(size).cuda()
        expected = Rows()(x.double())
        for got, want in zip(package(x), expected, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def test_inputs_that_are_not_aligned_are_right(tmp_path: Path) -> None:
    path = ctk.aot_compile(Rows(), (torch.randn(64, 64).cuda(),), path=tmp_path / "p.ctk")
    x = torch.randn(64 * 64 + 1).cuda()[1:].view(64, 64)
    assert x.data_ptr() % 16
    torch.testing.assert_close(ctk.load(path)(x), Rows()(x))


def test_what_is_on_the_cpu_is_refused(tmp_path: Path) -> None:
    path = ctk.aot_compile(Rows(), (torch.randn(64, 64).cuda(),), path=tmp_path / "p.ctk")
    with pytest.raises(InputError, match="x is on cpu; the package was compiled for cuda:0"):
        ctk.load(path)(torch.randn(64, 64))


CALL = """\
import sys
sys.modules["triton"] = None  # importing it raises
import torch, ctk
args, expected = torch.load(sys.argv[1] + ".inputs")
torch.testing.assert_close(ctk.load(sys.argv[1])(*args), expected, rtol=2e-5, atol=2e-5)
"""


def test_a_package_needs_neither_triton_nor_a_compiler(tmp_path: Path) -> None:
    model, args, program = exported("encoder")
    path = ctk.aot_compile(program, path=tmp_path / "p.ctk")
    with torch.no_grad():
        torch.save((args, model(*args)), f"{path}.inputs")
    command = [sys.executable, "-W", "ignore", "-c", CALL, path]
    root = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": root, "PATH": "", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_same_as_the_live_backend_where_sizes_are_fixed(tmp_path: Path) -> None:
    model, args, _ = exported("convnet")
    package = ctk.load(ctk.aot_compile(model, args, path=tmp_path / "p.ctk"))
    with torch.no_grad():
        apart = {"disable": ["fold_conv_batch_norm"]}  # an exported graph has no modules to fold
        live = torch.compile(model, backend="ctk", dynamic=False, options=apart)(*args)
    assert torch.equal(package(*args), live)
