"""Kernels of Triton as data: plans for sizes, compiled for a GPU that need not be here."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from ctk.compiler.codegen.triton.kernel_data import bounds_of
from tests.helpers.project import ROOT

PROGRAM = """
import json, torch
from dataclasses import replace
from torch.fx.experimental.proxy_tensor import make_fx
from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.kernel_data import bounds_of, stored_kernel
from ctk.compiler.codegen.triton.variants import TritonOptions, Variants
from ctk.compiler.lowering.fuse import FusionOptions, fuse
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower

def rows(x):
    return x.softmax(-1), x.std(), x + 1

gm = make_fx(rows, tracing_mode="symbolic")(torch.randn(64, 63))
program = fuse(lower(gm), lambda *_: True, FusionOptions(min_outer=132))
told = []
for step in program.steps:
    if not isinstance(step, Kernel):
        continue
    kernel = replace(step, device=torch.device("cuda:0"))
    setting = KernelSetting(ahead_of_time=True)
    variants = Variants(kernel, program.buffers, TritonOptions(), setting)
    symbols = [each.name for each in variants.arguments.symbols]
    bounds = bounds_of(symbols, dict.fromkeys(symbols, 64), {})
    stored = stored_kernel(variants, bounds, 90)
    blobs = {name: len(blob) for name, blob in stored.blobs.items()}
    told.append([json.loads(json.dumps(stored.data)), blobs])
print(json.dumps(told))
"""


def test_bounds_grow_from_what_is_expected_to_the_largest() -> None:
    assert bounds_of([], {}, {}) == [()]
    found = bounds_of(["s0", "s1"], {"s0": 30, "s1": 5}, {"s0": 100, "s1": None})
    assert found[:3] == [(32, 8), (100, 128), (100, 2048)]
    assert found[-1] == (100, None)
    assert bounds_of(["s0"], {"s0": 60}, {"s0": 64}) == [(64,)]


@pytest.mark.slow
def test_each_plan_has_code() -> None:
    """In a process of its own: Triton compiles or interprets, never both."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, env=plain
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)
    splits = 0
    for data, blobs in kernels:
        bounds = [plan["bounds"] for plan in data["plans"]]
        assert bounds[-1] == [None] * len(data["symbols"])
        assert all(a != b for a, b in itertools.pairwise(bounds))
        for plan in data["plans"]:
            splits += len(plan["launches"]) > 1
            for launch in plan["launches"]:
                assert blobs[launch["code"]["cubin"]] > 0
                assert len(launch["types"]) == len(launch["arguments"])
    assert splits  # std of all is split where there are too few programs
