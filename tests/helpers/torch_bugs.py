"""Bugs of torch on which tests rely, each with the releases that have it.

A test that needs such a bug is skipped where torch has not got it yet, or has mended it; a test
that fails by the bug, where torch has it. The limits were found with `ctk bisect-version`, and with
`--good-after`.
"""

from dataclasses import dataclass

import pytest
import torch

from ctk.compiler.torch_compat.versions import release_of


@dataclass(frozen=True, slots=True)
class TorchBug:
    """A bug, from the first release that has it up to the first that has it no more."""

    name: str
    since: str = "2.11"
    mended: str = "3"

    @property
    def is_here(self) -> bool:
        installed = release_of(torch.__version__)
        return release_of(self.since) <= installed < release_of(self.mended)

    @property
    def is_needed(self) -> pytest.MarkDecorator:
        """A mark for a test that cannot run without the bug."""
        return pytest.mark.skipif(not self.is_here, reason=self._reason)

    @property
    def is_harmful(self) -> pytest.MarkDecorator:
        """A mark for a test that fails by the bug."""
        return pytest.mark.skipif(self.is_here, reason=self._reason)

    @property
    def _reason(self) -> str:
        return f"{self.name}: a bug of torch {self.since} and later that torch {self.mended} mended"


PERMUTED_KEY = TorchBug("pytorch/pytorch#195320, attention with a permuted key", "2.12", "2.15")
SHUFFLED_ROWS = TorchBug("pytorch/pytorch#188223, rows by randperm", "2.13", "2.14")
ZEROED_SNAPSHOT = TorchBug("pytorch/pytorch#198094, a snapshot of a cache", "2.13")
LOST_CHANNELS_LAST = TorchBug(
    "the fake result of native_group_norm is contiguous where the kernel keeps channels_last",
    "2.14",
    "2.15",
)
FOLDED_ALPHA = TorchBug("binary folding drops the alpha of add and sub", mended="2.15")
TURNED_OPERAND = TorchBug("argmin and argmax of a transposed value", mended="2.15")

OF_DYNAMO = {
    "nested_fn_attr": TorchBug("Dynamo loses an attribute of a function", mended="2.14"),
    "eq_override": TorchBug("Dynamo ignores an `__eq__`", mended="2.14"),
    "exc_cause": TorchBug("Dynamo loses the text of an exception", mended="2.15"),
    "minus_zero": TorchBug("Dynamo does not guard on the sign of zero", mended="2.15"),
    "mro_changed": TorchBug("Dynamo does not guard on the bases of a class", mended="2.15"),
}
"""By file of `tests/dynamo_bugs`; all others are in every release up to the newest tested one."""
