"""Run questions in this process: fastest, but a crash of the compiled program is ours."""

from ctk.compiler.errors import CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.apart import ask_apart
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.processes.accelerator import has_lost_cuda


class InProcess(Executor):
    """Judges in this process."""

    isolates = False

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        within: float | None = None,
    ) -> Judgement:
        """Judge a case here; nothing ends it, however long it takes.

        Raises:
            CtkError: An earlier question has broken CUDA.
        """
        if has_lost_cuda():
            raise CtkError(
                "CUDA does not work in this process any more: a kernel that ran before broke it\n"
                "next: --isolate asks in child processes"
            )
        return judge(case, expected=expected, observer=Recorder(veto) if veto else None)

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program here; in children once CUDA is lost here."""
        if not has_lost_cuda():
            found = ask(question)
            if not has_lost_cuda():
                return found
        return ask_apart(question, None, None)


def _serves(needs: Needs) -> bool:
    return needs.jobs.executor == "local"


EXECUTOR = ExecutorKind("in_process", _serves, lambda needs: InProcess())
