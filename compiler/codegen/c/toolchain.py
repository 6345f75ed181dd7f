"""The C compiler of the system: its command, its flags, the threads and features of its code.

The compiler is `CC`, or else `cc`, `gcc` or `clang`. Compiled code is linked to the OpenMP library
that torch has loaded, so there is one pool of threads, and `torch.set_num_threads` holds for it.
Where the two do not fit (clang's code needs LLVM's library), kernels run on one thread.
"""

import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import torch

from ctk.compiler.errors import CodegenUnsupported

COMPILERS = ("cc", "gcc", "clang")

_FLAGS = (
    "-O2", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-w", "-fwrapv", "-fno-math-errno",
    "-fno-trapping-math", "-ffp-contract=off",
)  # fmt: skip
"""No contraction: products and sums keep the bits of eager. Functions that gain from it call `fma`.

`omp simd` makes SIMD loops already at -O2: kernels are as fast as with -O3, and compile faster.
"""

_GCC_FLAGS = (
    "--param", "vect-max-peeling-for-alignment=0", "-fno-tree-slp-vectorize", "-fno-tree-sink",
)  # fmt: skip
"""The assignment of numbers to lanes must not depend on the address of the memory.

Only loops are vectorised: in straight lines GCC 12 loses the rounding of a pair of float64 to
float32 that becomes float64 again. No call is moved to the branch that uses it: a loop with a call
in a branch cannot be vectorised.
"""

_X86_FLAGS = ("-mprefer-vector-width=512",)
"""Compilers use half of AVX-512 by default; without AVX-512 this changes nothing."""


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


def find_compiler() -> tuple[str, ...]:
    """Return the command of the C compiler.

    Raises:
        CodegenUnsupported: There is none.
    """
    try:
        asked = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise CodegenUnsupported(f"CC={os.environ['CC']!r} is not a command: {error}") from error
    commands = [asked] if asked else [[name] for name in COMPILERS]
    for name, *arguments in commands:
        found = shutil.which(name)
        if found:
            return (found, *arguments)
    if asked:
        raise CodegenUnsupported(f"there is no C compiler {asked[0]}, which CC names")
    raise CodegenUnsupported(f"no C compiler found (looked for {', '.join(COMPILERS)})")


def command_with(flags: Sequence[str]) -> tuple[str, ...]:
    """Return how the compiler is called, with these flags besides the usual ones.

    Raises:
        CodegenUnsupported: There is no compiler.
    """
    compiler = find_compiler()
    return (*compiler, *_flags(compiler), *flags)


def compile_files(
    sources: Sequence[Path], command: Sequence[str], kernels: Sequence[Sequence[str]]
) -> list[Path]:
    """Compile files at the same time, each to a shared object beside it.

    Raises:
        CodegenUnsupported: The compiler does not take the code.
    """
    targets = [source.with_suffix(".so") for source in sources]
    named = (f"the kernels {', '.join(names)}" for names in kernels)
    _compile([*zip(([each] for each in sources), targets, named, strict=True)], command)
    return targets


def compile_together(
    sources: Sequence[Path], target: Path, command: Sequence[str], name: str
) -> None:
    """Compile files to one shared object.

    Raises:
        CodegenUnsupported: The compiler does not take the code.
    """
    _compile([(sources, target, name)], command)


def _compile(jobs: Sequence[tuple[Sequence[Path], Path, str]], command: Sequence[str]) -> None:
    """Run the compiler for each job at the same time: its files, its target, its name."""
    running: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:  # which waits for them
        try:
            for sources, target, _ in jobs:
                process = subprocess.Popen(  # the compiler that the user chose
                    [*command, *map(str, sources), "-o", str(target), *_libraries()],
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                running.append(stack.enter_context(process))
            messages = [process.communicate()[1] for process in running]
        except BaseException:  # Ctrl-C, a time limit
            for process in running:
                process.kill()
            raise
    for process, message, (_, target, name) in zip(running, messages, jobs, strict=True):
        if process.returncode:
            told = message[:2000].rstrip() or _silence(target.parent)
            raise CodegenUnsupported(
                f"{command[0]} does not take the C of {name} "
                f"({_ending(process.returncode)}):\n{told}"
            )


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit {code}"
    known = {each.value for each in signal.Signals}
    return f"killed by {signal.Signals(-code).name if -code in known else f'signal {-code}'}"


def _silence(folder: Path) -> str:
    """Return a likely reason where a compiler fails without a message."""
    free = shutil.disk_usage(folder).free >> 20
    return (
        f"it printed nothing. It writes to {folder} ({free} MiB free there); see whether the "
        "disk is full, whether a limit (ulimit -f, -v, -t) stops it, and whether CC is a C compiler"
    )


def _flags(compiler: tuple[str, ...]) -> tuple[str, ...]:
    own = _X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ()
    if not _is_clang(compiler):
        return (*_FLAGS, *own, *_GCC_FLAGS, "-fopenmp")
    has_own_threads = any(name in (openmp_library() or "") for name in ("libomp", "libiomp"))
    return (*_FLAGS, *own, "-fopenmp" if has_own_threads else "-fopenmp-simd")


def _libraries() -> tuple[str, ...]:
    library = openmp_library()
    return ("-lm",) if library is None else ("-Wl,--as-needed", library, "-lm")


@cache
def _is_clang(compiler: tuple[str, ...]) -> bool:
    command = [*compiler, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # as above
    return "clang" in done.stdout


@cache
def openmp_library() -> str | None:
    """Return the OpenMP library that torch has loaded; None if it has none that is known."""
    maps = Path("/proc/self/maps")
    loaded = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    beside = sorted(Path(torch.__file__).parent.glob("lib/lib*omp*"))
    for path in (*(line.split()[-1] for line in loaded if "/" in line), *map(str, beside)):
        if Path(path).name.startswith(("libgomp", "libiomp", "libomp")):
            return path
    return None


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
