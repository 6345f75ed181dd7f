import gc
import subprocess
import weakref

import pytest
import torch

from ctk.compiler.codegen.c.toolchain import command_with
from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime.c_kernels import Check, CKernel, load_kernels, load_library

SOURCE = """
#include <stdint.h>
static int64_t fault[3];
void read_last_fault(int64_t *out) { for (int i = 0; i < 3; i++) out[i] = fault[i]; }
void fill(int64_t *out, int64_t n) { for (int64_t i = 0; i < n; i++) out[i] = i * i; }
int64_t check(int64_t *out, int64_t n) {
    if (n < 4) return 0;
    fault[0] = n - 3; fault[1] = n; fault[2] = 4;
    return fault[0];
}
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.c").write_text(SOURCE)
    command = [*command_with([]), "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"]
    subprocess.run(command, check=True)
    return (folder / "k.so").read_bytes()


FILL = CKernel("fill", 1, 1, (), "kernel_0")
CHECK = CKernel(
    "check", 1, 1, (Check("position", node="embedding"), Check("store", "buf", "add")), "kernel_1"
)


def test_a_kernel_comes_back_with_its_library_once(binary):
    kernels = [each.stored("k.so", binary) for each in (FILL, CHECK, FILL)]
    fill, _, again = load_kernels([each.data for each in kernels], kernels[0].blobs)
    assert vars(fill)["library"] is vars(again)["library"]
    out = torch.zeros(5, dtype=torch.int64)
    fill(out.data_ptr(), 5)
    assert out.tolist() == [0, 1, 4, 9, 16]


def test_a_check_that_fails_says_what_and_where(binary):
    (check,) = load_kernels([CHECK.stored("k.so", binary).data], {"k.so": binary})
    check(0, 3)
    with pytest.raises(IndexError, match=r"index 4 is out of bounds .* size 4 \(node embedding"):
        check(0, 4)
    with pytest.raises(RuntimeError, match=r"kernel_1 writes element 5 of the buffer buf"):
        check(0, 5)


def test_a_library_lives_as_long_as_a_kernel_of_it(binary):
    own = binary + b"\0"  # a library that no other test holds
    first, second = FILL.launcher(load_library(own)), FILL.launcher(load_library(own))
    library = weakref.ref(vars(first)["library"])
    del first
    gc.collect()  # a function of ctypes holds itself
    assert library() is vars(second)["library"]
    del second
    gc.collect()
    assert library() is None
    out = torch.zeros(2, dtype=torch.int64)
    FILL.launcher(load_library(own))(out.data_ptr(), 2)
    assert out.tolist() == [0, 1]


@pytest.mark.parametrize("data", [b"", b"\x7fELF no library", b"text" * 1000])
def test_what_is_no_library_is_refused(data):
    with pytest.raises(ArtifactError, match="compiled kernels cannot be loaded"):
        load_library(data)


def test_a_function_that_is_not_there_is_refused_by_name(binary):
    with pytest.raises(ArtifactError, match="a library has no function nothing"):
        CKernel("nothing", 1, 0, (), "k").launcher(load_library(binary))
