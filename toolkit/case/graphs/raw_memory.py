"""Operators that only a trusted case may call: they read raw memory, or reach outside the process.

A graph that Dynamo captures runs without them but for rare programs; those say `--trust`. Refused:

1. Libraries of torch's own other than those that hold a program's mathematics (`torch_compat`
   names them): `inductor` (memory by offset), `mkldnn` and `quantized` (packed pointers), `c10d`
   and `symm_mem` (other processes), `profiler`, `debugprims` (files), test operators.
2. Operators with an argument that is no value: a storage, a stream, an object of C++, a callback.
3. By name: operators that give a tensor other memory, or that trust indices without a look.

What it does not do: it makes no sandbox of torch. A kernel that takes indices from a tensor and
does not check them is a bug of torch (`max_pool2d_with_indices_backward` of 2.13 is one).
"""

import functools
import re
from collections.abc import Mapping

from ctk.compiler.torch_compat.fx import operators

_NAMES: Mapping[str, str] = {
    r"set_?|set_data|_?resize_?|_resize_output_?|_?resize_as(_sparse)?_?|sparse_resize\w*|"
    r"_copy_from_and_resize|resize_storage_bytes_": "gives a tensor memory that nobody wrote",
    r"_unsafe_index\w*|_unsafe_masked_index\w*|_index_put_impl_?": "reads without checking indices",
    r"(_?sparse_(coo|csr|csc|bsr|bsc|compressed)_tensor)\w*|_coalesced_?|"
    r"_nested_view_from_buffer\w*": "makes a tensor of indices that nobody checks",
    r"_?to_mkldnn\w*|_mkldnn_\w*|mkldnn_reorder_\w*|fbgemm_\w*|quantized_(lstm|gru|rnn)\w*|"
    r"_wrapped_\w*prepack\w*|_reinterpret_tensor|_alloc_from_pool": "works on packed pointers",
    r"_cufft_(clear|set)\w*|record_stream|_print|_test_\w*|_foobar\w*": (
        "works on the process, not on values"
    ),
}
_BY_NAME = tuple((re.compile(pattern), reason) for pattern, reason in _NAMES.items())

_NO_VALUES = re.compile(r"Storage|Stream|__torch__|Future|Await|RRef|AnyClassType|AnyEnumType")


@functools.cache
def why_refused(op: str, target: str) -> str | None:
    """Return why a case that is not trusted may not call something; None if it may.

    Args:
        op: The op of the node: `call_function`, `call_method`; others call nothing by name.
        target: Its target as a graph in JSON names it (`torch.ops.aten.set_.source_Tensor`).
    """
    if op not in ("call_function", "call_method") or ":" in target:
        return None
    parts = target.split(".")
    if target.startswith("torch.ops."):
        return _why_op(parts[2:])
    return _by_name(parts[-1]) if op == "call_method" or parts[0] == "torch" else None


def _why_op(parts: list[str]) -> str | None:
    if len(parts) < 2 or parts[0] == "higher_order":
        return None
    namespace, name = parts[:2]
    if namespace in operators.TORCH_NAMESPACES:
        return f"is of torch's library {namespace!r}, which is not for the mathematics of programs"
    kinds = {kind for _, kind in operators.declared_arguments("::".join(parts[:2]))}
    odd = sorted(kind for kind in kinds if _NO_VALUES.search(kind))
    if odd:
        return f"takes a {odd[0]}, which is no value"
    return _by_name(name) if namespace in ("aten", "prims") else None


def _by_name(name: str) -> str | None:
    return next((reason for pattern, reason in _BY_NAME if pattern.fullmatch(name)), None)
