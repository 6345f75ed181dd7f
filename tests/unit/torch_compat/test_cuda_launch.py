"""Launches on a driver that only records them: no GPU is needed."""

import contextlib
import ctypes
import subprocess
from collections import namedtuple

import pytest
import torch

from ctk.compiler.runtime.cuda_kernels import CudaKernel
from ctk.compiler.torch_compat.gpu import cuda_launch
from ctk.compiler.torch_compat.gpu.cuda_launch import CudaError, Loaded, MachineCode

DRIVER = r"""
#include <stdint.h>
#include <string.h>
uint64_t recorded[64];
int count, failure;
static int cuda_error(void) { int code = failure; if (code == 201) failure = 0; return code; }
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned b,
                   unsigned c, unsigned shared, void* stream, void** parameters, void** extra) {
    uint64_t head[8] = {(uint64_t)function, x, y * z, threads, b * c, shared, (uint64_t)stream,
                        extra == 0};
    int failed = cuda_error();
    if (failed) return failed;
    memcpy(recorded, head, sizeof(head));
    for (int i = 0; i < count; ++i) memcpy(&recorded[8 + i], parameters[i], 8);
    return 0;
}
int cuModuleLoadData(void** module, const char* image) { *module = (void*)image; return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = (void*)7;
    return strcmp(name, "kernel") ? 500 : 0;
}
int cuFuncSetAttribute(void* function, int name, int value) { recorded[63] = value; return 0; }
int cuGetErrorString(int code, const char** text) { *text = "a recorded error"; return 0; }
"""

Launch = namedtuple("Launch", "function programs ones threads other shared stream plain")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = ["cc", "-shared", "-fPIC", "driver.c", "-o", "driver.so"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "driver.so")


@pytest.fixture
def driver(library, monkeypatch):
    """The recording driver in the place of CUDA's, and torch as on a machine with a GPU."""
    opened = ctypes.PyDLL
    monkeypatch.setattr(ctypes, "PyDLL", lambda name: opened(library))
    cuda_launch._driver.cache_clear()
    stream = namedtuple("Stream", "query")(lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    found = opened(library)
    ctypes.c_int.in_dll(found, "failure").value = 0
    yield found
    cuda_launch._driver.cache_clear()


def launched(driver):
    return Launch(*(ctypes.c_uint64 * 8).in_dll(driver, "recorded"))


def parameters(driver, count):
    return list((ctypes.c_uint64 * 64).in_dll(driver, "recorded"))[8 : 8 + count]


def expect(driver, count):
    ctypes.c_int.in_dll(driver, "count").value = count


def code(name="kernel", shared=0, hidden=0):
    return MachineCode(name, b"cubin", shared, 128, hidden)


def test_a_launch_has_its_grid_stream_and_arguments(driver):
    loaded = Loaded(code(shared=64 << 10, hidden=2), 0, ["*fp32", "*bf16", "i32", "i64"])
    expect(driver, 6)
    address = 0x7FFF_FFFF_FFF0
    for size in (5, 2**40):
        assert loaded.launch(9, 77, (address, 16, 3, size)) == 0
        assert launched(driver) == Launch(7, 9, 1, 128, 1, 64 << 10, 77, 1)
        assert parameters(driver, 6) == [address, 16, 3, size, 0, 0]


def test_a_launch_without_arguments_and_one_with_too_many(driver):
    expect(driver, 0)
    assert Loaded(code(), 0, []).launch(1, 0, ()) == 0
    with pytest.raises(ValueError, match="same size"):
        Loaded(code(), 0, ["i32"]).launch(1, 0, (1, 2))


def test_errors_of_the_driver_are_named(driver):
    with pytest.raises(CudaError, match="the kernel other cannot be loaded: a recorded error"):
        Loaded(code("other"), 0, [])
    loaded = Loaded(code(), 0, ["i32"])
    expect(driver, 1)
    ctypes.c_int.in_dll(driver, "failure").value = 201  # a thread without a context: again
    assert loaded.launch(1, 0, (4,)) == 0
    assert parameters(driver, 1) == [4]
    ctypes.c_int.in_dll(driver, "failure").value = 2
    assert loaded.launch(1, 0, (4,)) == 2
    assert cuda_launch.error_text(2) == "a recorded error"


def stored_kernel():
    row = {
        "grid": [[{"size": "s0*4"}, 8]],
        "arguments": [1, 0, 2],
        "pointers": 2,
        "written": 1,
        "code": {"name": "kernel", "cubin": "c", "shared": 0, "threads": 128, "hidden": 0},
        "types": ["*fp32", "*fp32", "i32"],
    }
    plan = {"bounds": [100], "memory": [], "launches": [row]}
    return {"kernel": "add", "device": 0, "pointers": 2, "symbols": ["s0"], "plans": [plan]}


def test_a_stored_kernel_launches_its_programs(driver):
    kernel = CudaKernel(stored_kernel(), {"c": b"cubin"})
    expect(driver, 3)
    x, y = torch.empty(40), torch.empty(40)
    kernel.launch(x, y, 5)
    assert launched(driver).programs == 3
    assert launched(driver).stream == 77
    assert parameters(driver, 3) == [y.data_ptr(), x.data_ptr(), 5]
    kernel.launch(x, y[1:], 5)  # not at a multiple of 16 bytes: the launch gets a copy
    first, second, _ = parameters(driver, 3)
    assert first % 16 == 0
    assert first not in (y.data_ptr(), y[1:].data_ptr())
    assert second == x.data_ptr()
    with pytest.raises(RuntimeError, match=r"kernel add has no code for the sizes \[101\]"):
        kernel.launch(x, y, 101)
    ctypes.c_int.in_dll(driver, "failure").value = 2
    with pytest.raises(RuntimeError, match="kernel add: launch failed: a recorded error"):
        kernel.launch(x, y, 5)
