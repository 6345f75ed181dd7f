"""Watch one compile and its calls: save the case first, dump each event, check the first call.

The order is what makes a crash useful: the captured graph is on disk before the compiler sees it,
and each event is written as it arrives. A failure is announced with the commands that take it
further, its case folder is marked, and `on_failure` decides what the program gets:

* `raise`: the exception, or a `MiscompileError` for wrong values.
* `fallback`: one log line, and from then on the captured graph in eager.
* `warn`: a Python warning; eager after an exception, the compiled result for wrong values.

A failing call may have written half of its results into its inputs. For the first call they are put
back before eager takes over (which costs one clone of the inputs, weights included); later calls
raise in every mode.
"""

import dataclasses
import logging
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import (
    ConfigError,
    CtkError,
    MiscompileError,
    TargetError,
    UnsupportedPlatform,
)
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import ErrorRecord, first_line
from ctk.compiler.torch_compat import dynamo
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.manifest import MANIFEST, read_manifest, write_manifest
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.recorder import Event, Recorder
from ctk.toolkit.graphs.value_types import describe_dynamic
from ctk.toolkit.importers.program import hinted
from ctk.toolkit.oracle.judge import error_signature
from ctk.toolkit.run.execute import run_graph
from ctk.toolkit.run.modes import current_modes
from ctk.toolkit.run.outcome import Outcome
from ctk.toolkit.targets.base import Compiled
from ctk.toolkit.watch.announce import Subject, announcement, first_time, import_hint
from ctk.toolkit.watch.dump import DumpWriter, guarded, write_text
from ctk.toolkit.watch.first_call import FirstCall, check_first_call
from ctk.toolkit.watch.session import Failure, Session

logger = logging.getLogger("ctk")


def compile_watched(
    session: Session, subject: Subject, gm: GraphModule, example_inputs: Sequence[object]
) -> Compiled:
    """Compile one graph under watch; what it returns checks its first call and guards the others.

    Args:
        session: The process's books and options.
        subject: Target and options.
        gm: The captured graph; given to the compiler as it is, after a private copy was made.
        example_inputs: One value per placeholder, real or symbolic.

    Raises:
        Exception: What the compiler raised, with `on_failure="raise"`.
    """
    opened: list[Watch] = []
    guarded(
        lambda: opened.append(Watch.open(session, subject, gm, example_inputs)),
        f"watching a graph (dumps go to {session.options.dump})",
    )
    if not opened:
        return subject.target.compile(gm, example_inputs, config=subject.config, observer=None)
    (watch,) = opened
    try:
        compiled = subject.target.compile(
            gm, example_inputs, config=subject.config, observer=watch.recorder
        )
    except dynamo.control_flow():  # Dynamo starts over, skips, or breaks the graph
        shutil.rmtree(watch.folder, ignore_errors=True)
        raise
    except (ConfigError, TargetError, UnsupportedPlatform):
        raise  # the program asks for what is not there
    except Exception as error:
        watch.fail(error_signature(Outcome(None, error, "compile")), error=error)
        if session.options.on_failure == "raise":
            raise
        watch.tell_fallback(error, "while compiling")
        return watch.case.graph.forward
    finally:
        session.keep_quota()
    return watch.guard(compiled)


