"""One test under watch: its failures, its verdict, and its outcome on disk.

An exception of a compile is a failure of the test only if it ends the test: a test may expect it.
Wrong values, and all that only a comparison with eager shows, always are.
"""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.errors import WrongCompile, count_of
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.collect import outcome_of_record
from ctk.toolkit.ci.outcome import FILE, Outcome, write_outcome
from ctk.toolkit.processes.link import Work
from ctk.toolkit.testing.diagnosis import Diagnosed, diagnose_case
from ctk.toolkit.testing.options import Marker, SuiteOptions
from ctk.toolkit.testing.suite_watch import NOTHING, Seen
from ctk.toolkit.watch.dump import run_guarded
from ctk.toolkit.watch.watch_session import Failure

_RAISES: tuple[FailureKind, ...] = ("compile-error", "runtime-error")

_READABLE = 80
"""Characters of a test's id in the name of its folder."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A test that fails because of a compile: the exception that fails it, and the explanation.

    Attributes:
        outcome: That of the phase.
        lines: The section of the report.
        properties: The verdict for JUnit and xdist.
    """

    outcome: Outcome
    error: WrongCompile
    lines: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class JudgedTest:
    """A test that runs.

    Attributes:
        place: `FILE:LINE` of the test, for a failure whose own line is unknown.
        total: Everything that was seen in it.
        seconds: The time of its phases so far.
    """

    name: str
    place: str
    mark: Marker
    options: SuiteOptions
    total: Seen = NOTHING
    seconds: float = 0.0
    _work: tuple[str, Work, str] | None = None
    _ended: tuple[BaseException, Failure] | None = None
    _has_pending: bool = False
    _written: Outcome | None = None

    @property
    def folder(self) -> Path:
        """The folder of its outcome and its diagnosis."""
        return self.options.out / folder_name(self.name)

    def note_work(self, case: str, work: Work, error: BaseException | None, target: str) -> None:
        """Note that the compile or first call of a graph begins, or ends, by an exception or not.

        The outcome of a process that ends there is written when it begins.
        """
        if work.doing:
            self._work, self._has_pending = (case, work, target), True
            outcome = self._outcome([_end_of_process(*self._work, "exit")])
            run_guarded(lambda: write_outcome(outcome, self.folder), f"writing {self.folder}")
        elif self._work is not None and error is not None and not isinstance(error, Exception):
            failure = _end_of_process(*self._work, "timeout")  # pytest-timeout, from a signal
            self._ended = self._ended or (error, failure)

    def judge(self, new: Seen, error: BaseException | None, seconds: float) -> Blame | None:
        """Judge a phase of the test, and write the outcome of the test so far.

        That is the first failure that the test does not expect; later ones are only reported.

        Args:
            new: Everything that was seen in the phase.
            error: The exception that ended it.
        """
        self.seconds += seconds
        self.total = self.total.plus(new)
        failing = [each for each in new.failures if fails_test(each, error)]
        if self._ended is not None and self._ended[0] is error:
            failing.append(self._ended[1])
        if not (new.graphs or new.compared or new.unchecked or failing or self._has_pending):
            return None
        self._has_pending = False
        first = self._written if self._written is not None and self._written.fails else None
        is_new = bool(failing) and (first is None or bool(first.known))
        diagnosed = self._diagnose(failing[0]) if is_new else ""
        outcome = self._outcome(failing, diagnosed if isinstance(diagnosed, Diagnosed) else None)
        if first is None or is_new:
            self._write(outcome)
        else:
            self._write(replace(first, seconds=outcome.seconds, graphs=outcome.graphs))
        return self._blame(outcome, failing, diagnosed) if failing else None

    def accept(self, outcome: Outcome, reason: str) -> None:
        """Note that the test expects the failure of a phase (xfail)."""
        if outcome is self._written:
            self._write(replace(outcome, known=_one_line(reason) or "xfail"))

    def forget_pending(self) -> None:
        """Remove the outcome of a process that ends here, for it was interrupted by the user."""
        if self._has_pending and self._written is not None:
            self._write(self._written)
        elif self._has_pending:
            (self.folder / FILE).unlink(missing_ok=True)

    def _diagnose(self, failure: Failure) -> Diagnosed | str:
        can_diagnose = failure.is_saved and not failure.advice and failure.folder.is_dir()
        if not self.options.diagnose or self.mark.is_known or not can_diagnose:
            return ""
        out = self.folder / "diagnosis"
        shutil.rmtree(out, ignore_errors=True)  # of an earlier run
        return diagnose_case(failure.folder, out, self.options.seconds)

    def _outcome(self, failing: Sequence[Failure], diagnosed: Diagnosed | None = None) -> Outcome:
        target = self.mark.target or self.options.target or self.total.target or "torch.compile"
        unchecked = "; ".join(self.total.unchecked)
        compared = f"{count_of(self.total.compared, 'call')} compared with eager: no failure"
        outcome = Outcome(
            self.name,
            target,
            Verdict.PASSES,
            _one_line(compared + f"; not compared: {unchecked}" * bool(unchecked)),
            seconds=round(self.seconds, 3),
            graphs=self.total.graphs,
        )
        if failing:
            outcome = _with_failure(outcome, failing[0], self.folder)
            outcome = outcome if outcome.place else replace(outcome, place=self.place)
        elif not self.total.compared:
            why = _one_line(f"not compared: {unchecked or 'no compiled function was called'}")
            return replace(outcome, verdict=Verdict.INVALID, headline=why)
        return outcome if diagnosed is None else _with_diagnosis(outcome, diagnosed, self.folder)

    def _write(self, outcome: Outcome) -> None:
        write_outcome(outcome, self.folder)
        self._written = outcome

    def _blame(
        self, outcome: Outcome, failing: Sequence[Failure], diagnosed: Diagnosed | str
    ) -> Blame:
        place = None if outcome.folder is None else (self.folder / outcome.folder).resolve()
        return Blame(
            outcome,
            WrongCompile(outcome.headline, folder=place, command=outcome.command),
            tuple(_explain(outcome, failing, diagnosed)),
            (
                ("ctk_verdict", outcome.verdict.value),
                ("ctk_target", outcome.target),
                ("ctk_culprit", outcome.culprit or ""),
                ("ctk_signature", str(outcome.signature or "")),
                ("ctk_folder", str(place or "")),
                ("ctk_command", outcome.command),
            ),
        )


