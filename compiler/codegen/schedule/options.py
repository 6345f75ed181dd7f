"""Options of the generators of kernels: `Config(passes={"kernels": {"exact": True}})`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ctk.compiler.choices import Options
from ctk.compiler.config import Config
from ctk.compiler.rewriting.options import set_options


@dataclass(frozen=True, slots=True)
class KernelOptions(Options):
    """How graphs become kernels, whatever they are written in.

    Attributes:
        exact: Kernels only of what has the bits of eager, rounded where eager rounds; no
            reassociation, no contraction, no approximation. Everything else is a library call.
        accumulate: The type of sums of floats of 32 bits and less.
    """

    name: ClassVar[str] = "kernels"

    exact: bool = False
    accumulate: Literal["float32", "float64"] = "float32"


def kernel_options(config: Config) -> KernelOptions:
    """Return the options of a compile.

    Raises:
        ConfigError: One is unknown, or its value is not allowed.
    """
    return set_options(KernelOptions(), "kernels", config.passes.get("kernels", {}))
