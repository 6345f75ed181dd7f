"""The text of a message without the parts that change from candidate to candidate.

    mul_5: index 17 of [2, 3] at 0x7f31aa        mul: index # of [#] at #

Numbers and addresses become `#`, and so do lists of them. The number at the end of a node's name is
dropped with its underscore: `mul_5` and `mul` may be the same node of two candidates.
"""

import re

_NAME_NUMBER = re.compile(r"(?<=[A-Za-z])_\d+\b")
_NUMBER = re.compile(
    r"\b0x[0-9a-fA-F]+\b"  # an address
    r"|\b[su]\d+\b"  # a symbolic size
    r"|\b\d+(x\d+)+\b"  # a shape: 2x3
    r"|(?<![\w.])[-+]?\d+(\.\d*)?([eE][-+]?\d+)?(?!\w)"
)
_SEVERAL = re.compile(r"#(\s*[,x]\s*#)+")


def normalize_message(message: str) -> str:
    """Return a message with `#` for its numbers and addresses.

    >>> normalize_message("mul_5: index 17 of [2, 3] at 0x7f31aa, float32")
    'mul: index # of [#] at #, float32'
    """
    text = _NUMBER.sub("#", _NAME_NUMBER.sub("", message))
    return " ".join(_SEVERAL.sub("#", text).split())
