"""Watch one compile and its calls: save the case first, dump each event, check the first call.

The order makes crashes reproducible: the captured graph is on disk before the compiler sees it, and
each event is written as it arrives. A failure is announced with the next commands, its case folder
is marked, and `on_failure` is applied:

* `raise`: the exception, or a `MiscompileError` for wrong values.
* `fallback`: one log line, and from then on the captured graph in eager.
* `warn`: a Python warning; eager after an exception, the compiled result for wrong values.
* `record`: none; the exception, or the compiled result, as without ctk.

A failing call may have written half of its results into its inputs and into the state of the graph,
and may have drawn random numbers. For the first call this is undone before eager takes over
(state_copy.py, which costs one copy, weights included); later calls raise in every mode.
"""

import dataclasses
import logging
import shutil
import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import (
    ConfigError,
    MiscompileError,
    MissingTorchName,
    TargetError,
    UnsupportedPlatform,
)
from ctk.compiler.fx.inputs import flatten_inputs
from ctk.compiler.installed_torch import missing_names_refused
from ctk.compiler.observe import ErrorRecord, first_line
from ctk.compiler.options.choices import OnWatchedFailure
from ctk.compiler.options.conditions import Condition
from ctk.compiler.torch_compat.aot.autograd import (
    is_from_saved_tensor_hook,
    without_saved_tensor_hooks,
)
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.fake.fake_tensors import is_fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog, Event, Recorder
from ctk.toolkit.compile_log.trace.writing import write_trace
from ctk.toolkit.execution.execute import Outcome, run_graph
from ctk.toolkit.execution.private_copy import held_state
from ctk.toolkit.oracle.questions.judge import error_signature
from ctk.toolkit.processes.link import report_work
from ctk.toolkit.targets.base import Compiled
from ctk.toolkit.watch.announce import Subject
from ctk.toolkit.watch.compared_call import ComparedCall, are_graphs_in_eager, compared_call
from ctk.toolkit.watch.dump import DumpWriter, compute_guarded, run_guarded
from ctk.toolkit.watch.first_call import CheckedCall, check_call, hold_compile_lock
from ctk.toolkit.watch.late_calls import (
    LateCalls,
    case_of_call,
    describe_agreement,
    load_kept,
    load_number,
)
from ctk.toolkit.watch.state_copy import StateCopy, copy_state
from ctk.toolkit.watch.watch_session import Missing, WatchSession
from ctk.toolkit.watch.watched_case import WatchedCase
from ctk.toolkit.watch.whole_call import is_in_copy

logger = logging.getLogger("ctk")

State = Literal["compiling", "first call", "later calls", "eager"]
"""The phase of a watched graph; `eager`: the captured graph runs instead of the compiled one."""


def compile_watched(
    session: WatchSession, subject: Subject, gm: GraphModule, example_inputs: Sequence[object]
) -> Compiled:
    """Compile one graph under watch; the result checks its first call and observes all calls.

    Args:
        gm: The captured graph; passed to the compiler after a private copy was made.

    Raises:
        Exception: The exception of the compiler, with `on_failure="raise"`.
    """
    flat = flatten_inputs(gm, example_inputs)
    if flat is not None:
        return flat.call(compile_watched(session, subject, flat.graph, flat.inputs))
    watched = compute_guarded(
        lambda: WatchedCase.open(session, subject, gm, example_inputs),
        f"watching a graph (dumps go to {session.options.dump})",
        lambda why: session.add_missing(Missing("", "everything", why)),
    )
    if watched is None:
        return subject.target.compile(gm, example_inputs, config=subject.config, observer=None)
    try:
        with report_work(watched.folder, "compiling it", watched.command):
            return _Watch(watched).compile(gm, example_inputs)
    finally:
        session.keep_quota()


