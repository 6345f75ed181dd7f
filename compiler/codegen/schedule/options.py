"""Options of the generators of kernels: `Config(passes={"kernels": {"exact": True}})`."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from ctk.compiler.options.choices import Options
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.options import set_options


@dataclass(frozen=True, slots=True)
class KernelOptions(Options):
    """How graphs become kernels, in any language.

    Attributes:
        exact: Kernels only of operators whose bits are those of eager, rounded where eager rounds;
            no reassociation, no contraction, no approximation. Others are library calls.
        accumulate: The type of sums of floats of 32 bits and less.
        background: Kernels are compiled in a thread, and calls run in eager until they are there.
            An observed compile waits for them nevertheless, so that each run shows the same.
        cuda_graphs: A graph whose sizes are fixed is launched as a whole, by CUDA graphs. It takes
            more memory: results keep that of a recording, and each recording has its own.
        ahead_of_time: Kernels are printed, or compiled for a device that need not be here, and not
            loaded, so the graph cannot be called. Writers of packages set this.
    """

    name: ClassVar[str] = "kernels"

    exact: bool = False
    accumulate: Literal["float32", "float64"] = "float32"
    background: bool = False
    cuda_graphs: bool = False
    ahead_of_time: bool = False


AnyOptions = TypeVar("AnyOptions", bound=Options)


def with_config(options: AnyOptions, config: Config) -> AnyOptions:
    """Return options as a compile has them: for every stage, or for `lowered`.

    Raises:
        ConfigError: One is unknown, or its value is not allowed.
    """
    for name in (options.name, f"lowered/{options.name}"):
        options = set_options(options, name, config.passes.get(name, {}))
    return options
