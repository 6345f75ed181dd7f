"""The targets and operators that need no trust: torch's own, by explicit lists.

Any other target needs trust: `tvm` and `openxla` import packages, the `dynamo_minifier` backends
write files, and a name may come from any installed package.
"""

from collections.abc import Callable, Mapping

from ctk.toolkit.case.trust.ctk_options import is_harmless as is_harmless_for_ctk
from ctk.toolkit.case.trust.ctk_options import words
from ctk.toolkit.case.trust.inductor_options import is_harmless as is_harmless_for_inductor

HarmlessOption = Callable[[str, object], bool]
"""Whether a target's option may be set to a value without trust."""


def takes_none(_key: str, _value: object) -> bool:
    """Allow no option."""
    return False


HARMLESS: Mapping[str, HarmlessOption] = {
    "ctk": is_harmless_for_ctk,
    "inductor": is_harmless_for_inductor,
    "torchscript": takes_none,
    "eager": takes_none,
    "eager_noexcept": takes_none,
    "eager_debug": takes_none,
    "pre_dispatch_eager": takes_none,
    "invoke_subgraph": takes_none,
    "aot_eager": takes_none,
    "aot_eager_decomp_partition": takes_none,
    "aot_eager_decomp_partition_crossref": takes_none,
    "aot_eager_decomp_partition_with_mode": takes_none,
    "aot_eager_default_partitioner": takes_none,
    "aot_ts": takes_none,
    "ts": takes_none,
    "cudagraphs": takes_none,
}
"""The targets that need no trust, and the check of their options."""

TORCH_NAMESPACES = frozenset(
    words(
        """
        _c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native _quantized aten
        c10d_functional debugprims export flex_lib fsdp higher_order inductor inductor_prims mkl
        mkldnn mkldnn_prepacked onednn prim prims quantization quantized quantized_decomposed
        rngprims sparse static_runtime streams
        """
    )
)
"""The namespaces of operators that torch itself registers."""
