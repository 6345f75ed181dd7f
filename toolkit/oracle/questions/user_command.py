"""A program of the user as the oracle: it gets the candidate as files, and its exit is the answer.

    python check.py {case}      `{case}` is the folder of the candidate, `{repro}` a script of it

1. With a pattern: the case fails if the output matches.
2. Without: its exit code decides, as for `ctk bisect-pass --command` (processes/commands.py).
3. A run that does not end is a `timeout`; it is the failure only if the given case does the same.

The program starts without a shell. A mark within text of several words (`sh -c "grep x {repro}"`)
is replaced by a path in shell quotes, any other one by the plain path.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from re import Pattern

from ctk.compiler.errors import CaseError
from ctk.compiler.options.choices import SameRule
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import temporary_folder
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.oracle.questions.choice import CASE, REPRO
from ctk.toolkit.processes.commands import (
    OUTPUT_NBYTES,
    CommandEnd,
    describe_exit,
    read_outcome,
    run_command_group,
)
from ctk.toolkit.processes.scratch import scratch_root
from ctk.toolkit.repro.run import write_repro

LONGEST_SECONDS = 600.0
"""Longest time of a run without `--timeout`; candidates have less."""

HANGS = "no end"

_TAIL_LINES = 8


@dataclass(slots=True)
class CommandOracle:
    """Asks a program about cases.

    Attributes:
        match: Pattern of a failure in its output; None: its exit code decides.
        same: `strict`: it must end as with the given case; `any`: a run without end also counts.
    """

    words: tuple[str, ...]
    match: Pattern[str] | None = None
    same: SameRule | None = None
    limit_seconds: float = LONGEST_SECONDS
    given: str | None = None

    @property
    def identity(self) -> str:
        """Names the oracle in the journal."""
        pattern = self.match.pattern if self.match else None
        text = json.dumps([self.words, pattern, self.same])
        return f"command {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Run the program on a case.

        Raises:
            ProgramError: The program cannot be started.
            StorageError: The candidate cannot be written.
        """
        if known_only:
            raise NotKnown
        with temporary_folder("ctk-command-", scratch_root()) as folder:
            try:
                case_folder, script = self._write(question.case, folder)
            except CaseError as error:
                return Judgement(Verdict.INVALID, detail=f"it cannot be written: {error}")
            return self.judge_saved(case_folder, script, question.deadline_seconds)

    def judge_saved(
        self, folder: Path, script: Path, deadline_seconds: float | None = None
    ) -> Judgement:
        """Run the program on a case that is on disk."""
        words = fill_words(self.words, {CASE: str(folder), REPRO: str(script)})
        seconds = self.limit_seconds if deadline_seconds is None else deadline_seconds
        ended = run_command_group(words, seconds=seconds)
        judgement = self._judge_run(ended, seconds)
        if ended.exceeded == "time":  # with a pattern, its output may have decided by then
            return replace(judgement, seconds=seconds if judgement.is_out_of_time else None)
        return replace(judgement, seconds=ended.seconds)

    def remember(self, judgement: Judgement) -> None:
        """Hold candidates to a failure of the given case."""
        if self.given is None and judgement.signature is not None:
            self.given = judgement.signature.message

    def _write(self, case: Case, folder: Path) -> tuple[Path, Path]:
        place = folder / "case"
        if any(CASE in word for word in self.words):
            save_case(case, place, inputs="full", portable=False)
        else:
            place.mkdir()
        if any(REPRO in word for word in self.words):
            return place, write_repro(case, place)
        return place, place / "repro.py"

    def _judge_run(self, ended: CommandEnd, seconds: float) -> Judgement:
        """Return the judgement of a run.

        Cases: 1. its output matches; 2. it was ended by a limit; 3. there is a pattern, and it did
        not match; 4. its exit code.
        """
        if self.match is not None and (found := self.match.search(ended.output)):
            return self._failing(f"its output matches: {one_line(found[0])[:200]}", ended)
        if ended.exceeded is not None:
            return self._judge_cut_off(ended, seconds)
        code = ended.code
        assert code is not None, "a run that was not ended by a limit has an exit code"
        outcome = read_outcome(code)
        if outcome == "cannot tell":
            return Judgement(Verdict.INVALID, detail=_describe_run(describe_exit(code), ended))
        if self.match is not None:
            return Judgement(
                Verdict.PASSES, detail=_describe_run("its output does not match", ended)
            )
        if outcome == "good":
            return Judgement(Verdict.PASSES, detail=_describe_run(describe_exit(code), ended))
        return self._failing(describe_exit(code), ended)

    def _judge_cut_off(self, ended: CommandEnd, seconds: float) -> Judgement:
        if ended.exceeded == "output":
            said = f"it printed more than {OUTPUT_NBYTES >> 20} MiB and was ended"
            return Judgement(Verdict.INVALID, detail=_describe_run(said, ended))
        judgement = self._failing(HANGS, ended)
        if judgement.verdict is Verdict.REPRODUCES:
            return judgement
        detail = f"not done after {seconds:g} s"
        return Judgement(Verdict.TIMEOUT, judgement.signature, _describe_run(detail, ended))

    def _failing(self, message: str, ended: CommandEnd) -> Judgement:
        is_same = self.given is None or _is_same(self.given, message, self.same)
        verdict = Verdict.REPRODUCES if is_same else Verdict.DIFFERENT
        kind = "timeout" if message == HANGS else "oracle"
        return Judgement(verdict, Signature(kind, message=message), _describe_run(message, ended))


def _is_same(given: str, message: str, rule: SameRule | None) -> bool:
    """Return whether two ends are the same: `strict` in all words, `type` of one sort.

    >>> [_is_same("exit code 1", "exit code 2", rule) for rule in ("any", None, "type", "strict")]
    [True, True, True, False]
    >>> [_is_same("exit code 1", "signal SIGSEGV", rule) for rule in ("any", None, "type")]
    [True, True, False]
    """
    if rule == "any":
        return True
    if rule is None:
        return (given == HANGS) == (message == HANGS)
    return given == message if rule == "strict" else given.split()[0] == message.split()[0]


def fill_words(words: tuple[str, ...], places: Mapping[str, str]) -> list[str]:
    """Return words with their marks replaced; within text of several words, quoted for a shell.

    >>> fill_words(("sh", "-c", "grep x {repro}", "{repro}"), {"{repro}": "a b.py"})
    ['sh', '-c', "grep x 'a b.py'", 'a b.py']
    """
    done: list[str] = []
    for word in words:
        is_text = len(word.split()) > 1
        for mark, place in places.items():
            word = word.replace(mark, shlex.quote(place) if is_text else place)
        done.append(word)
    return done


def _describe_run(what: str, ended: CommandEnd) -> str:
    """Return how a run ended, and its last lines of output."""
    lines: list[str] = []
    with suppress(IndexError):
        lines = [one_line(line)[:200] for line in ended.output.rstrip().splitlines()[-_TAIL_LINES:]]
    return "\n  ".join([f"{what} after {ended.seconds:.1f} s", *lines])
