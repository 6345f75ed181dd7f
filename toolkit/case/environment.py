"""Which environment variables a dump records: by exact name, never by pattern (tokens!)."""

import os
from collections.abc import Mapping

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
