"""What the code of this machine's compiler may ask of a processor."""

from __future__ import annotations

import re
from pathlib import Path

_USED = re.compile(
    r"sse\d?(_\d)?|ssse3|pni|avx\w*|fma|f16c|bmi\d|abm|lzcnt|popcnt|movbe|v?aes|v?pclmulqdq|sha_ni"
    r"|gfni|adx|amx_\w+"
)
"""Features for which compilers generate code, as Linux calls them."""


def processor_features() -> tuple[str, ...]:
    """Return the features of this processor that `-march=native` uses, as /proc/cpuinfo has them.

    None where the system does not tell: then nothing is required.
    """
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return ()
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, words = line.partition(":")
        if name.strip() == "flags":
            return tuple(sorted({word for word in words.split() if _USED.fullmatch(word)}))
        if name.strip() == "Features":  # ARM lists what programs may use, and little else
            return tuple(sorted(set(words.split())))
    return ()
