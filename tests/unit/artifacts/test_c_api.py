"""Packages called from C: a program without Python, against eager and against the live backend."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim

from ctk.compiler.artifacts.container import open_container, write
from ctk.compiler.packages.c_wrapper.entries import CEntry
from ctk.compiler.packages.input_guard import Condition
from ctk.compiler.sizes.index import as_index
from ctk.compiler.sizes.index import symbol as make_symbol
from tests.helpers.c_packages import entry_of, package_of
from tests.helpers.c_program import call

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/proc/self/fd").exists(), reason="needs cc and Linux"
)

ARGUMENT, CORRUPT, VERSION, MACHINE, LIBRARY, UNSUPPORTED, WEIGHT = 1, 3, 4, 5, 6, 7, 8
INDEX, OPERATOR = 10, 11


class Scale(nn.Module):
    """Kernels only: no operator of torch."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x, table, at):
        return torch.tanh(x * self.weight).sum(0), table[at] * 2, (x + 1).softmax(1)


def scale_inputs(batch):
    return [torch.randn(batch, 8), torch.randn(7, 3), torch.tensor([0, 6, 3, 3])]


@pytest.fixture(scope="module")
def scale(tmp_path_factory):
    """A package of kernels: its path, its entry point, its weights, the live callable."""
    batch = Dim("batch", min=2, max=64)
    model = Scale()
    made = entry_of(model, tuple(scale_inputs(5)), dynamic_shapes=({0: batch}, None, None))
    path = package_of(tmp_path_factory.mktemp("scale") / "scale.ctk", [made[0]], made[1])
    return path, *made


def test_kernels_run_without_torch_and_give_the_bits_of_the_live_backend(program, scale):
    path, _, weights, live = scale
    for batch in (2, 5, 64):
        inputs = scale_inputs(batch)
        own = {"OMP_NUM_THREADS": str(batch)}
        found = call(program, path, inputs, torch_library="-", calls=2, threads=3, environment=own)
        expected = live(*weights.values(), *inputs)
        for outputs in found.outputs:
            for got, wanted in zip(outputs, expected, strict=True):
                assert got.dtype == wanted.dtype and torch.equal(got, wanted)


def test_inputs_may_have_any_strides(program, scale):
    path, _, weights, live = scale
    x, table, at = scale_inputs(6)
    strided = [x.t().contiguous().t(), table.expand(7, 3), at[::2], torch.randn(3).expand(7, 3)]
    inputs = [strided[0], strided[3], at]
    (outputs,) = call(program, path, inputs, torch_library="-").outputs
    for got, wanted in zip(outputs, live(*weights.values(), *inputs), strict=True):
        assert torch.equal(got, wanted)


def test_each_wrong_input_is_refused_with_its_name(program, scale):
    path = scale[0]
    x, table, at = scale_inputs(5)
    cases = {
        "dimension 0 of x is 1, and the package is for 2 to 64 (s": [x[:1], table, at],
        "dimension 0 of x is 65, and the package is for 2 to 64": [torch.randn(65, 8), table, at],
        "dimension 1 of x is 9, and must be 8": [torch.randn(5, 9), table, at],
        "x has 1 dimensions, and must have 2": [x[0], table, at],
        "x is float64, and must be float32": [x.double(), table, at],
        "at is int32, and must be int64": [x, table, at.int()],
        "has 3 inputs and 3 outputs, and was given 2 and 3": [x, table],
    }
    for message, inputs in cases.items():
        found = call(program, path, inputs, torch_library="-")
        assert found.status == ARGUMENT and message in found.message, found


def test_an_index_out_of_range_is_an_error_in_the_words_of_eager(program, scale):
    x, table, at = scale_inputs(5)
    at[2] = 7
    found = call(program, scale[0], [x, table, at], torch_library="-")
    assert found.status == INDEX
    assert "index 7 is out of bounds for a dimension of size 7" in found.message


