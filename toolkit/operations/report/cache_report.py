"""The entries of a compile under diagnosis in the persistent cache, and their fate."""

from dataclasses import dataclass

from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Verdict

_SHOWN_DIGITS = 12


@document
@dataclass(frozen=True, slots=True)
class KeptEntry:
    """The entries of a compile in the user's cache: several where sizes are symbols.

    Attributes:
        case: Name of the case whose compile this is.
        entries: Their digests.
        loaded: The verdict of the case when loaded from there; null where a fresh compile already
            fails.
        removed: Why they were removed; empty while they stay.
    """

    case: Line
    entries: tuple[Line, ...]
    loaded: Verdict | None = None
    removed: Line = ""

    @property
    def alone_fails(self) -> bool:
        """Whether the entry fails, and the same compile of now does not."""
        return self.loaded is Verdict.REPRODUCES

    @property
    def line(self) -> str:
        """The entries and their fate in one sentence."""
        many = len(self.entries) > 1
        names = ", ".join(each[:_SHOWN_DIGITS] for each in self.entries)
        what = f"{'entries' if many else 'entry'} {names} of the persistent cache"
        if self.alone_fails:
            state = "removed" if self.removed else "still there"
            return f"{self.case} fails as {what} has it, and passes recompiled; {state}"
        begin = f"{self.case} had {what}, and was recompiled"
        if self.removed:
            return f"{begin}; {'they were' if many else 'it was'} removed: {self.removed}"
        if self.loaded is None:
            stay = "they stay" if many else "it stays"
            return f"{begin}; {stay}, for no culprit is confirmed (ctk cache clear DIGEST)"
        return f"{begin}; loaded from there it shows no failure either"
