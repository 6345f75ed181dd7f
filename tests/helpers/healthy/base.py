"""What a healthy program is."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Call = tuple[Callable[..., object], Sequence[object]]
"""What is compiled, and the inputs of one call."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """A program that every compiler gets right.

    Attributes:
        name: Its kind.
        make: Builds it anew, on torch's default device.
        backward: Gradients are wanted too.
        dynamic: Compiled with symbolic sizes.
        needs: The device that it needs, or empty.
        package: The optional package that it comes from, or empty.
        bugs: Targets and devices that get it wrong after all: a real bug, which must be seen.
    """

    name: str
    make: Callable[[], Call]
    backward: bool = False
    dynamic: bool = False
    needs: str = ""
    bugs: tuple[tuple[str, str], ...] = ()
    package: str = ""

    @property
    def is_available(self) -> bool:
        """Whether its package is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def build(self, device: str = "cpu") -> Call:
        """Build it on a device, from a fixed seed."""
        torch.manual_seed(11)
        with torch.device(device):
            return self.make()