@dataclass(slots=True)
class Watch:
    """One watched graph, from its capture to its last call.

    Attributes:
        session: The books of the process.
        subject: Who compiles it.
        case: A private copy of the graph, never compiled: what is saved, and what eager runs. Its
            inputs are the program's own tensors, only read; none are held after the first call.
        folder: Its case folder.
    """

    session: Session
    subject: Subject
    case: Case
    folder: Path
    recorder: Recorder = field(init=False)
    _writer: DumpWriter = field(init=False)
    _compiled: bool = False
    _inside: bool = False  # in a call of ours, which sees exceptions itself
    _called: bool = False
    _is_saved: bool = True
    _eager: bool = False

    def __post_init__(self) -> None:
        self._writer = DumpWriter(self.folder)
        every_pass = self.session.options.check == "pass"
        self.recorder = Recorder(keep_calls=every_pass, on_event=self._on_event)

    @classmethod
    def open(
        cls,
        session: Session,
        subject: Subject,
        gm: GraphModule,
        example_inputs: Sequence[object],
    ) -> "Watch":
        """Copy the graph and save it, before a compiler sees it."""
        graph = copy_graph_module(gm)
        case = Case(
            graph=graph,
            inputs=hinted(example_inputs),
            target=subject.target.name,
            config=subject.saved_config,
            modes=current_modes(),
            name=session.next_graph(),
            sources=subject.sources,
            dynamic=describe_dynamic(graph),
        )
        watch = cls(session, subject, case, session.folder / case.name)
        watch.save()
        return watch

    def save(self) -> None:
        """Write the case as it is known now; a problem is one log line and a file that says it."""
        self._is_saved = self._is_saved and guarded(self._save, f"saving {self.folder}")

    def _save(self) -> None:
        if not self.case.inputs and (self.folder / MANIFEST).exists():
            known = read_manifest(self.folder)
            known = dataclasses.replace(known, signature=self.case.signature, modes=self.case.modes)
            write_manifest(known, self.folder)
            return
        try:
            kept = self.session.options.inputs
            save_case(self.case, self.folder, inputs=kept, overwrite=True)
        except CtkError as error:
            write_text(self.folder / "not_saved.txt", f"{error}\n")
            raise

    def guard(self, compiled: Compiled) -> Compiled:
        """Return what the program calls in place of the compiled graph."""
        self._compiled = True

        def call(*args: object) -> object:
            if self._eager:
                return self.case.graph(*args)
            if self._called:
                return self._later_call(compiled, args)
            self._called = True
            try:
                return self._first_call(compiled, args)
            finally:
                self._forget()

        return call

    def _first_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        options = self.session.options
        spare = self._spare(args)
        self._update_modes()
        if options.check != "off" and spare is not None:
            self._check(compiled, spare)
            if self._eager:
                return self.case.graph(*args)
        try:
            return self._called_inside(compiled, args)
        except Exception as error:
            self._call_failed(error, spare or args)
            if options.on_failure == "raise" or spare is None:
                raise
            if not restored(args, spare):
                raise
            self.tell_fallback(error, "in its first call")
            return self.case.graph(*args)

    def _spare(self, args: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return clones of the inputs if the options need them, and if these can be cloned."""
        options = self.session.options
        if options.check == "off" and options.on_failure == "raise":
            return None
        clones: list[tuple[object, ...]] = []
        guarded(
            lambda: clones.append(clone_inputs(args)),
            f"cloning the inputs of {self.case.name} (no check, no fallback)",
        )
        return clones[0] if clones else None

    def _later_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        try:
            return self._called_inside(compiled, args)
        except Exception as error:
            self._call_failed(error, args)
            raise

    def _forget(self) -> None:
        """Let go of the program's tensors and of all that was recorded for the check."""
        self.case = dataclasses.replace(self.case, inputs=())
        self.recorder.log.events.clear()

    def _called_inside(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        self._inside = True
        try:
            return compiled(*args)
        finally:
            self._inside = False

    def _update_modes(self) -> None:
        """Take the modes of the call: Dynamo switches inference mode off while it compiles."""
        modes = current_modes()
        if modes != self.case.modes:
            self.case = dataclasses.replace(self.case, modes=modes)
            self.save()

    def _check(self, compiled: Compiled, inputs: tuple[object, ...]) -> None:
        """Compare the first call with eager, and act on what is found.

        Raises:
            MiscompileError: Wrong values, with `on_failure="raise"`.
            Exception: What the compiled graph raised on clones of the inputs, likewise.
        """
        differentiable = any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs)
        modes = dataclasses.replace(
            self.case.modes, backward=self.case.modes.grad and differentiable
        )
        case = dataclasses.replace(self.case, inputs=inputs, modes=modes)
        found = self._found(case, compiled)
        if found.note:
            logger.warning("ctk: %s of %s is not checked: %s", case.name, case.target, found.note)
        if found.signature is None:
            return
        in_forward = (found.signature.output or "").startswith(("out", "in"))
        text = self.fail(
            found.signature,
            error=found.error,
            details=found.details,
            backward=modes.backward and not in_forward,
            inputs=inputs,
        )
        self._act(text, found.error)

    def _found(self, case: Case, compiled: Compiled) -> FirstCall:
        log = self.recorder.log if self.session.options.check == "pass" else None
        self._inside = True
        try:
            subject = self.subject
            rejudge = subject.importable and not subject.in_script
            return check_first_call(case, compiled, log=log, rejudge=rejudge)
        except Exception as error:  # a problem of the check is not one of the user's program
            logger.debug("ctk: the check failed", exc_info=error)
            return FirstCall(note=f"the check failed: {type(error).__name__}: {first_line(error)}")
        finally:
            self._inside = False

    def _act(self, text: str, error: BaseException | None) -> None:
        """Do with a failed check as `on_failure` says."""
        match self.session.options.on_failure:
            case "raise":
                raise error or MiscompileError(text)
            case "fallback":
                self._eager = True
                logger.warning("ctk: %s runs in eager from now on", self.case.name)
            case "warn":
                self._eager = error is not None
                instead = "eager" if self._eager else "the compiled results"
                message = f"{text.splitlines()[0]} (the program gets {instead})"
                warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _call_failed(self, error: Exception, inputs: tuple[object, ...]) -> None:
        """Announce an exception of a call, unless eager raises on these inputs as well."""
        if run_graph(self.case.graph, inputs, self.case.modes).error is None:
            self.fail(error_signature(Outcome(None, error)), error=error, inputs=inputs)

    def _on_event(self, event: Event) -> None:
        self._writer.write(event)
        if self.session.options.check != "pass":
            self.recorder.log.events.clear()  # only that check reads them again
        is_late = isinstance(event, ErrorRecord) and self._compiled and not self._inside
        if isinstance(event, ErrorRecord) and is_late:  # in a backward, outside of our call
            signature = error_signature(Outcome(None, event.error))
            self.fail(signature, error=event.error, backward=event.stage == "backward")

    def tell_fallback(self, error: BaseException, when: str) -> None:
        """Let eager take over, and say so."""
        self._eager = True
        text = (
            f"ctk: {self.case.name} runs in eager from now on: "
            f"{self.case.target} raised {type(error).__name__} {when}: {first_line(error)}"
        )
        if self.session.options.on_failure == "warn":
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            logger.warning("%s", text)

    def fail(
        self,
        signature: Signature,
        *,
        error: BaseException | None = None,
        details: Sequence[str] = (),
        backward: bool = False,
        inputs: tuple[object, ...] | None = None,
    ) -> str:
        """Mark the case folder, note the failure, and announce it with the commands that help.

        Args:
            signature: What was seen.
            error: The exception, if it is one.
            details: Sentences for people.
            backward: It needs the backward pass.
            inputs: Those of the failing call; None: those that are saved.

        Returns:
            The announcement. An exception is announced once, however many places it passes.
        """
        modes = dataclasses.replace(self.case.modes, backward=backward or self.case.modes.backward)
        known = self.case.inputs if inputs is None else inputs
        self.case = dataclasses.replace(self.case, signature=signature, modes=modes, inputs=known)
        text = announcement(self.case, self.folder, self.session.options.inputs, details)
        text += import_hint(self.subject)
        if error is None or first_time(error, self.folder):
            self.save()
            self.session.add_failure(Failure(self.case.name, self.folder, str(signature)))
            logger.warning("%s", text)
        if inputs is not None:
            self.case = dataclasses.replace(self.case, inputs=())
        return text


def restored(tensors: Sequence[object], spare: Sequence[object]) -> bool:
    """Write the saved values back into the tensors that changed, and return whether that worked."""

    def restore() -> None:
        for tensor, saved in zip(tensors, spare, strict=True):
            if not (isinstance(tensor, torch.Tensor) and isinstance(saved, torch.Tensor)):
                continue
            if not torch.equal(tensor, saved):
                tensor.copy_(saved)

    with torch.no_grad():
        return guarded(restore, "putting the inputs back (no fallback)")
