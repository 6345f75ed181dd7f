"""Other failures that a reduction meets: each is kept as a case, beside the result.

    OUT/others/compile-error-TypeError-3f2a/     the smallest candidate that showed it

The first candidate of each is on disk at once; at the end the smallest takes its place. Nothing is
asked or reduced for them.
"""

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import describe
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.operations.report.diagnosis import OtherFailure
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.questions.same_failure import normalize_message
from ctk.toolkit.reduce.size import is_smaller

FOLDER = "others"
MOST = 16
"""Limit of different failures: more of them would fill the disk unread."""


@dataclass(slots=True)
class Others:
    """The other failures of one operation.

    Attributes:
        smallest: The smallest candidate that showed each, by the name of its folder.
    """

    run: Operation
    smallest: dict[str, Case] = field(default_factory=dict[str, Case])
    left_out: set[str] = field(default_factory=set[str])

    def note(self, case: Case, judgement: Judgement) -> None:
        """Keep a candidate that shows another failure than the expected one."""
        signature, is_other = judgement.signature, judgement.verdict is Verdict.DIFFERENT
        if not is_other or signature is None or signature.kind == "oracle":
            return
        name, failing = name_of(signature), replace(case, signature=signature)
        known = self.smallest.get(name)
        if known is None and len(self.smallest) >= MOST:
            self.left_out.add(name)
            return
        if known is None or is_smaller(failing, known):
            self.smallest[name] = failing
        if known is None:
            self._save(name, failing, is_last=False)

    def finish(self) -> tuple[OtherFailure, ...]:
        """Write the smallest candidate of each failure, and return those on disk."""
        for name, case in self.smallest.items():
            self._save(name, case, is_last=True)
        if self.left_out:
            self.run.record_problems(f"{len(self.left_out)} more other failures were not kept")
        found = ((case.signature, self._place(name)) for name, case in self.smallest.items())
        return tuple(
            OtherFailure(signature, place)
            for signature, place in found
            if signature is not None and place.is_dir()
        )

    def _place(self, name: str) -> Path:
        return self.run.folder / FOLDER / name

    def _save(self, name: str, case: Case, *, is_last: bool) -> None:
        """Write a case; before the end, an undamaged case on disk stays."""
        place = self._place(name)
        if not is_last and place.is_dir() and not describe(place).problem:
            return
        keep = self.run.keep
        self.run.save(
            f"{FOLDER}/{name}", lambda: save_case(case, place, inputs=keep, overwrite=True)
        )


def name_of(signature: Signature) -> str:
    """Return the folder of a failure: equal for failures that differ in numbers only.

    >>> name_of(Signature("compile-error", "TypeError", "joint/fold", message="node mul_3"))
    'compile-error-TypeError-f7fe'
    """
    same = (signature.kind, signature.exception, signature.where, signature.signal)
    text = repr((*same, normalize_message(signature.message) if signature.exception else ""))
    parts = (signature.kind, signature.exception, signature.signal)
    label = "-".join(str(part) for part in parts if part is not None)
    plain = re.sub(r"[^\w-]", "_", label, flags=re.ASCII)[:60]
    return f"{plain}-{hashlib.blake2b(text.encode(), digest_size=2).hexdigest()}"
