"""Functions that generated C calls, as text; a file gets the ones it uses.

A function is named `NAME_TYPE`. Functions of floats are polynomials without branches, so that
compilers vectorise the loops that call them; rare arguments, of which polynomials are wrong, go to
C's library (`function_texts.rare_case`). The polynomials are minimax fits of the relative error on
the intervals that the comments name. docs/numerics.md lists the error of each function, in ULP.
"""

import re
from collections.abc import Iterable

from ctk.compiler.codegen.c.attention_functions import ATTENTION_FUNCTIONS
from ctk.compiler.codegen.c.functions.conversions import CONVERSIONS
from ctk.compiler.codegen.c.functions.error_functions import ERROR_FUNCTIONS
from ctk.compiler.codegen.c.functions.exponentials import EXPONENTIALS
from ctk.compiler.codegen.c.functions.gammas import GAMMAS
from ctk.compiler.codegen.c.functions.logarithms import LOGARITHMS
from ctk.compiler.codegen.c.functions.powers import POWERS
from ctk.compiler.codegen.c.functions.quotients import QUOTIENTS
from ctk.compiler.codegen.c.functions.trigonometry import TRIGONOMETRY
from ctk.compiler.codegen.c.functions_of_types import OF_TYPES
from ctk.compiler.codegen.c.half_rows import HALF_ROWS
from ctk.compiler.codegen.c.transpose_functions import TRANSPOSES

PREAMBLE = """\
#include <stdbool.h>
#include <stdint.h>

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FN static inline __attribute__((always_inline))
typedef uint16_t f16;
typedef uint16_t bf16;
"""

FUNCTIONS = {
    **OF_TYPES,
    **EXPONENTIALS,
    **LOGARITHMS,
    **TRIGONOMETRY,
    **POWERS,
    **QUOTIENTS,
    **ERROR_FUNCTIONS,
    **GAMMAS,
    **CONVERSIONS,
    **TRANSPOSES,
    **HALF_ROWS,
    **ATTENTION_FUNCTIONS,
}

_LIBRARY = (
    "fabs", "floor", "ceil", "trunc", "rint", "sqrt", "copysign", "fmod", "sin",
    "cos", "tan",
)  # fmt: skip


def _declarations() -> dict[str, str]:
    """Return declarations of C's mathematics: `math.h` takes a tenth of the time of a kernel."""
    made: dict[str, str] = {}
    for ctype, end in (("float", "f"), ("double", "")):
        for name in _LIBRARY:
            given = f"{ctype}, {ctype}" if name in _OF_TWO else ctype
            made[f"{name}{end}"] = f"{ctype} {name}{end}({given});"
    return made


_OF_TWO = ("copysign", "fmod")
_DECLARATIONS = _declarations()

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
            elif name in _DECLARATIONS:
                declared.add(_DECLARATIONS[name])

    for text in texts:
        add(text, "")
    return [*(["\n".join(sorted(declared))] if declared else []), *found.values()]
