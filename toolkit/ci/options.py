"""Options on the baseline, for `ctk ci-summary` and `ctk check`. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ctk.toolkit.options import Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """The baseline to compare with, and the one to write."""

    baseline: Annotated[
        Path | None,
        Flag(
            ("--baseline",),
            "Failures in this file that have the link of an issue are known, and do not fail; a"
            " test that got less accurate than there fails.",
            metavar="FILE",
            section="report",
        ),
    ] = None
    write_baseline: Annotated[
        Path | None,
        Flag(
            ("--write-baseline",),
            "Write the failures and the accuracy here; an older file's links of issues stay.",
            metavar="FILE",
            section="report",
        ),
    ] = None

    @property
    def is_set(self) -> bool:
        return self.baseline is not None or self.write_baseline is not None
