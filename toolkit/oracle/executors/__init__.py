"""Who runs a question: this process, or a child that may crash or hang.

Adding a way is one file with an `EXECUTOR` and one line in `EXECUTORS`.
"""

from collections.abc import Iterable, Sequence

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.executors import child, in_process
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs

EXECUTORS: tuple[ExecutorKind, ...] = (child.EXECUTOR, in_process.EXECUTOR)
"""In the order in which they are asked; the first that serves the needs runs the questions."""


def executor_for(
    cases: Iterable[Case],
    *,
    isolate: bool | None = None,
    timeout_seconds: float | None = None,
    allow_imports: Sequence[str] = (),
) -> Executor:
    """Return who runs the questions about some cases; to be used in a `with` block.

    Args:
        cases: What will be asked about; a recorded crash or hang needs a child.
        isolate: Whether to ask in children; None leaves the choice to the other arguments.
        timeout_seconds: Longest that one question may take; needs a child.
        allow_imports: Modules that loading a case may import.

    Raises:
        ConfigError: A time limit without a child.
    """
    if isolate is False and timeout_seconds is not None:
        raise ConfigError(
            "--timeout works in a child process only; leave out --no-isolate or --timeout"
        )
    is_deadly = any(case.signature and case.signature.is_deadly for case in cases)
    needs = Needs(isolate, timeout_seconds, tuple(allow_imports), is_deadly)
    return next(kind for kind in EXECUTORS if kind.serves(needs)).start(needs)
