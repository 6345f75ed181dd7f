"""Run questions in this process: fastest, but a crash of the compiled program is ours."""

from ctk.compiler.errors import CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.oracle.judgement import Judgement
from ctk.toolkit.run.execute import has_lost_cuda


class InProcess(Executor):
    """Judges in this process."""

    isolates = False

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        """Judge a case here.

        Raises:
            CtkError: An earlier question has broken CUDA.
        """
        if has_lost_cuda():
            raise CtkError(
                "CUDA does not work in this process any more: a kernel that ran before broke it\n"
                "next: --isolate asks in child processes"
            )
        return judge(case, expected=expected, observer=Recorder(veto) if veto else None)


EXECUTOR = ExecutorKind("in_process", lambda needs: True, lambda needs: InProcess())
