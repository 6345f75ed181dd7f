"""Compare the first calls of what a program compiled with its own eager calls, end to end.

The check of a graph begins at the captured graph; what Dynamo captured wrongly, a guard that is
missing, and what is wrapped around compiled graphs shows only here: results, exceptions, mutated
arguments, parameters and buffers, aliasing, Python state.

    before the program's call: a copy of the process (before_call.py)
    the program's own call
    the copy makes it in eager                       equal: done, nothing else is run
    it differs: again in eager, with Dynamo's backend `eager`, and compiled anew

Which differences count: one that Dynamo's backend `eager` shows too (layer dynamo); one at a later
call that a fresh compile does not show (guards); and what no graph can show: aliasing, Python
state, nesting, exceptions (layer runtime). Other numbers are left to the graph's own check, which
has a float64 reference.

What it does not do: calls in processes that cannot be copied, with several threads or CUDA, and
calls inside of such a call. The program's call is made already, so nothing can fall back.
"""

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from ctk.compiler.errors import MiscompileError
from ctk.compiler.torch_compat import dynamo
from ctk.compiler.torch_compat.stance import eager_stance
from ctk.repro_templates.program_play import held_by, one_call
from ctk.repro_templates.program_sides import DEFAULTS, Difference, differences
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.formats.files import write_text
from ctk.toolkit.formats.schema import encode
from ctk.toolkit.watch.before_call import Keeper, why_not
from ctk.toolkit.watch.dump import guarded
from ctk.toolkit.watch.session import Failure, Session

logger = logging.getLogger("ctk")

NO_GRAPH_SHOWS = ("alias", "requires-grad", "state", "structure", "missing-error", "other-error")

MOST_NBYTES = 1 << 29
"""With more parameters and buffers than this a call is not compared: they are written to disk."""

_CHECKING: ContextVar[bool] = ContextVar("ctk_checking_a_call", default=False)
"""Whether this thread is inside of a checked call, or in a copy of the process."""


def is_checking() -> bool:
    """Return whether this is a copy of the process that a check has made, or a call in one."""
    return _CHECKING.get()


@dataclass(slots=True, eq=False)
class WatchedCalls:
    """The calls of one compiled callable.

    Attributes:
        session: The books.
        target: Name of what compiles it.
        function: What was compiled.
        compiled: Its compiled form.
        made: How many calls were made so far.
    """

    session: Session
    target: str
    function: Callable[..., Any]
    compiled: Callable[..., Any]
    made: int = 0
    _lock: list[str] = field(default_factory=list[str])

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Make the program's call; check it if it is one of the first."""
        options = self.session.options
        is_over = self.made >= options.calls or options.check == "off"
        if is_over or _CHECKING.get() or torch.compiler.is_compiling():
            return self.compiled(*args, **kwargs)
        self.made += 1
        if why := why_not() or _too_large(_root(self.function)):
            self.session.add_uncompared(why)
            return self.compiled(*args, **kwargs)
        token = _CHECKING.set(True)
        try:
            return self._checked(args, kwargs)
        finally:
            _CHECKING.reset(token)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        keepers: list[Keeper] = []
        play = functools.partial(self._played, args, kwargs)
        what = f"call {self.made} of {self}"
        guarded(lambda: keepers.append(Keeper.start(play)), f"copying the process before {what}")
        if not keepers:
            return self.compiled(*args, **kwargs)
        with keepers[0] as keeper:
            seen: dict[str, Any] = {}
            before = len(self.session.failures)
            token = _CHECKING.set(False)  # graphs of this call are watched as ever
            try:
                result = self.compiled(*args, **kwargs)
            except Exception as error:
                if len(self.session.failures) == before:  # else a graph has shown it
                    self._judge(keeper, _read(self.function, args, kwargs, error=error))
                raise
            finally:
                _CHECKING.reset(token)
            if len(self.session.failures) == before:
                seen = _read(self.function, args, kwargs, result=result)
                self._judge(keeper, seen)
        return result

    def _judge(self, keeper: Keeper, real: Mapping[str, Any]) -> None:
        """Compare what the program's call gave with the copies' calls, and tell what differs."""
        found: list[EndToEnd] = []
        what = f"comparing call {self.made} of {self} with eager"
        guarded(lambda: found.extend(self._judged(keeper, real)), what)
        for answer in found:
            self._tell(answer, in_error=any(name.endswith(".error") for name in real))

    def _judged(self, keeper: Keeper, real: Mapping[str, Any]) -> list[EndToEnd]:
        eager = keeper.asked("eager")
        if "died" in eager:
            why = f"the copy of the process that made it in eager ended ({eager['died']})"
            self.session.add_uncompared(why)
            return []
        apart = differences(eager, real, {}, DEFAULTS)
        if not apart:
            return []
        unsteady = {each.name for each in differences(eager, keeper.asked("eager"), {}, DEFAULTS)}
        apart = [each for each in apart if each.name not in unsteady]
        return self._placed(keeper, eager, apart) if apart else []

    def _placed(
        self, keeper: Keeper, eager: Mapping[str, Any], apart: Sequence[Difference]
    ) -> list[EndToEnd]:
        dynamo_alone = _names(eager, keeper.asked("dynamo"))
        both = [each for each in apart if each.name in dynamo_alone]
        if both:
            said = "with Dynamo's backend `eager` the call gives the same wrong result"
            return [self._answer(both[0], "dynamo", "capture", said)]
        if self.made > 1:
            anew = _names(eager, keeper.asked("fresh"))
            stale = [each for each in apart if each.name not in anew]
            if stale:
                said = f"compiled anew before call {self.made}, it gives what eager gives"
                return [self._answer(stale[0], "dynamo", "guards", said, confirmed=True)]
        only = [each for each in apart if each.kind in NO_GRAPH_SHOWS]
        said = "with Dynamo's backend `eager` the call gives what eager gives"
        return [self._answer(only[0], "runtime", "", said)] if only else []

    def _answer(
        self, found: Difference, layer: Any, cause: str, said: str, *, confirmed: bool = False
    ) -> EndToEnd:
        kind: FailureKind = found.kind  # type: ignore[assignment]  # the template's words are these
        name = f"call{self.made}.{found.name.partition('.')[2]}"
        message = " ".join(found.detail.split())
        signature = Signature(kind, found.exception, output=name, message=message)
        is_state = kind in ("state", "alias") and cause == "capture"
        return EndToEnd(
            Judgement(Verdict.REPRODUCES, signature, message),
            call=self.made,
            layer=layer,
            cause="side_effects" if is_state else cause,
            line=_place(self.function),
            evidence=(said,),
            confirmed=confirmed,
        )

    def _tell(self, answer: EndToEnd, *, in_error: bool) -> None:
        """Note a failure in the books and on disk, and do what the options say.

        Raises:
            MiscompileError: With `on_failure="raise"`, unless the call raised already.
        """
        cause = f" ({answer.cause})" if answer.cause else ""
        summary = f"{answer.judgement.signature}; layer {answer.layer}{cause}, {answer.line}"
        name = f"call{self.made} of {self}"
        path = self.session.folder / f"call_{len(self.session.failures)}.json"
        text = json.dumps(encode(answer), indent=2) + "\n"
        guarded(lambda: write_text(path, text), f"saving {path}")
        self.session.add_failure(Failure(name, path, summary, is_saved=False))
        said = f"ctk: {name} fails with target {self.target}: {summary}\n  saved in {path}"
        logger.warning("%s", said)
        if self.session.options.on_failure == "raise" and not in_error:
            raise MiscompileError(said)

    def _played(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], way: str
    ) -> Mapping[str, object]:
        """Make the call in a copy of the process."""
        _CHECKING.set(True)
        around: AbstractContextManager[Any] = nullcontext()
        call = self.function
        if way == "eager":
            around = eager_stance()
        else:
            torch.compiler.reset()
            call = self.compiled
        if way == "dynamo":
            call = torch.compile(self.function, backend="eager")
        with around:
            return _named(one_call(_program(self.function), _root(self.function), call,
                                   (args, kwargs), DEFAULTS))  # fmt: skip

    def __str__(self) -> str:
        owner = _root(self.function)
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return type(owner).__name__ if isinstance(owner, torch.nn.Module) else str(name)


