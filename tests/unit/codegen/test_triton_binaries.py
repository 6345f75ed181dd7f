"""Functions of Triton that differ in names alone have one identity; others have their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.compiler.codegen.triton.binaries import canonical
from tests.helpers.project import ROOT

SOURCE = '''\
@triton.jit
def kernel_{name}({x}, {y}, s0):
    """Compute {name}."""
    XBLOCK: tl.constexpr = 256
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    v0 = tl.load({x} + xindex, mask=xindex < s0, other=0.0)
    v1 = device.exp(v0)  # {name}
    tl.store({y} + xindex, v1, mask=xindex < s0)  # {name}
'''


def source(name: str, x: str, y: str) -> str:
    return SOURCE.format(name=name, x=x, y=y)


def test_names_and_comments_do_not_count() -> None:
    text = canonical(source("exp_7", "x_1", "y_1"))
    assert text == canonical(source("exp", "primals_2", "exp"))
    assert "exp_7" not in text
    assert "device.exp(v0)" in text


def test_the_order_of_arguments_counts() -> None:
    straight = source("k", "x", "y")
    crossed = straight.replace("(x, y, s0)", "(y, x, s0)")
    assert canonical(straight) != canonical(crossed)


@pytest.mark.parametrize("name", ["exp", "mask", "other", "device"])
def test_an_argument_may_have_the_name_of_a_function_or_keyword(name: str) -> None:
    text = canonical(source("k", name, "y"))
    assert "mask=xindex" in text
    assert "other=0.0" in text
    assert text != canonical(source("k", name, "y").replace("device.exp", "device.log"))


def test_texts_within_quotes_stay() -> None:
    line = "    tl.store(y, v0, eviction_policy='x')  # 'y'\n"
    kept = canonical(source("k", "x", "y") + line)
    assert "eviction_policy='x'" in kept
    assert "# 'y'" not in kept


PROGRAM = """
import sys
from pathlib import Path
from unittest.mock import patch
import triton.language as tl
from ctk.compiler.codegen.triton import binaries, device
from ctk.compiler.torch_compat.gpu import triton_launch
from tests.unit.codegen.test_triton_binaries import source

head = "import triton\\nimport triton.language as tl\\n"
head += "from ctk.compiler.codegen.triton import device\\n\\n"

def code(name, x="x", capability=90, **options):
    given = {"num_warps": 4, "num_stages": 1, **options}
    function = head + source(name, x, "y"), f"kernel_{name}", ("*fp32", "*fp32", "i32")
    aligned = (True, True, False)
    return binaries.machine_code(binaries.Function(*function, aligned, capability, given))

compiled = triton_launch.compile_function
with patch.object(triton_launch, "compile_function", side_effect=compiled) as calls:
    first = code("a")
    assert code("b", x="z") is first and calls.call_count == 1
    assert code("a", num_warps=8) != first and calls.call_count == 2
    assert " at 0x" not in binaries._device_functions(), "it differs in another process"
    assert (first.threads, first.hidden, first.name) == (128, 2, "kernel_a")
    binaries.forget()
    assert code("c") == first and calls.call_count == 2  # of the disk
    binaries.forget()
    with patch.object(binaries, "_device_functions", return_value="others"):
        code("a")
    assert calls.call_count == 3
    binaries.forget()
    for number in (1, 1, 2):  # a constant that functions on the device may use
        with patch.object(device, "CONSTANT", tl.constexpr(number), create=True):
            code("a")
    assert calls.call_count == 5
    try:
        code("broken", x="tl")
    except Exception:
        pass
    else:
        raise AssertionError("it compiled")
    assert not binaries._pending
"""


def test_equal_functions_are_compiled_once(tmp_path: Path) -> None:
    """In a process of its own: Triton compiles or interprets, never both."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
