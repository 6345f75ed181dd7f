"""Launches on a driver that only records them: no GPU is needed."""

import contextlib
import ctypes
import subprocess
import sys
import weakref
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from unittest import mock

import pytest
import torch

from ctk.compiler.codegen.triton import c_launcher_library
from ctk.compiler.codegen.triton.c_launcher_library import c_launcher
from ctk.compiler.runtime.cuda_kernels import CudaKernel, load_kernels
from ctk.compiler.torch_compat.gpu import cuda_launch, launch_hooks
from ctk.compiler.torch_compat.gpu.c_launcher import note_launch
from ctk.compiler.torch_compat.gpu.cuda_launch import CudaError, Loaded, MachineCode

DRIVER = r"""
#include <stdint.h>
#include <string.h>
uint64_t recorded[64];
int count, failure, launches, device, depth;
void (*inside)(void);
static int cuda_error(void) { int code = failure; if (code == 201) failure = 0; return code; }
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned b,
                   unsigned c, unsigned shared, void* stream, void** parameters, void** extra) {
    uint64_t head[8] = {(uint64_t)function, x, y * z, threads, b * c, shared, (uint64_t)stream,
                        extra == 0};
    int failed = cuda_error();
    if (failed) return failed;
    void (*first)(void) = inside;
    inside = 0;
    if (first) first();
    ++launches;
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
int cuCtxGetCurrent(void** context) { *context = (void*)99; return 0; }
int cuCtxGetDevice(int* found) { *found = depth ? 0 : device; return *found < 0 ? 201 : 0; }
int cuCtxPushCurrent_v2(void* context) { depth += context == (void*)99; return 0; }
int cuCtxPopCurrent_v2(void** context) { --depth; return 0; }
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

    def open_library(name, handle=None):
        return opened(library) if handle is None else opened(name, handle=handle)

    monkeypatch.setattr(ctypes, "PyDLL", open_library)
    cuda_launch._driver.cache_clear()
    cuda_launch.launch_functions.cache_clear()
    stream = namedtuple("Stream", "query")(lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
    found = opened(library)
    for name in ("failure", "launches", "device", "depth"):
        ctypes.c_int.in_dll(found, name).value = 0
    yield found
    cuda_launch._driver.cache_clear()
    cuda_launch.launch_functions.cache_clear()


def launched(driver):
    return Launch(*(ctypes.c_uint64 * 8).in_dll(driver, "recorded"))


def parameters(driver, count):
    return list((ctypes.c_uint64 * 64).in_dll(driver, "recorded"))[8 : 8 + count]


def number(driver, name):
    return ctypes.c_int.in_dll(driver, name).value


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


class Kernel:
    """A kernel of two tensors and two sizes, the launches of which go through C."""

    def __init__(self, launcher):
        self.loaded = Loaded(code(hidden=1), 0, ["*fp32", "*fp32", "i32", "i64"])
        self.by_python, self.prepared = [], []
        self.run = launcher.function(self.launch, self.prepare, 0, 2, 2)

    def launch(self, *arguments):
        self.by_python.append(arguments)
        if arguments[2] == 0:
            return
        pointers = [each.data_ptr() for each in arguments[:2]]
        if launch_hooks.launch(self.loaded, arguments[2], (*pointers, *arguments[2:])):
            raise RuntimeError("the launch failed")

    def prepare(self, *arguments):
        self.prepared.append(arguments)
        if arguments[2] == 0:
            return None
        return note_launch(self.loaded, arguments[2], arguments[2:], range(4))


@pytest.fixture
def kernel(driver):
    launcher = c_launcher()
    assert launcher is not None
    expect(driver, 5)
    return Kernel(launcher)


def test_c_launches_what_python_has_prepared(driver, kernel):
    x, y = torch.empty(40), torch.empty(40)
    for programs in (5, 6, 2**31, 5):
        for first, second in ((x, y), (y, x)):
            kernel.run(first, second, programs, -(2**40))
            assert launched(driver) == Launch(7, programs % 2**32, 1, 128, 1, 0, 77, 1)
            expected = [first.data_ptr(), second.data_ptr(), programs, 2**64 - 2**40, 0]
            assert parameters(driver, 5) == expected
    assert len(kernel.prepared) == 3  # each size once
    assert not kernel.by_python
    assert number(driver, "launches") == 8


def test_addresses_that_are_not_aligned_are_left_to_python(driver, kernel):
    x = torch.empty(40)
    kernel.run(x, x, 1, 1)
    kernel.run(x[1:], x, 1, 1)
    kernel.run(x, x[4:], 1, 1)
    assert [given[0].data_ptr() - x.data_ptr() for given in kernel.by_python] == [4]
    assert number(driver, "launches") == 3
    for _ in range(3):
        kernel.run(x, x, 0, 1)  # nothing to launch
    assert number(driver, "launches") == 3
    assert len(kernel.by_python) == 4
    assert len(kernel.prepared) == 2  # that Python launches is noted


def test_more_sizes_than_are_kept_are_right(driver, kernel):
    x = torch.empty(4)
    for _ in range(2):
        for size in range(1, 101):
            kernel.run(x, x, size, 3)
            assert launched(driver).programs == size
    assert len(kernel.prepared) == 200
    kernel.run(x, x, 100, 3)
    assert len(kernel.prepared) == 200
    assert number(driver, "launches") == 201


def test_another_device_and_a_thread_without_one(driver, kernel):
    x = torch.empty(4)
    kernel.run(x, x, 1, 1)
    for current in (3, -1):
        ctypes.c_int.in_dll(driver, "device").value = current
        kernel.run(x, x, 1, 1)
        assert number(driver, "depth") == 0
    assert number(driver, "launches") == 3
    assert not kernel.by_python


def test_errors_reach_python(driver, kernel):
    x = torch.empty(4)
    kernel.run(x, x, 1, 1)
    ctypes.c_int.in_dll(driver, "failure").value = 2
    with pytest.raises(RuntimeError, match="the launch failed"):
        kernel.run(x, x, 1, 1)
    ctypes.c_int.in_dll(driver, "failure").value = 0
    kernel.run(x, x, 1, 1)
    with pytest.raises(TypeError):
        kernel.run(x, x, 1, 1.5)
    with pytest.raises(AttributeError, match="data_ptr"):
        kernel.run(x, 3, 1, 1)
    with pytest.raises(OverflowError):
        kernel.run(x, x, 1, 2**64)
    with pytest.raises(IndexError):
        kernel.run()


@pytest.mark.parametrize("wrong", [lambda *_: "launch", lambda *_: b"launch", lambda *_: 3])
def test_what_python_prepares_is_checked(driver, kernel, monkeypatch, wrong):
    x = torch.empty(4)
    run = c_launcher().function(kernel.launch, wrong, 0, 2, 2)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            run(x, x, 1, 1)
    assert number(driver, "launches") == 0
    assert not kernel.by_python


class Unnumbered:
    """A tensor whose address is not one, or a stream that is none."""

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


@pytest.mark.parametrize(
    ("address", "error"), [(None, TypeError), (-16, OverflowError), (2**64, OverflowError)]
)
def test_an_address_or_a_stream_that_is_no_number_raises(
    driver, kernel, monkeypatch, address, error
):
    x = torch.empty(4)
    kernel.run(x, x, 1, 1)
    with pytest.raises(error):
        kernel.run(x, Unnumbered(address), 1, 1)
    kernel.run(x, Unnumbered(2**64 - 16), 1, 1)
    assert parameters(driver, 2)[1] == 2**64 - 16
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: address)
    other = Kernel(c_launcher())
    with pytest.raises(error):
        other.run(x, x, 1, 1)
    assert number(driver, "launches") == 2
    assert not kernel.by_python


@pytest.fixture
def hooks():
    """The hooks of Triton on launches, which are set back."""
    runtime = pytest.importorskip("triton").knobs.runtime
    names = ("launch_enter_hook", "launch_exit_hook")
    with contextlib.ExitStack() as stack:
        for name in names:
            chain = getattr(runtime, name)
            stack.enter_context(mock.patch.object(runtime, name, chain))
            stack.enter_context(mock.patch.object(chain, "calls", []))
        yield runtime


def chain_of(*calls):
    chain = pytest.importorskip("triton").knobs.HookChain()
    chain.calls.extend(calls)
    return chain


def test_hooks_of_triton_see_launches(driver, kernel, hooks):
    x, seen = torch.empty(4), []

    def see(metadata):
        seen.append((metadata.get(), number(driver, "launches")))

    def run():
        """Return the metadata that hooks saw at a launch, and the count of launches by Python."""
        before = number(driver, "launches")
        seen.clear()
        kernel.by_python.clear()
        kernel.run(x, x, 1, 1)
        assert number(driver, "launches") == before + 1
        known = {"name": "kernel", "function": 7, "stream": 77}
        assert all(given == known for given, _ in seen)
        return [launches - before for _, launches in seen], len(kernel.by_python)

    assert run() == ([], 0)
    for hook in (chain_of(see), see):  # in the place of Triton's
        hooks.launch_enter_hook = hook
        assert run() == ([0], 1)
        hooks.launch_exit_hook = hook
        assert run() == ([0, 1], 1)
        hooks.launch_enter_hook = None
        assert run() == ([1], 1)
        hooks.launch_exit_hook = None
        assert run() == ([], 1)
        hooks.launch_enter_hook, hooks.launch_exit_hook = chain_of(), chain_of()
        assert run() == ([], 0)
    hooks.launch_exit_hook.add(see)
    assert run() == ([1], 1)
    hooks.launch_exit_hook.remove(see)
    assert run() == ([], 0)


def test_triton_may_be_imported_after_a_kernel_is_loaded(driver, monkeypatch):
    knobs = pytest.importorskip("triton").knobs
    with mock.patch.dict(sys.modules):
        del sys.modules["triton.knobs"]
        expect(driver, 5)
        kernel = Kernel(c_launcher())
        x, seen = torch.empty(4), []
        kernel.run(x, x, 1, 1)
        monkeypatch.setitem(sys.modules, "triton.knobs", ModuleType("triton.knobs"))
        kernel.run(x, x, 1, 1)  # half imported, in another thread
        assert len(kernel.by_python) == 1
        monkeypatch.setitem(sys.modules, "triton.knobs", knobs)
        kernel.run(x, x, 1, 1)
        assert len(kernel.by_python) == 1
        monkeypatch.setattr(knobs.runtime, "launch_enter_hook", chain_of(seen.append))
        kernel.run(x, x, 1, 1)
        assert len(kernel.by_python) == 2
        assert len(seen) == 1


def test_a_launch_within_a_launch(driver, kernel):
    """A driver that launches, as a tool beneath it may, does not wait for its own launch."""
    x = torch.empty(4)
    kernel.run(x, x, 1, 1)
    inside = ctypes.PYFUNCTYPE(None)(lambda: kernel.run(x, x, 2, 1))
    ctypes.c_void_p.in_dll(driver, "inside").value = ctypes.cast(inside, ctypes.c_void_p).value
    kernel.run(x, x, 3, 1)
    assert number(driver, "launches") == 3
    assert launched(driver).programs == 3


def test_threads_launch_one_kernel(driver, kernel):
    x = torch.empty(4)

    def work(number):
        for size in range(1, 200):
            kernel.run(x, x, size, number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert number(driver, "launches") == 4 * 199
    assert not kernel.by_python


def test_a_launcher_dies_with_its_kernel(driver, kernel):
    kept = weakref.ref(kernel.loaded)
    x = torch.empty(4)
    kernel.run(x, x, 1, 1)
    run = kernel.run
    del kernel.run
    owner = weakref.ref(kernel)
    run(x, x, 1, 1)
    assert owner() is kernel
    assert kept() is not None
    before = sys.getrefcount(kernel)
    del run
    assert sys.getrefcount(kernel) < before


def test_without_a_compiler_kernels_are_launched_from_python(monkeypatch, caplog):
    c_launcher_library._compile.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    try:
        assert c_launcher_library.launcher_library() is None
        assert c_launcher_library.launcher_library() is None
    finally:
        c_launcher_library._compile.cache_clear()
    (record,) = caplog.records
    assert "kernels are launched from Python, which is slower" in record.message
    assert "no-such-compiler" in record.message


def test_a_stored_kernel_is_launched_from_c(driver):
    library = c_launcher_library.launcher_library()
    assert library is not None
    data = stored_kernel() | {"launcher": "launcher.so"}
    blobs = {"c": b"cubin", "launcher.so": library.binary}
    (launch,) = load_kernels([data], blobs)
    assert type(launch).__name__ == "builtin_function_or_method"
    expect(driver, 3)
    x, y = torch.empty(40), torch.empty(40)
    for _ in range(3):
        launch(x, y, 5)
        assert launched(driver).programs == 3
        assert parameters(driver, 3) == [y.data_ptr(), x.data_ptr(), 5]
    launch(x, y[1:], 5)
    assert parameters(driver, 3)[0] not in (y.data_ptr(), y[1:].data_ptr())
    with pytest.raises(RuntimeError, match=r"kernel add has no code for the sizes \[101\]"):
        launch(x, y, 101)


def test_a_launcher_of_another_machine_is_replaced_by_python(driver, caplog):
    data = stored_kernel() | {"launcher": "launcher.so"}
    (launch,) = load_kernels([data], {"c": b"cubin", "launcher.so": b"of another machine"})
    expect(driver, 3)
    x = torch.empty(40)
    launch(x, x, 5)
    assert launched(driver).programs == 3
    assert "kernels are launched from Python" in caplog.text
