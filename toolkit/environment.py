"""The environment variables as the toolkit sees them: the parser, and what dumps record.

Parsing lives in `compiler/environment.py`: one place, because the backend honours some of them
without the toolkit. Variables are recorded by exact name from a list, never by pattern, so that no
token can slip into a dump.
"""

import os
from collections.abc import Mapping

from compiler.environment import (
    VARIABLES,
    Check,
    Environment,
    InputsMode,
    misspelt,
    parse_size,
    read_environment,
)

__all__ = [
    "RECORDED",
    "VARIABLES",
    "Check",
    "Environment",
    "InputsMode",
    "misspelt",
    "parse_size",
    "read_environment",
    "recorded_variables",
]

RECORDED = (
    "CTK_CHECK",
    "CTK_ON_FAILURE",
    "CTK_INPUTS",
    "CTK_FUEL",
    "CTK_DISABLE",
    "CTK_QUOTA",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "TORCHDYNAMO_DISABLE",
)
"""The only variables whose values are ever written to a dump."""


def recorded_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the listed variables that are set."""
    source = os.environ if environ is None else environ
    return {name: source[name] for name in RECORDED if name in source}
