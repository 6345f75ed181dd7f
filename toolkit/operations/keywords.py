"""Public operations: a subject, its inputs, and the fields of an options class as keywords.

    @takes_keywords(CheckOptions)
    def check(subject, inputs, options): ...        check(net, x, timeout_seconds=60)

A type checker reads the keywords off the constructor of the class, `help` off the signature. An
exception of a process that has lost CUDA is raised as `LostAccelerator`, and the lack of a private
name of torch as `MissingTorchName`.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_args

from ctk.compiler.errors import CtkError, LostAccelerator
from ctk.compiler.installed_torch import missing_names_refused, warn_if_untested
from ctk.compiler.observe import first_line
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.options import AnyOptions, options_of
from ctk.toolkit.oracle.questions.judge import NEXT_ISOLATE
from ctk.toolkit.processes.accelerator import has_lost_cuda

P = ParamSpec("P")
Result = TypeVar("Result")
Returned = TypeVar("Returned", covariant=True)


class PublicOperation(Protocol[P, Returned]):
    """An operation as callers see it; `P` are the parameters of its options class."""

    def __call__(
        self, subject: Subject, inputs: Inputs | None = None, *args: P.args, **options: P.kwargs
    ) -> Returned: ...


def takes_keywords(
    options_class: Callable[P, AnyOptions],
) -> Callable[[Callable[[Subject, Inputs | None, AnyOptions], Result]], PublicOperation[P, Result]]:
    """Let an operation take the fields of its options class as keywords."""

    def decorate(
        run: Callable[[Subject, Inputs | None, AnyOptions], Result],
    ) -> PublicOperation[P, Result]:
        @functools.wraps(run)
        def call(subject: Subject, inputs: Inputs | None = None, **keywords: Any) -> Result:
            options = options_of(options_class, keywords)
            warn_if_untested()
            with missing_names_refused(), _raise_lost_accelerator():
                return run(subject, inputs, options)

        public: Any = call
        public.__signature__ = _signature(call, options_class)
        return cast("PublicOperation[P, Result]", public)

    return decorate


@contextlib.contextmanager
def _raise_lost_accelerator() -> Generator[None]:
    """Raise `LostAccelerator` in place of an exception that a broken CUDA has caused."""
    try:
        yield
    except CtkError:
        raise
    except Exception as error:
        if not has_lost_cuda():
            raise
        raise LostAccelerator(f"{first_line(error)}\n{NEXT_ISOLATE}") from error


def _signature(call: Callable[..., object], options_class: Callable[..., object]) -> Any:
    """Return the signature that spells the keywords out, without their command-line flags."""
    own = inspect.signature(call, follow_wrapped=False)
    fields = [
        parameter.replace(annotation=_plain(parameter.annotation))
        for parameter in inspect.signature(options_class).parameters.values()
    ]
    positional = [
        parameter
        for parameter in own.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return own.replace(parameters=[*positional, *fields])


def _plain(annotation: Any) -> Any:
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
