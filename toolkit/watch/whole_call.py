"""Compare the first calls of a compiled callable with eager calls, end to end.

Each graph of a compared call is checked as well (first_call.py), from the captured graph on. Wrong
captures, missing guards and errors around compiled graphs show only here: in results, exceptions,
mutated arguments, parameters and buffers, aliasing, Python state.

    fork the process                                    process_fork.py
    make the program's own call
    make the call in eager, in a fork                   equal: done
    different: repeat it, in eager, with Dynamo's backend `eager`, and freshly compiled

A difference counts if the call shows it again, in two forks. Each layer has a counterfactual, and
each is asked twice:

1. Dynamo's backend `eager` shows it as well, eager does not: dynamo (capture).
2. A fresh compile does not show it, and the graphs that were captured do, each in eager: dynamo
   (guards). So too, but not confirmed, if those graphs differ from eager in another way: the one of
   `7 // (k - 3)` raises in eager, and a kernel computes a number.
3. A fresh compile differs too, and so does Dynamo's backend `eager`, in another way: dynamo
   (capture).
4. It concerns aliasing, Python state, nesting or exceptions, which no graph can show, and Dynamo's
   backend `eager` does not show it: runtime.

Where two answers differ, no layer is named. Other numbers are left to the check of the graph, which
has a float64 reference.

In a process that cannot be forked, and inside of a compared call, only the graphs are compared.
`fallback` has no effect: the program's call was made already.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ctk.compiler.errors import MiscompileError, PrecisionRefused
from ctk.compiler.torch_compat.aot.autograd import is_in_compiled_autograd
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.process.process_state import is_refused_in_fork
from ctk.repro_templates.graph.excuses import Variation, varied
from ctk.repro_templates.graph.judging import EXCUSES
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
from ctk.repro_templates.program.program_sides import Died, play_by
from ctk.repro_templates.program.program_state import tensors_of
from ctk.repro_templates.program.program_values import pack
from ctk.toolkit.case.failure import FailureKind, FailureOrigin, Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import LATER_CALL, EndToEnd
from ctk.toolkit.watch.compared_call import ComparedCall, compared_call, comparing, graphs_in_eager
from ctk.toolkit.watch.dump import compute_guarded, run_guarded
from ctk.toolkit.watch.process_fork import Keeper, find_obstacle
from ctk.toolkit.watch.watch_session import (
    NO_SCOPE,
    CallPart,
    Failure,
    Scope,
    WatchSession,
)

logger = logging.getLogger("ctk")

NO_GRAPH_SHOWS = ("alias", "requires-grad", "state", "structure", "missing-error", "other-error")

MOST_NBYTES = 1 << 29
"""Limit of the parameters and buffers of a compared call, which are written to disk."""

_EVIDENCE = {
    "passes": "the call agrees with eager",
    "fails": "the call differs from eager in another way",
    "flaky": "the call could not be compared",
    **dict.fromkeys(EXCUSES, "the call's differences are excused"),
}

_IN_COPY: ContextVar[bool] = ContextVar("ctk_in_a_copy_of_the_process", default=False)


def is_in_copy() -> bool:
    """Return whether this process is a fork that a check has made, in which no call is watched."""
    return _IN_COPY.get()


@dataclass(slots=True, eq=False)
class WatchedCalls:
    """The calls of one compiled callable.

    Attributes:
        made: Number of its calls so far; calls inside of another compared call do not count.
        compared: Number of compared calls in this scope of the session.
    """

    session: WatchSession
    target: str
    function: Callable[..., Any]
    compiled: Callable[..., Any]
    dynamic: bool | None = None
    made: int = 0
    compared: int = 0
    scope: Scope = NO_SCOPE

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Make the program's call; compare it if it is one of the first."""
        options, session = self.session.options, self.session
        is_watched = options.check != "off" and not session.scope.is_off and not is_in_copy()
        if not is_watched or torch.compiler.is_compiling():
            return self.compiled(*args, **kwargs)
        if compared_call() is not None:
            session.add_call("by_graph", "part of another compared call")
            return self.compiled(*args, **kwargs)
        self.made, session.target = self.made + 1, self.target
        if self.scope is not session.scope:
            self.scope, self.compared = session.scope, 0
        if self.compared >= options.calls:
            return self._call_later(args, kwargs)
        self.compared += 1
        with comparing(ComparedCall(self.made, str(self))):
            if why := self._find_obstacle():
                session.add_call("by_graph", why)
                return self.compiled(*args, **kwargs)
            return self._call_and_compare(args, kwargs)

    def _call_later(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that is not compared end to end; of its graphs some may be compared."""
        session, most = self.session, self.session.options.calls
        before = session.checked
        try:
            return self.compiled(*args, **kwargs)
        finally:
            first = "first" if most == 1 else f"first {most}"
            why = f"after the {first} of a function (--calls)"
            session.add_call("skipped" if session.checked == before else "by_graph", why)

    def _find_obstacle(self) -> str:
        """Return why a call cannot be compared end to end; empty if it can."""
        if is_in_compiled_autograd():
            return "compiled autograd makes it, and empties its arguments"
        why = compute_guarded(
            lambda: find_obstacle() or _describe_excess(_root(self.function)),
            "reading the state of a model",
        )
        return "its state cannot be read" if why is None else why

    def _call_and_compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        forking = f"forking the process before call {self.made} of {self}"
        play = partial(self._play, args, kwargs)
        keeper = compute_guarded(lambda: Keeper.start(play), forking)
        if keeper is None:
            self.session.add_call("by_graph", "the process could not be forked")
            return self.compiled(*args, **kwargs)
        with keeper:
            before, drawn = len(self.session.failures), generator_states()
            left = partial(what_is_left, _root(self.function), Arguments(args, kwargs), drawn)
            try:
                result = self.compiled(*args, **kwargs)
            except Exception as error:
                self._judge_unless_failing(before, keeper, partial(left, None, error))
                raise
            self._judge_unless_failing(before, keeper, partial(left, result))
        return result

    def _judge_unless_failing(
        self, before: int, keeper: Keeper, real: Callable[[], Played]
    ) -> None:
        """Judge the call, unless the check of a graph has reported a failure since `before`."""
        if len(self.session.failures) == before:
            self._judge(keeper, real)
        else:
            self.session.add_call("by_graph", "a graph of it fails")

    def _judge(self, keeper: Keeper, real: Callable[[], Played]) -> None:
        def compare() -> tuple[EndToEnd | None, CallPart, str, bool]:
            played = real()
            return *self._compare(keeper, played), played.error is not None

        found = compute_guarded(compare, f"comparing call {self.made} of {self} with eager")
        answer, part, why, has_raised = found or (None, "by_graph", "the comparison failed", False)
        self.session.add_call(part, why)
        if answer is not None:
            self._report(answer, has_raised=has_raised)

    def _compare(self, keeper: Keeper, real: Played) -> tuple[EndToEnd | None, CallPart, str]:
        """Return the answer for a difference that counts, and how the call was compared."""
        try:
            eager = EagerPlays(partial(_play_in_eager, keeper), How())
        except (Died, CannotTell) as end:
            return None, "by_graph", f"the fork that made it in eager ended ({end})"
        comparison = compare_plays(eager, [real], strides=False)
        if comparison.answer == "flaky":
            return None, "by_graph", comparison.detail
        if comparison.answer == "fails":
            twice = _Twice(eager, keeper)
            shown = twice.compare("again").shown_of(comparison.differences)
            if not shown:
                return None, "by_graph", "made again, it does not differ from eager in the same way"
            return self._find_layer(twice, shown), "whole", ""
        if real.error is not None:
            return None, "skipped", f"eager raises {real.error.name} as well"
        return None, "whole", ""

    def _find_layer(
        self, twice: "_Twice", differences: Sequence[CallDifference]
    ) -> EndToEnd | None:
        """Return the first difference that counts, with its layer; None if none counts."""
        dynamo_only = twice.compare("dynamo")
        is_in_dynamo = dynamo_only.answer == "fails" and twice.compare("eager").answer == "passes"
        captured = dynamo_only.shown_of(differences)
        if captured and is_in_dynamo:
            evidence = "with Dynamo's backend `eager` the call gives the same wrong result"
            return self._answer(captured[0], "dynamo", "capture", (evidence,))
        fresh = twice.compare("fresh") if self.made > 1 else None
        evidence = f"freshly compiled before call {self.made}, it agrees with eager"
        later = (evidence,) if fresh is not None and fresh.answer == "passes" else ()
        stale = twice.compare("captured") if later else None
        if stale is not None and stale.answer == "fails":
            shown = stale.shown_of(differences)
            how = "gives the same wrong result" if shown else "differs from eager in another way"
            more = f"with each captured graph in eager, it {how}"
            first = (shown or differences)[0]
            return self._answer(first, "dynamo", "guards", (*later, more), confirmed=bool(shown))
        if is_in_dynamo and (fresh is None or fresh.answer == "fails"):
            evidence = f"with Dynamo's backend `eager` {_EVIDENCE['fails']}"
            return self._answer(differences[0], "dynamo", "capture", (evidence,))
        outside = [difference for difference in differences if difference.kind in NO_GRAPH_SHOWS]
        if not outside:
            return None
        evidence = f"with Dynamo's backend `eager` {_EVIDENCE[dynamo_only.answer]}"
        layer = "runtime" if dynamo_only.answer == "passes" else None
        cause = LATER_CALL if later and layer else ""
        return self._answer(outside[0], layer, cause, (evidence, *later))

    def _answer(
        self,
        difference: CallDifference,
        layer: FailureOrigin | None,
        cause: str,
        evidence: tuple[str, ...],
        *,
        confirmed: bool = False,
    ) -> EndToEnd:
        kind: FailureKind = difference.kind  # type: ignore[assignment]  # the template's words are these
        name = f"call{self.made}.{difference.name.partition('.')[2]}"
        message = " ".join(difference.detail.split())
        signature = Signature(kind, difference.exception, output=name, message=message)
        is_state = kind in ("state", "alias") and cause == "capture"
        return EndToEnd(
            Judgement(Verdict.REPRODUCES, signature, message),
            call=self.made,
            layer=layer,
            cause="side_effects" if is_state else cause,
            line=_line_of(self.function),
            evidence=tuple(f"{each}, twice" for each in evidence),
            confirmed=confirmed,
        )

    def _report(self, answer: EndToEnd, *, has_raised: bool) -> None:
        summary = f"{answer.judgement.signature}; layer {answer.where}, {answer.line}"
        name = f"call{self.made} of {self}"
        path = self.session.folder / f"call_{len(self.session.failures)}.json"
        text = json.dumps(encode(answer), indent=2) + "\n"
        run_guarded(lambda: write_text(path, text), f"saving {path}")
        signature = answer.judgement.signature
        failure = Failure(name, path, summary, False, "", signature, self.target)
        self.session.add_failure(failure)
        announced = f"ctk: {name} fails with target {self.target}: {summary}\n  saved in {path}"
        logger.warning("%s", announced)
        if self.session.options.on_failure == "raise" and not has_raised:
            raise MiscompileError(announced)

    def _play(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], way: str, variation: Variation
    ) -> Mapping[str, object]:
        """Make the call in a fork, under other conditions for a variation.

        Args:
            way: `eager`; `again`, as the program makes it; `captured`, as the program makes it,
                with each captured graph in eager; `fresh`, compiled once more; `dynamo`, with
                Dynamo's backend `eager`.
        """
        _IN_COPY.set(True)
        around: AbstractContextManager[Any] = nullcontext()
        call = self.function if way in ("eager", "dynamo") else self.compiled
        if way == "eager":
            around = eager_stance()
        elif way == "captured":
            around = graphs_in_eager()
        elif way in ("dynamo", "fresh"):
            torch.compiler.reset()
        if way == "dynamo":
            self.session.scope = replace(self.session.scope, is_off=True)  # of this fork
            call = torch.compile(self.function, backend="eager", dynamic=self.dynamic)
        fresh: list[str] = []
        with around, varied(variation, fresh):
            made = one_call(call, _root(self.function), Arguments(args, kwargs))
        if made.error is not None and is_refused_in_fork(made.error.message):
            raise CannotTell(f"a fork cannot make the call: {made.error.message}")
        run = replace(made.run, allocated=tuple(fresh))
        return {"calls": pack([replace(made, run=run)])}

    def __str__(self) -> str:
        owner = _root(self.function)
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return type(owner).__name__ if isinstance(owner, torch.nn.Module) else str(name)


def _describe_excess(model: object) -> str:
    """Return why the state of a model is too large to compare; empty if it is not."""
    nbytes = sum(tensor.nbytes for tensor in tensors_of(model).values())
    return f"more than {MOST_NBYTES} bytes of parameters" if nbytes > MOST_NBYTES else ""


def _play_in_eager(keeper: Keeper, how: How) -> Sequence[Played]:
    if how != How(varied=how.varied) or how.varied.seed or how.varied.numpy_seed:
        raise PrecisionRefused("a call that a program makes is compared in its own state only")
    return play_by(lambda *_: keeper.ask("eager", how.varied), False, how)


@dataclass(frozen=True, slots=True)
class _Answer:
    """How a call, made in some way, compares with eager in two forks.

    Attributes:
        names: The results that differ in both.
    """

    answer: str
    names: frozenset[str] = frozenset()

    def shown_of(self, differences: Sequence[CallDifference]) -> list[CallDifference]:
        """Return the differences that are in both."""
        return [difference for difference in differences if difference.name in self.names]


@dataclass(frozen=True, slots=True)
class _Twice:
    """Asks each question twice."""

    eager: EagerPlays
    keeper: Keeper

    def compare(self, way: str) -> _Answer:
        """Compare the call with eager; `flaky` if a fork ended, or two answers differ."""
        first = self._compare_once(way)
        second = self._compare_once(way) if first.answer != "flaky" else first
        if first.answer != second.answer:
            return _Answer("flaky")
        names = ({each.name for each in found.differences} for found in (first, second))
        return _Answer(first.answer, frozenset.intersection(*map(frozenset, names)))

    def _compare_once(self, way: str) -> Comparison:
        try:
            played = play_by(lambda *_: self.keeper.ask(way), True, self.eager.how)
        except (Died, CannotTell) as end:
            return Comparison("flaky", detail=str(end))
        return compare_plays(self.eager, played, strides=False)


def _root(function: Callable[..., Any]) -> object:
    owner = getattr(function, "__self__", None)
    return owner if owner is not None else function


def _line_of(function: Callable[..., Any]) -> str:
    owner = _root(function)
    forward = getattr(type(owner), "forward", None) if owner is not function else function
    code = getattr(forward, "__code__", None)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code else ""


def watch_calls(
    session_of: Callable[[object], WatchSession | None], name_of: Callable[[object], str]
) -> Callable[[], None]:
    """Compare the first calls of functions compiled from now on; return the undo function.

    Args:
        session_of: Returns the session that watches a backend, if any.
        name_of: Returns the name of a backend.
    """

    def wrap(compiled: Any, function: Any, backend: object, dynamic: bool | None) -> Any:
        session = session_of(backend)
        if session is None or is_in_copy():
            return compiled
        return WatchedCalls(session, name_of(backend), function, compiled, dynamic).call

    return dynamo.wrap_compiled_calls(wrap)