def test_a_file_that_is_not_as_it_was_written_is_refused(program, scale, tmp_path):
    whole = bytearray(scale[0].read_bytes())
    places = [*range(0, len(whole), len(whole) // 40), *range(len(whole) - 130, len(whole), 5)]
    for number, place in enumerate(places):
        broken = bytearray(whole)
        broken[place] ^= 1 << number % 8
        path = tmp_path / "broken.ctk"
        path.write_bytes(broken)
        found = call(program, path, [], torch_library="-")
        assert found.status in (CORRUPT, VERSION), (place, found)
    for broken in (
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:10],
        b"",
        whole + b"\0",
        b"PK" * 99,
    ):
        path.write_bytes(broken)
        assert call(program, path, [], torch_library="-").status == CORRUPT
    found = call(program, tmp_path / "none.ctk", [], torch_library="-")
    assert found.status == 2 and "No such file" in found.message


def rewritten(package, path, change):
    """Write a package with another library, well sealed."""
    members = {name: bytes(data) for name, data in open_container(package).members.items()}
    members["c/package.so"] = change(members["c/package.so"])
    write(path, members)
    return path


def test_another_processor_or_version_is_refused(program, scale, tmp_path):
    path, entry, weights, _ = scale

    def for_arm(library):
        return library[:18] + struct.pack("<H", 183) + library[20:]

    other = rewritten(path, tmp_path / "arm.ctk", for_arm)
    found = call(program, other, [], torch_library="-")
    assert found.status == MACHINE and "another kind of processor" in found.message
    other = package_of(tmp_path / "new.ctk", [entry], weights, features=("sse2", "avx2048"))
    found = call(program, other, [], torch_library="-")
    assert found.status == MACHINE and "avx2048" in found.message and "sse2" not in found.message
    with patch("ctk.compiler.packages.c_wrapper.description_tables.ABI_VERSION", 99):
        other = package_of(tmp_path / "abi.ctk", [entry], weights)
    found = call(program, other, [], torch_library="-")
    assert found.status == VERSION and "version 99 of ctk.h" in found.message
    write(tmp_path / "python.ctk", {"meta.json": b"{}"})
    found = call(program, tmp_path / "python.ctk", [], torch_library="-")
    assert found.status == UNSUPPORTED and "ctk.load" in found.message


def test_weights_that_were_left_out_are_bound_and_checked(program, scale, tmp_path):
    _, entry, weights, live = scale
    path = package_of(tmp_path / "bare.ctk", [entry], weights, keep_weights=False)
    inputs = scale_inputs(4)
    found = call(program, path, inputs, torch_library="-")
    assert found.status == WEIGHT and "ctk_set_weight" in found.message
    for wrong in (torch.zeros(9), torch.zeros(8).double(), torch.zeros(2, 4)):
        found = call(program, path, inputs, torch_library="-", weights={"weight": wrong})
        assert found.status == ARGUMENT and "weight" in found.message
    found = call(program, path, inputs, torch_library="-", weights={"wait": torch.zeros(8)})
    assert found.status == ARGUMENT and "no weight wait" in found.message
    own = torch.randn(16)[::2]
    (outputs,) = call(program, path, inputs, torch_library="-", weights={"weight": own}).outputs
    for got, wanted in zip(outputs, live(own, *inputs), strict=True):
        assert torch.equal(got, wanted)


def test_conditions_on_sizes_are_checked(program, scale, tmp_path):
    _, entry, weights, _ = scale
    (symbol,) = entry.symbols
    size = make_symbol(symbol)
    wanted = (Condition(size % 2, "==", as_index(0)), Condition(size + 1, "<", as_index(9)))
    path = package_of(tmp_path / "even.ctk", [replace(entry, conditions=wanted)], weights)
    assert call(program, path, scale_inputs(4), torch_library="-").outputs
    for batch, told in ((3, "% 2) == 0"), (8, "1 < 9")):
        found = call(program, path, scale_inputs(batch), torch_library="-")
        assert found.status == ARGUMENT and told in found.message


def test_an_entry_that_c_cannot_run_says_why(program, scale, tmp_path):
    _, entry, weights, _ = scale
    other = CEntry(
        "other", entry.schedule, entry.kernels, entry.inputs, entry.outputs, entry.given,
        symbols=entry.symbols, refusal="it calls a Python function",
    )  # fmt: skip
    path = package_of(tmp_path / "two.ctk", [entry, other], weights)
    found = call(program, path, scale_inputs(3), entry="other", torch_library="-")
    assert found.status == UNSUPPORTED and "it calls a Python function" in found.message
    assert call(program, path, scale_inputs(3), torch_library="-").outputs


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.slow
def test_no_memory_is_lost_or_read_wrongly(program, scale):
    checked = ("valgrind", "-q", "--leak-check=full", "--error-exitcode=99")
    for inputs in (scale_inputs(5), scale_inputs(5)[:2]):
        found = call(program, scale[0], inputs, torch_library="-", calls=3, before=checked)
        assert "==" not in found.stderr, found.stderr
