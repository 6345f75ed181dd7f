"""outcome.json: the outcome of one judged test or program, for `ctk ci-summary`.

The file lies in a folder of its own below the folder of a run, beside the case or the diagnosis:

    out/tests-test_model-py--test_mlp/outcome.json    folder "." is the folder of that file

Its texts are not trusted: reading makes them printable, and each format escapes them itself.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import document, read_document, write_document
from ctk.toolkit.case.judgement import Verdict

SCHEMA: Final = 1
FILE = "outcome.json"

IDENTITY_LENGTH = 300
"""Characters of an identity; the end of a longer one is replaced by a digest of the whole."""


@document
@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test or program, the worst of its compiles.

    Attributes:
        test: Node id of the test, or the subject as it was named.
        headline: The answer in one sentence.
        signature: The observed failure; null if there is none.
        culprit: `STAGE/PASS`, or the kernel; null if unknown.
        rule: The rule of the guilty rewrite; empty if unknown.
        confirmed: Whether the case passes without the culprit alone.
        place: `FILE:LINE` of the user's program, relative to the working folder; empty if unknown.
        command: A command to paste, which shows more; empty for none.
        folder: The case or the diagnosis, relative to the folder of this file; null for none.
        worst_ulp: The largest error of a result against float64, in units in the last place of its
            dtype; null if it was not measured.
        seconds: The time it took.
        graphs: How many graphs were judged.
        known: Why its failure is expected (the mark of a test), such as the link of an issue; such
            a failure does not fail a job.
        schema: Version of this document.
    """

    test: Line
    target: Line
    verdict: Verdict
    headline: Line
    signature: Signature | None = None
    culprit: Line | None = None
    rule: Line = ""
    confirmed: bool = False
    place: Line = ""
    command: Line = ""
    folder: Line | None = None
    worst_ulp: float | None = None
    seconds: float = 0.0
    graphs: int = 0
    known: Line = ""
    schema: Literal[1] = SCHEMA

    @property
    def fails(self) -> bool:
        """Whether it shows a failure of the compiler: the expected one, or another."""
        return self.verdict in (Verdict.REPRODUCES, Verdict.DIFFERENT)

    @property
    def is_undecided(self) -> bool:
        """Whether nothing is known about the compiler: flaky, timed out, or not comparable."""
        return not (self.fails or self.verdict.is_no_failure)

    @property
    def kind(self) -> str:
        """The kind of failure, or the verdict if there is none."""
        return self.signature.kind if self.fails and self.signature else self.verdict.value

    @property
    def key(self) -> str:
        """The identity of the failure; of an undecided test its verdict and name."""
        if not self.fails or self.signature is None:
            return f"{self.target}: {self.kind}: in {self.test}"
        return identity_of(
            self.signature,
            target=self.target,
            test=self.test,
            culprit=self.culprit,
            rule=self.rule,
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of the key, for formats that want a fingerprint."""
        return hashlib.sha256(self.key.encode()).hexdigest()


def identity_of(
    signature: Signature,
    *,
    target: str,
    test: str,
    culprit: str | None = None,
    rule: str = "",
) -> str:
    """Return the identity of a failure, the same in every run and on every machine.

    The guilty rule of a pass identifies a failure across tests. A pass without one, a kernel (whose
    name is its own only within a test), a layer and an unknown culprit may each stand for several
    failures: there the test counts as well. Measured numbers, names of results and the number of a
    run of a pass (`#2`) do not count.

    >>> identity_of(Signature("nan"), target="ctk", test="t.py::a", culprit="joint/p#2", rule="r")
    'ctk: nan: joint/p: r'
    >>> identity_of(Signature("nan"), target="ctk", test="t.py::a", culprit="joint/p")
    'ctk: nan: joint/p: in t.py::a'
    """
    place = culprit.partition("#")[0] if culprit else signature.where
    signal = None if signature.signal is None else str(signature.signal)
    parts = [target, signature.kind, signature.exception, signal, place, rule]
    parts += [] if culprit and rule else [f"in {test}"]
    text = ": ".join(part for part in parts if part)
    if len(text) <= IDENTITY_LENGTH and text.isprintable():
        return text
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    plain = "".join(each for each in text[:IDENTITY_LENGTH] if each.isprintable())
    return f"{plain} {digest}"


def write_outcome(outcome: Outcome, folder: Path) -> Path:
    """Write `outcome.json` into a folder, in one step; return its path."""
    path = folder / FILE
    write_text(path, write_document(outcome))
    return path


def read_outcome(folder: Path) -> Outcome:
    """Read the `outcome.json` of a folder.

    Raises:
        CaseError: It is missing, damaged, or of another ctk.
    """
    return read_document(Outcome, folder / FILE, next_step="run the tests again", schema=SCHEMA)
