"""The digest of an oracle's function: tensors and graphs in it count by their contents."""

from collections.abc import Callable

import torch
from torch.fx import GraphModule

from ctk.compiler.usercode import identity
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.tensor_text import TensorTexts


def digest_of(function: Callable[..., object], *, by_file: bool = False) -> str:
    """Return the digest of a function, a method or a callable object.

    Args:
        function: Only read.
        by_file: Leave out the global names, which the text of its file determines.

    Raises:
        NotComparable: It holds a value that cannot be compared, such as a lock or an open file.
    """
    return identity.digest_of(function, _leaf, by_file=by_file)


def _leaf(value: object) -> str | None:
    match value:
        case GraphModule():
            return f"graph {fingerprint(Case(value, ()))}"
        case torch.Tensor():
            return TensorTexts(Digests().of).of(value)
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return repr(value)
        case _:
            return None
