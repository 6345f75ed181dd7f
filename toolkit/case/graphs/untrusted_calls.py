"""Check a graph that is not trusted: the operators that it calls, the texts that it passes.

Refused are operators that read raw memory or reach outside the process. Dynamo captures them only
from rare programs, whose cases need `--trust`:

1. Libraries of torch other than those with the mathematics of programs (`torch_compat` lists them):
   `inductor` (memory by offset), `mkldnn` and `quantized` (packed pointers), `c10d` and `symm_mem`
   (other processes), `profiler`, `debugprims` (files), test operators.
2. Operators with an argument other than a value: a storage, a stream, an object of C++, a callback.
3. By name: operators that give a tensor other memory, or that do not check indices.

An operator counts wherever it occurs: `with_effects(token, aten._print.default, "x")` calls
`aten._print`.

Compilers paste texts into generated programs, not always escaped: Inductor writes
`throw std::runtime_error("MESSAGE")` into C++, and with `cpp_wrapper` any text of an operator. So a
text without trust has no character that could end a string, a line or a comment there:

    einsum("bij,bjk->bik", ...)             words: allowed everywhere
    _assert_async(x, "it's too small")      a message: allowed where torch expects one
    _assert_async(x, '"); system("id'       refused: it ends the string
    operator.mod("%c", 34)                  refused: other texts could be computed from it

This is not a sandbox of torch: a kernel that reads indices from a tensor without a check is a bug
of torch (`max_pool2d_with_indices_backward` of 2.13 is one).
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from ctk.compiler.errors import TrustError
from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.graphs.callable_places import leaves
from ctk.toolkit.case.graphs.callables import target_to_name

_NAMES: Mapping[str, str] = {
    r"set_?|set_data|_?resize_?|_resize_output_?|_?resize_as(_sparse)?_?|sparse_resize\w*|"
    r"_copy_from_and_resize|resize_storage_bytes_": "gives a tensor unwritten memory",
    r"_unsafe_index\w*|_unsafe_masked_index\w*|_index_put_impl_?": "reads without checking indices",
    r"(_?sparse_(coo|csr|csc|bsr|bsc|compressed)_tensor)\w*|_coalesced_?|"
    r"_nested_view_from_buffer\w*": "makes a tensor of unchecked indices",
    r"_?to_mkldnn\w*|_mkldnn_\w*|mkldnn_reorder_\w*|fbgemm_\w*|quantized_(lstm|gru|rnn)\w*|"
    r"_wrapped_\w*prepack\w*|_reinterpret_tensor|_alloc_from_pool": "works on packed pointers",
    r"_cufft_(clear|set)\w*|record_stream|_print|_test_\w*|_foobar\w*": (
        "works on the process, not on values"
    ),
}
_BY_NAME = tuple((re.compile(pattern), reason) for pattern, reason in _NAMES.items())

_NO_VALUES = re.compile(r"Storage|Stream|__torch__|Future|Await|RRef|AnyClassType|AnyEnumType")

_WORDS = re.compile(r"[\w .,:;<>=+\-]*", re.ASCII)
_MESSAGE_TAKERS = re.compile(r"(_functional)?_assert\w*|_check\w*|_saved_tensors_hooks_disable")
_ENDS_A_STRING = re.compile(r"[\"\\`]|''|\?\?")
"""`''` may become three, the end of a kernel's text in Python; `??/` was a backslash in C++."""


def check_untrusted(op: str, target: str, values: Sequence[object], where: str) -> None:
    """Check a node, or an attribute, of a graph that is not trusted.

    Args:
        op: The op of the node; `get_attr` for an attribute.
        target: Its target as JSON names it.

    Raises:
        TrustError: It makes a call, or passes a text, that needs trust.
    """
    found = list(leaves(values))
    called = [target, *(target_to_name(leaf) for leaf in found if operators.kind_of(leaf))]
    reasons = ((name, why_refused(op, name)) for name in called)
    refused = next((f"{name} {reason}" for name, reason in reasons if reason), None)
    text = unsafe_text(op, target, found)
    if refused is None and text is not None:
        refused = f"{target} gets {quote_value(text)}, a text that could be read as a program"
    if refused is not None:
        raise TrustError(
            f"{where}: {refused}; if you trust the case: --trust, or load_case(folder, trust=True)"
        )


@functools.cache
def why_refused(op: str, target: str) -> str | None:
    """Return why a call needs trust; None if it does not.

    Args:
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
        return f"takes a {odd[0]}, which is not a value"
    return _by_name(name) if namespace in ("aten", "prims") else None


def _by_name(name: str) -> str | None:
    return next((reason for pattern, reason in _BY_NAME if pattern.fullmatch(name)), None)


def unsafe_text(op: str, target: str, leaves: Iterable[object]) -> str | None:
    """Return the first text among a node's arguments that needs trust."""
    takes_message = op == "call_function" and _takes_message(target)
    texts = (leaf for leaf in leaves if isinstance(leaf, str))
    return next((text for text in texts if not _is_harmless(text, takes_message)), None)


def _takes_message(target: str) -> bool:
    """Return whether a function of torch uses its text only as the message of an error."""
    return target.startswith("torch.") and any(
        _MESSAGE_TAKERS.fullmatch(part) for part in target.split(".")
    )


def _is_harmless(text: str, is_message: bool) -> bool:
    if _WORDS.fullmatch(text):
        return True
    return is_message and text.isprintable() and not _ENDS_A_STRING.search(text)
