"""A search over releases with its answers on disk, so that it can be resumed.

OUT/journal.jsonl     each answer; with `--resume` none is asked again, and a release that could not
                      be installed is tried again
OUT/repro/repro.py    the script of a case; a script of the user is asked in its place
"""

import hashlib
import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.usercode.program import has_own_options
from ctk.toolkit.operations.options import VersionOptions
from ctk.toolkit.operations.session.operation_folder import (
    PREFIXES,
    digest_of,
    leave,
    open_journal,
)
from ctk.toolkit.operations.session.running_operation import Done
from ctk.toolkit.operations.versions.questions import (
    Asker,
    VersionAnswer,
    VersionQuestion,
    ask_together,
)
from ctk.toolkit.operations.versions.subject_script import ScriptWriter, script_of, with_target
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import Header, Journal
from ctk.toolkit.oracle.open_subject import OpenSubject, open_subject
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.processes.scratch import remove_folder
from ctk.toolkit.releases.interpreters import this_python
from ctk.toolkit.repro.run import REPRO
from ctk.toolkit.repro.script import DATA_FILE

REPRO_FOLDER = "repro"
_NUMPY = re.compile(r"^\s*(?:import|from) numpy\b", re.MULTILINE)
_SESSION = ("out", "resume", "say", "trust")


@dataclass(frozen=True, slots=True)
class OpenSearch:
    """The folder of a search, and the script that it asks about.

    Attributes:
        folder: Holds the journal.
    """

    script: Path
    folder: Path
    journal: Journal
    options: VersionOptions


@contextmanager
def open_search(subject: str, options: VersionOptions) -> Generator[OpenSearch]:
    """Find or write the script of a subject, and open the journal; closed at the end.

    Raises:
        CaseError: There is no such folder to resume, it is in use, or its subject is another one.
        CtkError: The subject cannot be loaded, or has no script.
    """
    own = script_of(subject)
    if own is not None:
        with _open_folder(subject, own.stem, options, (digest_of(own),), lambda _: own) as found:
            yield found
        return
    with ExitStack() as stack:
        options, it = _open_with_target(subject, options, stack)
        digests = Digests()
        cases = tuple(fingerprint(case, digests) for case in it.cases)
        needs_nothing = not (options.packages or options.pythons)
        writer = ScriptWriter(it, needs_nothing, options.say)
        with _open_folder(subject, it.source.name, options, cases, writer.write) as found:
            yield found


def _open_with_target(
    subject: str, options: VersionOptions, stack: ExitStack
) -> tuple[VersionOptions, OpenSubject]:
    """Open a subject until the stack ends; return it with the options that name its target.

    Raises:
        ConfigError: An option is not allowed, such as one of ctk's own pipeline in `config()`.
    """
    chosen = with_target(subject, options)
    try:
        return chosen, stack.enter_context(open_subject(subject, None, chosen))
    except ConfigError as error:
        if chosen.target == options.target or not has_own_options(subject):
            raise
        raise ConfigError(
            f"{subject} names no target, so releases are asked with {chosen.target}: {error}\n"
            f"{chosen.target} takes no option of ctk's own pipeline, which is not part of a "
            f"release of torch; next: a copy of {subject} whose config() has options of "
            f"{chosen.target}"
        ) from error


@contextmanager
def _open_folder(
    subject: str,
    name: str,
    options: VersionOptions,
    cases: tuple[str, ...],
    write: Callable[[Path], Path],
) -> Generator[OpenSearch]:
    names = (field.name for field in fields(options) if field.name not in _SESSION)
    stored = {name: getattr(options, name) for name in names}
    header = Header(
        operation="bisect-version",
        subject=subject,
        options=json.loads(json.dumps(stored, default=repr)),
        inputs="full",
        cases=cases,
        sources={},
    )
    default = f"{PREFIXES['bisect-version']}_{name}"
    with open_journal(options.out, default, header, resume=options.resume, say=options.say) as (
        journal,
        folder,
        go_on,
    ):
        place = folder / REPRO_FOLDER
        try:
            script = write(place)
            yield OpenSearch(script, folder, journal, _with_numpy(script, options))
            if journal.recall(Done, "") is None:
                journal.note("", Done())
        except BaseException as error:
            if journal.is_empty:
                remove_folder(place)
            leave(journal, folder, go_on, error)
            raise


def _with_numpy(script: Path, options: VersionOptions) -> VersionOptions:
    """Return the options, with numpy for a script that imports it."""
    text = script.read_text(encoding="utf-8", errors="replace")
    has_numpy = any(re.match(r"numpy\b", each) for each in options.packages)
    if has_numpy or not _NUMPY.search(text):
        return options
    return replace(options, packages=(*options.packages, "numpy"))


class JournaledAsker:
    """Asks questions at the same time, unless the journal has their answers.

    Attributes:
        asked: Number of questions that were asked.
    """

    def __init__(self, search: OpenSearch, asker: Asker, say: Say) -> None:
        self._journal, self._asker, self._say = search.journal, asker, say
        self._subject = _digest_of_script(search.script, search.options)
        self.asked = 0

    def ask(self, questions: Sequence[VersionQuestion]) -> Mapping[VersionQuestion, VersionAnswer]:
        """Return the answers; each new one is on disk as soon as it is known."""
        known = {each: self._journal.recall(VersionAnswer, self._key(each)) for each in questions}
        new = [question for question, answer in known.items() if answer is None]
        answers = {question: answer for question, answer in known.items() if answer is not None}
        if new:
            self.asked += len(new)
            self._say(f"ask {', '.join(question.name for question in new)}")
            answers |= ask_together(new, self._asker.ask, self._note)
        return answers

    def _note(self, question: VersionQuestion, answer: VersionAnswer) -> None:
        self._say(f"{question.name}: {answer.outcome} ({answer.reason})")
        if answer.versions is not None:
            self._journal.note(self._key(question), answer)

    def _key(self, question: VersionQuestion) -> str:
        python = question.interpreter and f" torch {question.torch.version} {question.triton}"
        return f"{question.name}{python or ''} {self._subject}"


def _digest_of_script(script: Path, options: VersionOptions) -> str:
    """Return a digest of all that an answer depends on, but for the release."""
    files = [script, *([script.parent / DATA_FILE] if script.name == REPRO else [])]
    parts = [this_python(), options.index, *options.packages, *map(digest_of, files)]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
