"""Run questions in this process: fastest, but a crash of the compiled program ends it."""

from ctk.compiler.errors import LostAccelerator
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.isolation import ask_in_isolation
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.processes.accelerator import has_lost_cuda


class InProcess(Executor):
    """Judges in this process."""

    isolates = False

    def judge(self, question: Question) -> Judgement:
        """Judge a case in this process, without limits.

        Raises:
            LostAccelerator: An earlier question has broken CUDA.
        """
        if has_lost_cuda():
            raise LostAccelerator(
                "CUDA does not work in this process any more: a kernel that ran before broke it\n"
                "next: --isolate asks in child processes"
            )
        observer = Recorder(question.veto) if question.veto else None
        return judge(question.case, expected=question.expected, observer=observer)

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program in this process; in children once CUDA is lost here."""
        if not has_lost_cuda():
            answer = ask(question)
            if not has_lost_cuda():
                return answer
        return ask_in_isolation(question, None, None)


def _serves(needs: Needs) -> bool:
    return needs.jobs.executor == "local"


EXECUTOR = ExecutorKind("in_process", _serves, lambda needs: InProcess())
