"""Who runs a command's questions: this process, or a child that may crash or hang."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ctk.compiler.errors import ConfigError

if TYPE_CHECKING:
    from ctk.toolkit.case.case import Case
    from ctk.toolkit.oracle.executors import Executor

KINDS_FOR_A_CHILD = ("signal", "timeout")


def child_for(
    cases: Iterable["Case"],
    *,
    isolate: bool | None,
    timeout_seconds: float | None,
    allow_import: Sequence[str] | None,
) -> "Executor | None":
    """Return a child process when the options or a recorded crash ask for one, else None."""
    from ctk.toolkit.oracle.executors import ChildProcess

    executor = executor_for(
        cases, isolate=isolate, timeout_seconds=timeout_seconds, allow_import=allow_import
    )
    return executor if isinstance(executor, ChildProcess) else None


def executor_for(
    cases: Iterable["Case"],
    *,
    isolate: bool | None,
    timeout_seconds: float | None,
    allow_import: Sequence[str] | None,
) -> "Executor":
    """Return the executor that the options ask for.

    Args:
        cases: What will be asked about; a recorded crash or hang needs a child.
        isolate: `--isolate`; None leaves the choice to the other arguments.
        timeout_seconds: `--timeout`; needs a child.
        allow_import: Modules that loading a case may import.

    Raises:
        ConfigError: `--timeout` with `--no-isolate`.
    """
    from ctk.toolkit.oracle.executors import ChildProcess, InProcess

    if isolate is False and timeout_seconds is not None:
        raise ConfigError(
            "--timeout works in a child process only; leave out --no-isolate or --timeout"
        )
    is_deadly = any(case.signature and case.signature.kind in KINDS_FOR_A_CHILD for case in cases)
    if isolate or (isolate is None and (timeout_seconds is not None or is_deadly)):
        return ChildProcess(timeout_seconds, allow_imports=tuple(allow_import or ()))
    return InProcess()
