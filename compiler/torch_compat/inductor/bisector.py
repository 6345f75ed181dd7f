"""torch's own bisector: its backends, the options that it changes, the form of its result."""

from typing import Any

from ctk.compiler.torch_compat.inductor.inductor_api import known_options


def backends_below_inductor() -> tuple[str, ...]:
    """Return its backends without Inductor, from the least of a compiler to the most."""
    from torch._inductor.compiler_bisector import BACKENDS

    return tuple(backend for backend in BACKENDS if backend != "inductor")


def inductor_changes() -> tuple[tuple[str, object], ...]:
    """Return the options of Inductor, with values, that it tries: one each, and nothing else."""
    from torch._inductor.compiler_bisector import BACKENDS, ConfigChange

    changes: list[Any] = [each for each in BACKENDS["inductor"] if isinstance(each, ConfigChange)]
    known = known_options()
    pairs = [(change.config_field, change.config_value) for change in changes]
    return tuple((name, value) for name, value in pairs if name in known)


def result_text(backend: str, subsystem: str | None, debug_info: str | None) -> str:
    """Return a result as its `print` shows it; `bisect_number` counts applications as it does."""
    from torch._inductor.compiler_bisector import BisectionResult

    return repr(BisectionResult(backend, subsystem, None, debug_info))
