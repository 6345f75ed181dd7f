"""A running operation: it bisects, writes its diagnosis so far, and survives internal errors.

A killed operation leaves whole files. Run again with its journal, it repeats the same steps with
the remembered answers, writes nothing until the first new answer, and continues from there.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.compiler.errors import CtkError
from ctk.compiler.options.choices import InputsMode
from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.bisect import Search, find_culprit
from ctk.toolkit.bisect.questions import ObservedCompile
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import describe
from ctk.toolkit.case.formats.files import replace_file
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import write_json
from ctk.toolkit.operations.report.diagnosis import Diagnosis, KeptEntry
from ctk.toolkit.operations.report.phrases import BUG
from ctk.toolkit.operations.session import cache_evidence as kept_entry
from ctk.toolkit.operations.session.time_allowance import Allowance, FirstCompile
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import Journal
from ctk.toolkit.oracle.answers.journaled import Journaled, question_key
from ctk.toolkit.oracle.open_subject import OpenSubject, first_failing
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.slow_prefix import find_slow_prefix
from ctk.toolkit.processes.signals import defer_interrupts
from ctk.toolkit.targets import record_decisions

OnFailing = Callable[[Judgement], None]

logger = logging.getLogger("ctk")


@document
@dataclass(frozen=True, slots=True)
class Done:
    """The operation has reached its end; a search that a budget has ended has not."""


@dataclass(slots=True, eq=False)
class Operation:
    """A running operation.

    Attributes:
        found: Its diagnosis so far, None before the first verdict.
        started: Its start (`time.monotonic`).
        left_options: Whether the time was too short for the options that matter.
        observed: The last bisected case, and its observed compile; dropped once traced.
    """

    subject: OpenSubject
    oracle: Journaled
    journal: Journal
    digests: Digests
    folder: Path
    keep: InputsMode
    say: Say
    go_on: str
    found: Diagnosis | None = None
    started: float = field(default_factory=time.monotonic)
    left_options: bool = False
    observed: tuple[Case, ObservedCompile] | None = field(default=None, repr=False)
    _problems: list[str] = field(default_factory=list[str])
    _unsaved: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def allowance(self) -> Allowance:
        """The time of this run of the operation."""
        return Allowance(self.started, self.journal.recall(FirstCompile, "") or FirstCompile(0.0))

    @property
    def failing(self) -> tuple[Case, Search]:
        """The failing case, and its bisection."""
        assert self.found is not None and self.found.case is not None
        return self.found.case, self.found.search

    def bisect_cases(self, *, captured: Path | None = None) -> Diagnosis:
        """Bisect each case until one shows its failure; on disk as soon as that was seen.

        Args:
            captured: Folder for the failing case as it was captured; None: it is not written.
        """

        def ask(case: Case) -> Search:
            self.say(f"bisect {case.name}")
            return self.search(case, lambda seen: self._failing(case, seen, captured))

        if not self.subject.cases:
            whole = self.end_to_end()
            assert whole is not None, "a subject without a case is a program"
            search = Search(whole.judgement, reason="Dynamo gives no graph of the program")
            self.found = Diagnosis(None, search, 0.0, folder=self.folder, end_to_end=whole)
            return self.write(state="bisected")
        case, search = first_failing(self._ending_cases(), ask, lambda search: search.judgement)
        if search.judgement.fails:
            self._failing(case, search.judgement, captured)
            case = record_decisions(replace(case, signature=search.judgement.signature))
        found = self.found or Diagnosis(case, search, 0.0, folder=self.folder)
        is_told = search.judgement.tells_of_the_program
        whole = None if is_told else self.end_to_end()
        self.found = replace(found, case=case, search=search, end_to_end=whole)
        return self.write(state="bisected", kept=self.find_cache_entries(case, search))

    def _ending_cases(self) -> Iterator[Case]:
        """Yield the cases; in place of one whose compile does not end, its slow beginning."""
        executor = self.subject.executor
        for case in self.subject.cases:
            prefix = None
            if executor.isolates:
                first = self.oracle.ask(Question(case, case.signature, Veto()))
                prefix = find_slow_prefix(case, first, self.oracle, executor.limit_seconds)
            yield case if prefix is None else prefix

    def find_cache_entries(self, case: Case, search: Search) -> KeptEntry | None:
        """Return the entries of the persistent cache for the compile; wrong ones are removed."""
        try:
            if search.judgement.verdict is Verdict.REPRODUCES:
                return kept_entry.of_failing(case, search, self.journal, self.digests)
            if not search.judgement.is_no_failure:
                return None
            return kept_entry.of_passing(
                self.subject.cases, self.oracle, self.journal, self.digests
            )
        except Exception as error:
            self.record_errors("looking into the persistent cache", error)
            return None

    def end_to_end(self) -> EndToEnd | None:
        """Compare the program as a whole, or recall the result; None for cases and graphs."""
        known = self.journal.recall(EndToEnd, "")
        if known is not None:
            return known
        found = self.subject.end_to_end(self.say)
        seen = found.judgement.signature if found is not None else None
        if found is not None and (seen is None or not seen.is_cut_off):
            self.journal.note("", found)
        if found is not None and found.judgement.fails:
            self._note_first_failure()
        return found

    def search(self, case: Case, on_failing: OnFailing = lambda _: None) -> Search:
        """Bisect a case, or recall the result; an internal error leaves no culprit.

        `on_failing` is called as soon as the failure was seen in this process.
        """
        key = question_key(fingerprint(case, self.digests), case.signature, None)
        known = self.journal.recall(Search, key)
        if known is not None:
            return known
        seen: list[Judgement] = []

        def tell(judgement: Judgement) -> None:
            seen.append(judgement)
            on_failing(judgement)

        def keep(observed: ObservedCompile) -> None:
            self.observed = (case, observed)

        try:
            culprit = find_culprit(
                case,
                executor=self.oracle,
                on_progress=self.say,
                on_failing=tell,
                on_observed=keep,
            )
        except Exception as error:
            if not seen:
                raise
            self.record_errors("the bisection", error)
            return Search(seen[0], reason=f"the bisection raised {error_line(error)}")
        seen_last = culprit.judgement.signature
        if seen_last is None or not seen_last.is_cut_off:  # with another limit: another story
            self.journal.note(key, culprit)
        return culprit

    def _failing(self, case: Case, seen: Judgement, captured: Path | None) -> None:
        """Record that a case fails, and write the case, before the search for the culprit."""
        if self.found is not None:
            return
        self._note_first_failure()
        failing = record_decisions(replace(case, signature=seen.signature))
        if captured is not None and (not captured.is_dir() or describe(captured).problem):
            self.save(
                captured.name,
                lambda: save_case(failing, captured, inputs=self.keep, overwrite=True),
            )
        search = Search(seen, reason="the bisection is not done")
        self.found = Diagnosis(failing, search, 0.0, folder=self.folder)
        self.write(state="failing")

    def _note_first_failure(self) -> None:
        if self.journal.recall(FirstCompile, "") is None:
            self.journal.note("", FirstCompile(time.monotonic() - self.started))

    def write(self, **changes: object) -> Diagnosis:
        """Change the diagnosis, and write `diagnosis.json` unless all answers were remembered."""
        assert self.found is not None, "there is no diagnosis yet"
        seconds = time.monotonic() - self.started
        found = replace(self.found, seconds=seconds, problems=self._all_problems, **changes)
        self.found = found
        if found.state == "finished" or not self.journal.is_replay:
            self.save("diagnosis.json", lambda: write_json(found, self.folder))
        return found

    def finish(self, *, is_done: bool = True, **changes: object) -> Diagnosis:
        """Write the final diagnosis, and return it."""
        found = self.write(state="finished", left_options=self.left_options, **changes)
        if is_done and self.journal.recall(Done, "") is None:
            self.journal.note("", Done())
        is_saved = not self._unsaved and not self.journal.problem
        return replace(found, is_saved=is_saved, problems=self._all_problems, go_on=self.go_on)

    @property
    def _all_problems(self) -> tuple[str, ...]:
        problems = (*self._problems, *self._unsaved.values(), self.journal.problem)
        return tuple(problem for problem in problems if problem)

    def save(self, name: str, save: Callable[[], object]) -> bool:
        """Save a file and return whether it is on disk; the first failure is logged."""
        try:
            with defer_interrupts():
                save()
        except (CtkError, OSError) as error:
            self.record_unsaved(name, error)
            return False
        self._unsaved.pop(name, None)
        return True

    def record_unsaved(self, name: str, error: Exception) -> None:
        """Record a file that is not on disk; the first failure is logged."""
        if name not in self._unsaved:
            logger.warning("ctk: %s is not on disk: %s", name, error)
        self._unsaved[name] = f"{name} is not on disk: {error}"

    def record_errors(self, what: str, *errors: Exception) -> None:
        """Record internal errors that the operation survives, and keep their tracebacks."""
        for error in errors:
            self._problems.append(f"{what} raised {error_line(error)}")
            logger.debug("ctk: %s raised", what, exc_info=error)
        self.keep_tracebacks(errors)

    def record_problems(self, *problems: str) -> None:
        """Record problems for the report."""
        self._problems += problems

    def keep_tracebacks(self, errors: tuple[Exception, ...]) -> None:
        """Write the tracebacks of bugs beside the result, for a bug report."""
        bugs = [error for error in errors if not isinstance(error, CtkError | OSError)]
        if bugs:
            text = "\n".join("".join(traceback.format_exception(error)) for error in bugs)
            self.save(BUG, lambda: replace_file(self.folder / BUG, text.encode()))
