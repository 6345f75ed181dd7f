"""Play programs in a warm process, and judge whether they fail in a given way."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import ChildError
from ctk.compiler.usercode.references import files_of
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import decode, encode
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.execution.programs.program_protocol import Plan, PlayAnswer, PlayQuestion
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.memory import default_limit_nbytes
from ctk.toolkit.processes.scratch import remove_folder, scratch_root
from ctk.toolkit.processes.warm import WarmServer

TIMEOUT_SECONDS = 120.0
"""Default time limit of one side of a program."""

FILE = "program.py"
WORKER = "ctk.toolkit.execution.programs.program_worker"
_END_SECONDS = 2.0
"""How long the process may take to end after its stdin is closed."""

_NOT_STARTED = "the process that plays programs did not start"


class Player(Closeable):
    """Plays texts of programs; a context manager that ends its process.

    Args:
        path: The program that the texts are edits of: they can import its neighbours.
        memory_nbytes: Memory limit of one side and its processes; None: most of the free memory.
    """

    def __init__(
        self,
        path: Path,
        timeout_seconds: float = TIMEOUT_SECONDS,
        memory_nbytes: int | None = None,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.memory_nbytes = memory_nbytes or default_limit_nbytes()
        self.neighbours = files_of(path)[1:]
        self._from = path.resolve().parent
        self._folder: Path | None = None
        self._server: WarmServer | None = None

    def play(self, text: str, plan: Plan) -> PlayAnswer:
        """Play both sides of a program.

        Raises:
            CtkError: The process that plays has ended.
        """
        path = self._home() / FILE
        write_text(path, text)
        return self._answer(PlayQuestion(str(path), plan, self.timeout_seconds, self.memory_nbytes))

    def judge(self, text: str, plan: Plan, expected: Signature) -> Judgement:
        """Judge whether a program fails in the expected way."""
        return judge_answer(self.play(text, plan), expected)

    def make_oracle(
        self, plan: Plan, expected: Signature, passing: Plan | None = None
    ) -> Callable[[str], Judgement]:
        """Return the oracle of a reduction.

        Args:
            passing: A counterfactual plan with which it must pass, to keep the cause the same.
        """

        def ask(text: str) -> Judgement:
            judgement = self.judge(text, plan, expected)
            if passing is None or judgement.verdict is not Verdict.REPRODUCES:
                return judgement
            other = self.play(text, passing)
            is_same = not other.differences and not other.unanswered
            return judgement if is_same else replace(judgement, verdict=Verdict.DIFFERENT)

        return ask

    def _home(self) -> Path:
        """Return the folder of the played program and copies of its neighbours."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="program-", dir=scratch_root()))
            for file in self.neighbours:
                place = self._folder / file.relative_to(self._from)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(file.read_bytes())
        return self._folder

    def _answer(self, question: PlayQuestion) -> PlayAnswer:
        server = self._server = self._server or WarmServer.start(
            WORKER, failure=_NOT_STARTED, end_seconds=_END_SECONDS
        )
        try:
            server.send(encode(question))
            line = server.answers.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next question
            self.close()
            raise
        if not line:
            self.close()
            raise ChildError("the process that plays programs has ended; ask again")
        return decode(PlayAnswer, line, where="answer")

    def close(self) -> None:
        """End the process and remove its folder."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None


def judge_answer(seen: PlayAnswer, expected: Signature | None = None) -> Judgement:
    """Return the judgement of a played program.

    The first difference counts; with an expected failure, all differences of that call do: a wrong
    value in a call often changes Python state as well.
    """
    if seen.unanswered:
        return Judgement(Verdict.FLAKY if seen.is_flaky else Verdict.INVALID, None, seen.unanswered)
    if seen.excuse is not None:
        return Judgement(seen.excuse, detail=seen.detail)
    if not seen.differences:
        return Judgement(Verdict.PASSES, detail="the calls of the program agree with eager")
    first = seen.differences[0]
    for difference in seen.differences:
        is_wanted = expected is None or expected.matches(difference.signature)
        if difference.call == first.call and is_wanted:
            return Judgement(Verdict.REPRODUCES, difference.signature, difference.detail)
    return Judgement(Verdict.DIFFERENT, first.signature, first.detail)