def fails_test(failure: Failure, error: BaseException | None) -> bool:
    """Return whether a failure fails the test; an exception of a compile does if it ends it."""
    signature = failure.signature
    if signature is None or signature.kind not in _RAISES:
        return True
    return any(str(failure.folder) in note for note in _notes(error))


def folder_name(test: str) -> str:
    """Return the name of a test's folder: readable, and different for different tests."""
    digest = hashlib.sha256(test.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    readable = re.sub(r"[^\w.-]+", "-", test)[-_READABLE:].strip("-.")
    return f"{readable}-{digest}"


def _notes(error: BaseException | None) -> Iterator[str]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield from getattr(error, "__notes__", ())
        error = error.__cause__ or error.__context__


def _end_of_process(case: str, work: Work, target: str, kind: FailureKind) -> Failure:
    """Return the failure of a process that ends, or of a time limit that passes, at some work."""
    signature = Signature(kind, message=f"the process ends while {work.doing}")
    if kind == "timeout":
        signature = Signature(kind, message=f"a time limit ends the test while {work.doing}")
    return Failure(Path(case).name, Path(case), str(signature), True, "", signature, target)


def _with_failure(outcome: Outcome, failure: Failure, folder: Path) -> Outcome:
    target = failure.target or outcome.target
    command = f"pytest --ctk=check {shlex.quote(outcome.test)}"
    if failure.is_saved and not failure.advice:
        deadly = failure.signature is not None and failure.signature.is_deadly
        command = command_on("diagnose", failure.folder) + " --isolate" * deadly
    return replace(
        outcome,
        target=target,
        verdict=Verdict.REPRODUCES,
        headline=_one_line(f"{failure.graph} fails with target {target}: {failure.summary}"),
        signature=failure.signature,
        place=failure.place,
        command=command,
        folder=_relative(failure.folder, folder),
    )


def _with_diagnosis(outcome: Outcome, diagnosed: Diagnosed, folder: Path) -> Outcome:
    """Return the outcome with the culprit; without one the failure stays the one of the test."""
    found = outcome_of_record(diagnosed.record, outcome.test, diagnosed.folder)
    if found.culprit is None or not found.fails:
        found = outcome
    return replace(
        found,
        place=found.place or outcome.place,
        command=diagnosed.command or outcome.command,
        folder=_relative(diagnosed.folder, folder),
        seconds=outcome.seconds,
        graphs=outcome.graphs,
    )


def _explain(
    outcome: Outcome, failing: Sequence[Failure], diagnosed: Diagnosed | str
) -> Iterator[str]:
    """Yield the section of a report: the failure, its place, and the command to paste."""
    yield outcome.headline
    if outcome.place:
        yield f"line       {outcome.place}"
    if isinstance(diagnosed, Diagnosed):
        yield from diagnosed.lines[1:]
    else:
        first = failing[0]
        yield f"case       {first.folder}"
        if diagnosed:
            yield f"culprit    unknown: {diagnosed}"
        if first.advice:
            yield f"first      {first.advice}"
        yield f"next       {outcome.command}"
    for other in failing[1:]:
        yield f"also       {_one_line(other.summary)}; {other.folder}"


def _one_line(text: str) -> str:
    return one_line(" ".join(text.split()))


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder)
