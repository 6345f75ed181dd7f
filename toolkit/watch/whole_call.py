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

It does not calls in processes that cannot be copied, with several threads or CUDA, and
calls inside of such a call. The program's call is made already, so nothing can fall back.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch

from ctk.compiler.errors import MiscompileError, PrecisionRefused
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.graph.running import generator_states
from ctk.repro_templates.program.program_arguments import Arguments
from ctk.repro_templates.program.program_compare import (
    CallDifference,
    Comparison,
    EagerPlays,
    compare_plays,
)
from ctk.repro_templates.program.program_play import How, Played, one_call, what_is_left
from ctk.repro_templates.program.program_sides import Died, played_by
from ctk.repro_templates.program.program_state import tensors_of
from ctk.repro_templates.program.program_values import packed
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.watch.dump import guarded
from ctk.toolkit.watch.process_fork import Keeper, why_not
from ctk.toolkit.watch.watch_session import Failure, Session

logger = logging.getLogger("ctk")

NO_GRAPH_SHOWS = ("alias", "requires-grad", "state", "structure", "missing-error", "other-error")

MOST_NBYTES = 1 << 29
"""With more parameters and buffers than this a call is not compared: they are written to disk."""

_SAID = {
    "passes": "the call gives what eager gives",
    "fails": "the call gives something else",
    "flaky": "the call could not be compared",
}

_IN_CALL: ContextVar[bool] = ContextVar("ctk_in_a_compared_call", default=False)
_IN_COPY: ContextVar[bool] = ContextVar("ctk_in_a_copy_of_the_process", default=False)


def in_copy() -> bool:
    """Return whether this is a copy of the process that a check has made: nothing is watched."""
    return _IN_COPY.get()


