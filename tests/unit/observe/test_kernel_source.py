"""The excerpt of a kernel: the store of a value and what flows into it, in C++ and in Triton."""

from torch.fx import Graph, GraphModule

from ctk.compiler.observe import KernelId, KernelRecord
from ctk.toolkit.compile_log.kernel_source import excerpt

TRITON = """\
@triton.jit
def triton_poi_fused_abs_add_0(in_ptr0, in_ptr1, out_ptr0, out_ptr1, xnumel, XBLOCK):
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (x0), xmask)
    tmp2 = tl_math.abs(tmp0)
    tmp3 = tmp1 + tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)
    tl.store(out_ptr1 + (x0), tmp3, xmask)
"""
CPP = """\
#include "prefix.h"
extern "C" void kernel(const float* in_ptr0, float* out_ptr0, float* out_ptr1)
{
    float tmp_acc0 = 0;
    for(int64_t x0=0; x0<8; x0+=1)
    {
        auto tmp0 = in_ptr0[x0];
        auto tmp1 = decltype(tmp0)(-tmp0);
        out_ptr1[x0] = tmp1;
        tmp_acc0 = tmp_acc0 + tmp0;
    }
    out_ptr0[0] = tmp_acc0;
}
"""


def record(source: str) -> KernelRecord:
    graph = GraphModule({}, Graph())
    stores = {"abs_1": "out_ptr0", "add": "out_ptr1", "sum_1": "out_ptr0", "neg": "out_ptr1"}
    identity = KernelId("inductor", "forward.kernel_0")
    return KernelRecord(identity, graph, ("abs_1", "add"), source, stores=stores)


def test_triton_leaves_out_what_another_value_needs():
    assert excerpt(record(TRITON), "abs_1").splitlines() == [
        "lowered/inductor:forward.kernel_0",
        "    4 tmp0 = tl.load(in_ptr0 + (x0), xmask)",
        "      ...",
        "    6 tmp2 = tl_math.abs(tmp0)",
        "      ...",
        "    8 tl.store(out_ptr0 + (x0), tmp2, xmask)",
    ]


def test_an_accumulator_is_followed_into_its_loop():
    shown = excerpt(record(CPP), "sum_1")
    assert "tmp_acc0 = tmp_acc0 + tmp0;" in shown
    assert "auto tmp0 = in_ptr0[x0];" in shown
    assert "out_ptr0[0] = tmp_acc0;" in shown
    assert "tmp1" not in shown


def test_a_value_with_no_known_store_shows_the_body():
    shown = excerpt(record(CPP), "somewhere_else")
    assert "auto tmp1 = decltype(tmp0)(-tmp0);" in shown
    assert "#include" not in shown


def test_no_source_is_no_excerpt():
    assert excerpt(record(""), "neg") == ""
