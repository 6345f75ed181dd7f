"""ctk's compile pipeline: `compiler.compile_fx(gm, example_inputs)` and the Dynamo backend `ctk`.

Importing this package is cheap: the pipeline and torch's compiler parts load at the first compile.
"""

from typing import TYPE_CHECKING, Any

from compiler.config import Config, patch
from compiler.errors import CtkError

if TYPE_CHECKING:
    from compiler.pipeline import compile_fx

__all__ = ["Config", "CtkError", "compile_fx", "patch"]


def __getattr__(name: str) -> Any:
    if name == "compile_fx":
        from compiler.pipeline import compile_fx

        return compile_fx
    raise AttributeError(f"module 'compiler' has no attribute {name!r}")
