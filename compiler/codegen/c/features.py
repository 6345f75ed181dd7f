"""Processor features that compiled code may use, as the compiler defines them for its target."""

import subprocess
from collections.abc import Sequence
from functools import cache

from ctk.compiler.errors import CodegenUnsupported

_CALLED = {
    "SSE3": "pni", "SSSE3": "ssse3", "SSE4_1": "sse4_1", "SSE4_2": "sse4_2", "SSE4A": "sse4a",
    "POPCNT": "popcnt", "LZCNT": "abm", "BMI": "bmi1", "BMI2": "bmi2", "MOVBE": "movbe",
    "ADX": "adx", "AES": "aes", "PCLMUL": "pclmulqdq", "SHA": "sha_ni", "GFNI": "gfni",
    "VAES": "vaes", "VPCLMULQDQ": "vpclmulqdq", "AVX": "avx", "AVX2": "avx2", "FMA": "fma",
    "F16C": "f16c", "AVXVNNI": "avx_vnni", "AVX512F": "avx512f", "AVX512CD": "avx512cd",
    "AVX512BW": "avx512bw", "AVX512DQ": "avx512dq", "AVX512VL": "avx512vl",
    "AVX512IFMA": "avx512ifma", "AVX512VBMI": "avx512vbmi", "AVX512VBMI2": "avx512_vbmi2",
    "AVX512VNNI": "avx512_vnni", "AVX512BITALG": "avx512_bitalg",
    "AVX512VPOPCNTDQ": "avx512_vpopcntdq", "AVX512BF16": "avx512_bf16",
    "AVX512FP16": "avx512_fp16", "AMX_TILE": "amx_tile", "AMX_INT8": "amx_int8",
    "AMX_BF16": "amx_bf16", "ARM_FEATURE_SVE": "sve", "ARM_FEATURE_SVE2": "sve2",
    "ARM_FEATURE_DOTPROD": "asimddp", "ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "asimdhp",
    "ARM_FEATURE_BF16_VECTOR_ARITHMETIC": "bf16", "ARM_FEATURE_MATMUL_INT8": "i8mm",
    "ARM_FEATURE_ATOMICS": "atomics", "ARM_FEATURE_QRDMX": "asimdrdm",
}  # fmt: skip
"""The names in Linux's /proc/cpuinfo of the features that compilers define as `__NAME__`."""


@cache
def features_of(command: Sequence[str]) -> frozenset[str]:
    """Return the features that the code of a compiler's command may use, as Linux calls them.

    Raises:
        CodegenUnsupported: The compiler does not say.
    """
    asked = [*command, "-dM", "-E", "-x", "c", "/dev/null"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)  # the user's compiler
    if done.returncode:
        told = done.stderr.strip()[:500]
        raise CodegenUnsupported(f"{command[0]} does not list the features of its target: {told}")
    defined = {line.split()[1].strip("_") for line in done.stdout.splitlines() if line}
    return frozenset(name for macro, name in _CALLED.items() if macro in defined)