@dataclass(slots=True, eq=False)
class WatchedCalls:
    """The calls of one compiled callable.

    Attributes:
        session: The books.
        target: Name of what compiles it.
        function: What was compiled.
        compiled: Its compiled form.
        dynamic: As `torch.compile` was told.
        made: How many calls were made so far.
    """

    session: Session
    target: str
    function: Callable[..., Any]
    compiled: Callable[..., Any]
    dynamic: bool | None = None
    made: int = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Make the program's call; check it if it is one of the first."""
        options = self.session.options
        is_over = self.made >= options.calls or options.check == "off"
        if is_over or _IN_CALL.get() or torch.compiler.is_compiling():
            return self.compiled(*args, **kwargs)
        self.made += 1
        if why := self._why_not():
            self.session.add_uncompared(why)
            return self.compiled(*args, **kwargs)
        token = _IN_CALL.set(True)
        try:
            return self._checked(args, kwargs)
        finally:
            _IN_CALL.reset(token)

    def _why_not(self) -> str:
        """Return why a call cannot be compared; empty if it can."""
        found = ["its state cannot be read"]
        guarded(lambda: found.append(why_not() or _too_large(_root(self.function))), "a look at it")
        return found[-1]

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        keepers: list[Keeper] = []
        play, model = partial(self._played, args, kwargs), _root(self.function)
        what = f"call {self.made} of {self}"
        guarded(lambda: keepers.append(Keeper.start(play)), f"copying the process before {what}")
        if not keepers:
            return self.compiled(*args, **kwargs)
        with keepers[0] as keeper:
            before, drawn = len(self.session.failures), generator_states()
            try:
                result = self.compiled(*args, **kwargs)
            except Exception as error:
                if len(self.session.failures) == before:  # else a graph has shown it
                    given = Arguments(args, kwargs)
                    self._judge(keeper, partial(what_is_left, model, given, drawn, None, error))
                raise
            if len(self.session.failures) == before:
                given = Arguments(args, kwargs)
                self._judge(keeper, partial(what_is_left, model, given, drawn, result))
        return result

    def _judge(self, keeper: Keeper, real: Callable[[], Played]) -> None:
        """Compare what the program's call gave with the copies' calls, and tell what differs.

        Args:
            keeper: Makes the call in other ways.
            real: Reads what the program's own call has left.
        """
        found: list[tuple[EndToEnd, bool]] = []

        def compare() -> None:
            left = real()
            found.extend((each, left.error is not None) for each in self._judged(keeper, left))

        guarded(compare, f"comparing call {self.made} of {self} with eager")
        for answer, in_error in found:
            self._tell(answer, in_error=in_error)

    def _judged(self, keeper: Keeper, real: Played) -> list[EndToEnd]:
        try:
            eager = EagerPlays(partial(_in_eager, keeper), How())
        except (Died, CannotTell) as end:
            why = f"the copy of the process that made it in eager ended ({end})"
            self.session.add_uncompared(why)
            return []
        found = compare_plays(eager, [real], strides=False)
        return self._placed(keeper, eager, found.differences) if found.answer == "fails" else []

    def _placed(
        self, keeper: Keeper, eager: EagerPlays, apart: Sequence[CallDifference]
    ) -> list[EndToEnd]:
        alone = _compared(eager, keeper, "dynamo")
        names = {each.name for each in alone.differences}
        both = [each for each in apart if each.name in names]
        if both:
            said = "with Dynamo's backend `eager` the call gives the same wrong result"
            return [self._answer(both[0], "dynamo", "capture", said)]
        if self.made > 1 and _compared(eager, keeper, "fresh").answer == "passes":
            said = f"compiled anew before call {self.made}, it gives what eager gives"
            return [self._answer(apart[0], "dynamo", "guards", said, confirmed=True)]
        only = [each for each in apart if each.kind in NO_GRAPH_SHOWS]
        said = f"with Dynamo's backend `eager` {_SAID[alone.answer]}"
        return [self._answer(only[0], "runtime", "", said)] if only else []

    def _answer(
        self, found: CallDifference, layer: Any, cause: str, said: str, *, confirmed: bool = False
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
        _IN_COPY.set(True)
        around: AbstractContextManager[Any] = nullcontext()
        call = self.function
        if way == "eager":
            around = eager_stance()
        else:
            torch.compiler.reset()
            call = self.compiled
        if way == "dynamo":
            call = torch.compile(self.function, backend="eager", dynamic=self.dynamic)
        with around:
            return {
                "calls": packed([one_call(call, _root(self.function), Arguments(args, kwargs))])
            }

    def __str__(self) -> str:
        owner = _root(self.function)
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return type(owner).__name__ if isinstance(owner, torch.nn.Module) else str(name)


def _too_large(model: object) -> str:
    """Return why the state of a model is not compared; empty if it is."""
    nbytes = sum(each.nbytes for each in tensors_of(model).values())
    return f"more than {MOST_NBYTES} bytes of parameters" if nbytes > MOST_NBYTES else ""


def _in_eager(keeper: Keeper, how: How) -> Sequence[Played]:
    """Return what a copy of the process gives in eager.

    Raises:
        PrecisionRefused: It is asked for something else than the program's own call.
    """
    if how != How():
        raise PrecisionRefused("a call that a program makes is compared in its own state only")
    return played_by(lambda *_: keeper.ask("eager"), False, how)


def _compared(eager: EagerPlays, keeper: Keeper, way: str) -> Comparison:
    """Return how the call differs from eager when it is made in another way; flaky: unknown."""
    try:
        played = played_by(lambda *_: keeper.ask(way), True, eager.how)
    except (Died, CannotTell) as end:
        return Comparison("flaky", detail=str(end))
    return compare_plays(eager, played, strides=False)


def _root(function: Callable[..., Any]) -> object:
    """Return the model that a callable belongs to, or itself."""
    owner = getattr(function, "__self__", None)
    return owner if owner is not None else function


def _place(function: Callable[..., Any]) -> str:
    """Return `FILE:LINE` of a callable."""
    owner = _root(function)
    forward = getattr(type(owner), "forward", None) if owner is not function else function
    code = getattr(forward, "__code__", None)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code else ""


def watch_calls(session_of: Callable[[object], Session | None]) -> Callable[[], None]:
    """Compare the first calls of what is compiled from now on; return the undo function.

    Args:
        session_of: Returns the session that watches a backend; None for one that is not watched.
    """

    def wrapped(compiled: Any, function: Any, backend: object, dynamic: bool | None) -> Any:
        session = session_of(backend)
        if session is None or in_copy():
            return compiled
        name = str(getattr(backend, "compiler_name", "?"))
        calls = WatchedCalls(session, name, function, compiled, dynamic)

        @wraps(compiled)
        def ctk_watched_call(*args: Any, **kwargs: Any) -> Any:
            return calls.call(*args, **kwargs)

        return ctk_watched_call

    return dynamo.wrap_compiled_calls(wrapped)