class _Watch:
    """One watched graph, from its compile to its last call."""

    def __init__(self, watched: WatchedCase) -> None:
        self._watched = watched
        self._options = watched.session.options
        self._writer = DumpWriter(watched.folder, partial(watched.record_missing, "events"))
        # A graph that holds state is checked by a compile of its own (first_call.py).
        keep = self._options.check == "pass" and not held_state(watched.case.graph)
        self._recorder = Recorder(keep_calls=keep, on_event=self._on_event)
        self._late = LateCalls.of(self._options, watched.case.graph)
        self._state: State = "compiling"
        self._lock = threading.Lock()  # held by the thread that prepares the first call
        self._catches_exceptions = False  # whether exceptions of the running call are caught here
        self._is_part = False  # whether DDPOptimizer made it: one graph of several in a frame

    def compile(self, gm: GraphModule, example_inputs: Sequence[object]) -> Compiled:
        """Compile the graph; return the function that replaces it in the program."""
        target = self._watched.subject.target
        config = {**target.native(), **self._watched.subject.config}
        try:
            with missing_names_refused():
                compiled = target.compile(
                    gm, example_inputs, config=config, observer=self._recorder
                )
        except dynamo.control_flow():  # Dynamo restarts, skips, or breaks the graph
            shutil.rmtree(self._watched.folder, ignore_errors=True)
            raise
        except (ConfigError, TargetError, UnsupportedPlatform):
            raise  # errors of the program's request
        except Exception as error:
            if not isinstance(error, MissingTorchName):  # that is not a failure of the target
                self._watched.fail(error_signature(Outcome(None, error, "compile")), error=error)
            if self._options.leaves_errors:
                raise
            report_fallback(
                self._options.on_failure, self._watched.case, error, while_="while compiling"
            )
            return self._watched.case.graph.forward
        self._state = "first call"
        return lambda *args: self._call(compiled, args)

    def _call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        if self._state == "eager" or are_graphs_in_eager():
            return self._watched.case.graph(*args)
        if any(map(is_fake, args)):  # DDPOptimizer asks for the strides of the results
            self._is_part = True
            return compiled(*args)
        if self._state == "first call":
            return self._first_call(compiled, args)
        return self._later_call(compiled, args)

    def _later_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        """Make a call after the first; compare or keep it if that is asked for."""
        number, name = self._late.count(), self._watched.case.name
        call = (compared_call() if self._options.check != "off" else None) or self._late.sampled(
            number, name
        )
        self._keep(args, number)
        if call is not None:
            return self._compared_call(compiled, args, call)
        if self._late.conditions and not is_in_copy():
            return self._conditional_call(compiled, args, ComparedCall(number, name))
        before = self._watched.case_with(args)
        return self._call_and_report(compiled, args, before, self._watched, number)

    def _keep(self, args: tuple[object, ...], number: int) -> None:
        """Write a call to the ring, if there is one, before it is made."""
        ring = None if is_in_copy() else self._watched.session.ring
        if ring is not None:
            ring.keep(case_of_call(self._watched.case, args), self._watched.folder, number)

    def _conditional_call(
        self, compiled: Compiled, args: tuple[object, ...], call: ComparedCall
    ) -> object:
        """Make a call; compare it with eager if its results newly meet a condition."""
        late, watched = self._late, self._watched
        label = f"copying the inputs of {watched.case.name} (CTK_CHECK_WHEN)"
        before = compute_guarded(lambda: late.copy_before_call(watched.case, args), label)
        live = before or watched.case_with(args)
        result = self._call_and_report(compiled, args, live, watched, call.number)
        met = compute_guarded(lambda: late.newly_met(result), f"reading the results of {call}")
        if late.without_loss is not None:
            why = f"no result is a scalar, as {late.without_loss} needs (CTK_CHECK_WHEN)"
            watched.session.add_unchecked(watched.case.name, why)
        if before is None or met is None:
            late.conditions = ()  # logged once
        elif met:
            with report_work(watched.folder, f"comparing {call}", ""), hold_compile_lock():
                self._compare_met(compiled, before, call, met)
        return result

    def _compare_met(
        self,
        compiled: Compiled,
        before: Case,
        call: ComparedCall,
        met: Sequence[Condition],
    ) -> None:
        """Compare a call that meets conditions, then, if it agrees, the kept calls before it."""
        failures, session = len(self._watched.session.failures), self._watched.session
        checked = self._check(compiled, before, self._watched.at_call(call))
        if len(session.failures) > failures or checked.note:
            return
        ring = session.ring
        older = (
            [each for each in ring.calls_of(call.callee) if each.number < call.number]
            if ring
            else []
        )
        logger.warning("%s", describe_agreement(call, met, checked, len(older), before))
        for kept in older:
            case = compute_guarded(partial(load_kept, kept), f"reading {kept.folder}")
            if case is not None:
                earlier = ComparedCall(kept.number, call.callee)
                self._check(compiled, case, self._watched.at_call(earlier))
            if len(session.failures) > failures:
                return
        if older:
            logger.warning("ctk: the calls before %s agree with eager as well", call)

    def _compared_call(
        self, compiled: Compiled, args: tuple[object, ...], call: ComparedCall
    ) -> object:
        """Compare a later call with eager, then make it."""
        watched = self._watched.at_call(call)
        with report_work(watched.folder, f"comparing {call}", ""), hold_compile_lock():
            state = copy_state(self._options, watched.case, args)
            if state is None:
                watched.session.add_unchecked(watched.case.name, "its inputs cannot be copied")
            else:
                self._check(compiled, state.case, watched)
        if self._state == "eager":
            return self._watched.case.graph(*args)
        before = watched.case_with(args) if state is None else state.case
        result = self._call_and_report(compiled, args, before, watched)
        if self._late.conditions:
            compute_guarded(lambda: self._late.newly_met(result), f"reading the results of {call}")
        return result

    def _first_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        doing, command = "calling it for the first time", self._watched.command
        with report_work(self._watched.folder, doing, command):
            with hold_compile_lock() if self._options.check != "off" else self._lock:
                is_first = self._state == "first call"  # unless another thread was faster
                state = self._prepare(compiled, args) if is_first else None
            if is_first:
                try:
                    return self._make_first_call(compiled, args, state)
                finally:
                    self._release()
        return self._call(compiled, args)

    def _prepare(self, compiled: Compiled, args: tuple[object, ...]) -> StateCopy | None:
        """Prepare the program's own first call; other threads wait for it."""
        try:
            self._watched.update_modes()
            self._keep(args, self._late.count())
            state = copy_state(self._options, self._watched.case, args)
            if self._options.check != "off" and state is not None:
                log = self._recorder.log if self._options.check == "pass" else None
                self._check(compiled, state.case, self._watched, log)
        except BaseException:
            self._release()
            raise
        finally:
            if self._state == "first call":
                self._state = "later calls"
        return state

    def _release(self) -> None:
        self._watched.session.note_frames()  # the compile of this graph's frame is over
        self._watched.forget_inputs()
        self._recorder.log.events.clear()

    def _make_first_call(
        self, compiled: Compiled, args: tuple[object, ...], state: StateCopy | None
    ) -> object:
        watched, on_failure = self._watched, self._options.on_failure
        if self._state == "eager":
            return watched.case.graph(*args)
        before = watched.case_with(args) if state is None else state.case
        try:
            return self._call_and_report(compiled, args, before, watched)
        except Exception as error:
            if self._options.leaves_errors or state is None or not state.restore():
                raise
            self._state = "eager"
            report_fallback(on_failure, watched.case, error, while_="in its first call")
            return watched.case.graph(*args)

    def _call_and_report(
        self,
        compiled: Compiled,
        args: tuple[object, ...],
        before: Case,
        watched: WatchedCase,
        number: int = 0,
    ) -> object:
        """Call; announce an exception unless eager, run on the state `before`, raises as well.

        Args:
            number: Of a late call: the ring may have the state before it, and its case gets a
                folder of its own.
        """
        try:
            with self._catch_exceptions():
                return compiled(*args)
        except Exception as error:
            if is_from_saved_tensor_hook(error):
                raise
            if number and self._late.is_on:
                name = watched.case.name
                watched = watched.at_call(ComparedCall(number, name))
                kept = partial(load_number, watched.session.ring, name, number)
                before = compute_guarded(kept, f"reading call {number} of {name}") or before
            with hold_compile_lock(), without_saved_tensor_hooks():
                eager = run_graph(before.graph, before.inputs, before.modes)
            if eager.error is None:
                watched.fail(error_signature(Outcome(None, error)), error=error, at=before)
            raise

    def _check(
        self,
        compiled: Compiled,
        before: Case,
        watched: WatchedCase,
        log: CompileLog | None = None,
    ) -> CheckedCall:
        """Compare a call with eager, on copies; report a failure, and apply `on_failure`."""
        differentiable = any(isinstance(v, torch.Tensor) and v.requires_grad for v in before.inputs)
        modes = dataclasses.replace(before.modes, backward=before.modes.grad and differentiable)
        case = watched.case
        with self._catch_exceptions():
            result = check_call(
                dataclasses.replace(before, modes=modes),
                watched.subject,
                compiled,
                log=log,
                own_compile=self._is_part,
            )
        if not result.note:
            watched.session.add_checked()
        else:
            watched.session.add_unchecked(case.name, result.note)
            logger.warning("ctk: %s of %s is not checked: %s", case.name, case.target, result.note)
        if result.excuse:
            logger.warning(
                "ctk: %s of %s: no failure, but a difference: %s",
                case.name, case.target, result.excuse,
            )  # fmt: skip
        for sentence in result.hidden:
            logger.warning("ctk: %s: no failure, but %s; no result shows it", case.name, sentence)
        if result.signature is None:
            return result
        in_forward = (result.signature.output or "").startswith(("out", "in", "held"))
        announced = watched.fail(
            result.signature,
            error=result.error,
            details=result.details,
            backward=modes.backward and not in_forward,
            at=before,
        )
        if result.trace is not None:
            write = partial(write_trace, result.trace, watched.folder)
            run_guarded(write, f"writing the compile of {case.name}")
        if apply_on_failure(self._options.on_failure, case, announced, result.error):
            self._state = "eager"
        return result

    @contextmanager
    def _catch_exceptions(self) -> Generator[None]:
        self._catches_exceptions = True
        try:
            yield
        finally:
            self._catches_exceptions = False

    def _on_event(self, event: Event) -> None:
        self._writer.write(event)
        if self._options.check != "pass":
            self._recorder.log.events.clear()  # only this check reads them again
        is_caught = self._state == "compiling" or self._catches_exceptions
        if isinstance(event, ErrorRecord) and not is_caught:  # in a backward pass
            signature = error_signature(Outcome(None, event.error))
            is_backward = event.stage == "backward"
            self._watched.fail(signature, error=event.error, backward=is_backward)


def report_fallback(
    on_failure: OnWatchedFailure, case: Case, error: BaseException, *, while_: str
) -> None:
    """Warn, or log, that eager takes over after an exception."""
    text = (
        f"ctk: {case.name} runs in eager from now on: "
        f"{case.target} raised {type(error).__name__} {while_}: {first_line(error)}"
    )
    if on_failure == "warn":
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    else:
        logger.warning("%s", text)


def apply_on_failure(
    on_failure: OnWatchedFailure, case: Case, announced: str, error: BaseException | None
) -> bool:
    """Apply `on_failure` to a failed check; return whether eager takes over.

    Args:
        error: The exception of the compiled graph; None for wrong values.

    Raises:
        MiscompileError: Wrong values, with `raise`.
        BaseException: `error`, with `raise`.
    """
    match on_failure:
        case "raise":
            raise error or MiscompileError(announced)
        case "record":
            return False
        case "fallback":
            logger.warning("ctk: %s runs in eager from now on", case.name)
            return True
        case "warn":
            instead = "eager" if error is not None else "the compiled results"
            message = f"{announced.splitlines()[0]} (the program gets {instead})"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return error is not None
