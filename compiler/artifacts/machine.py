"""The machine that compiled code needs, and whether this machine meets it.

needed = requirements({"avx2", "fma"}, devices)     when a package is written
refuse_other(needed, "model.ctk")                   when it is opened
"""

import platform
from collections.abc import Collection
from functools import cache
from pathlib import Path

import torch

from ctk.compiler.errors import ArtifactError
from ctk.compiler.records import Json


def requirements(cpu_features: Collection[str], capabilities: Collection[str]) -> Json:
    """Return the properties of a machine that code compiled here needs.

    Args:
        cpu_features: Features that the code of the CPU may use, by their names in Linux.
        capabilities: Compute capabilities of the GPUs that it has machine code for: `9.0`.
    """
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cpu_features": sorted(cpu_features),
        "compute_capabilities": sorted(capabilities),
        "torch": torch_release(),
    }


def torch_release() -> str:
    """Return the version of torch without its build (`+cpu`)."""
    return torch.__version__.partition("+")[0]


def refuse_other(needed: Json, owner: str) -> None:
    """Raise unless code for a machine runs on this one.

    Raises:
        ArtifactError: It does not run here; the message has the difference.
    """
    here = platform.system(), platform.machine()
    there = needed["system"], needed["processor"]
    if here != there:
        raise ArtifactError(
            f"{owner} was compiled for {' on '.join(there[::-1])}; this machine is "
            f"{' on '.join(here[::-1])}: compile it here"
        )
    missing = sorted(set(needed["cpu_features"]) - (cpu_features() or set(needed["cpu_features"])))
    if missing:
        raise ArtifactError(
            f"{owner} was compiled for another CPU: this one has no {', '.join(missing)}. "
            "Compile it here, or for an older CPU with the option "
            "c.flags=-march=x86-64-v2"
        )
    if needed["torch"] != torch_release():
        raise ArtifactError(
            f"{owner} was compiled with torch {needed['torch']}; this is torch {torch_release()}: "
            "install that one, or compile it again"
        )
    _refuse_gpu(needed["compute_capabilities"], owner)


def _refuse_gpu(capabilities: Collection[str], owner: str) -> None:
    if not capabilities:
        return
    if not torch.cuda.is_available():
        raise ArtifactError(f"{owner} was compiled for a GPU, and there is none here")
    here = ".".join(map(str, torch.cuda.get_device_capability()))
    if here not in capabilities:
        raise ArtifactError(
            f"{owner} was compiled for GPUs of compute capability {', '.join(capabilities)}; "
            f"{torch.cuda.get_device_name()} has {here}: compile it here"
        )


@cache
def cpu_features() -> frozenset[str] | None:
    """Return the features of this CPU by their names in Linux; None on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, words = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(words.split())
    return None
