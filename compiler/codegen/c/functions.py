"""Functions that generated C calls, as text; a file gets the ones it uses.

A function is named `NAME_TYPE`. In float32 they are polynomials without branches, so that compilers
vectorise the loops that call them. In float64 they are C's library. docs/numerics.md lists the
error of each, in ULP.
"""

import re
from collections.abc import Iterable

from ctk.compiler.codegen.c.float_functions import DECLARATIONS, FLOAT_FUNCTIONS
from ctk.compiler.codegen.c.functions_of_types import OF_TYPES
from ctk.compiler.codegen.c.transpose import TRANSPOSES

PREAMBLE = """\
#include <stdbool.h>
#include <stdint.h>

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FN static inline __attribute__((always_inline))
typedef uint16_t f16;
typedef uint16_t bf16;
"""

FUNCTIONS = {**OF_TYPES, **FLOAT_FUNCTIONS, **TRANSPOSES}

_WORD = re.compile(r"\b[a-z_]\w*\b")


def functions_for(texts: Iterable[str]) -> list[str]:
    """Return the text of the functions that some C code calls, each after its callees.

    Functions of C's library are declared first.
    """
    found: dict[str, str] = {}
    declared: set[str] = set()

    def add(text: str, own: str) -> None:
        for name in dict.fromkeys(_WORD.findall(text)):
            if name in FUNCTIONS and name not in found and name != own:
                add(FUNCTIONS[name], name)
                found[name] = FUNCTIONS[name]
            elif name in DECLARATIONS:
                declared.add(DECLARATIONS[name])

    for text in texts:
        add(text, "")
    return [*(["\n".join(sorted(declared))] if declared else []), *found.values()]