def _too_large(model: object) -> str:
    """Return why the state of a model is not compared; empty if it is."""
    nbytes = sum(each.nbytes for each in held_by(model).values())
    return f"more than {MOST_NBYTES} bytes of parameters" if nbytes > MOST_NBYTES else ""


def _names(eager: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    if "died" in other:
        return set()
    return {each.name for each in differences(eager, other, {}, DEFAULTS)}


def _root(function: Callable[..., Any]) -> object:
    """Return the model that a callable belongs to, or itself."""
    owner = getattr(function, "__self__", None)
    return owner if owner is not None else function


def _program(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names of the module that a callable, or the class of its model, stands in."""
    owner = _root(function)
    forward = getattr(type(owner), "forward", None) if owner is not function else function
    names: dict[str, Any] = getattr(forward, "__globals__", {})
    return names


def _place(function: Callable[..., Any]) -> str:
    """Return `FILE:LINE` of a callable."""
    owner = _root(function)
    forward = getattr(type(owner), "forward", None) if owner is not function else function
    code = getattr(forward, "__code__", None)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code else ""


def _read(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    result: Any = None,
    error: Exception | None = None,
) -> dict[str, Any]:
    """Return what a call gave that the program has made."""

    def made(*_: Any, **__: Any) -> Any:
        if error is not None:
            raise error
        return result

    with torch.no_grad():
        given = (args, kwargs)
        return _named(one_call(_program(function), _root(function), made, given, DEFAULTS))


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"call.{name}": value for name, value in values.items()}


def watch_calls(session_of: Callable[[object], Session | None]) -> Callable[[], None]:
    """Compare the first calls of what is compiled from now on; return the undo function.

    Args:
        session_of: Returns the session that watches a backend; None for one that is not watched.
    """

    def wrapped(compiled: Any, function: Any, backend: object) -> Any:
        session = session_of(backend)
        if session is None or _CHECKING.get():
            return compiled
        name = str(getattr(backend, "compiler_name", "?"))
        calls = WatchedCalls(session, name, function, compiled)

        @functools.wraps(compiled)
        def ctk_watched_call(*args: Any, **kwargs: Any) -> Any:
            return calls.call(*args, **kwargs)

        return ctk_watched_call

    return dynamo.wrap_compiled_calls(wrapped)
