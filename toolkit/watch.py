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
import shlex
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.fx import GraphModule

from compiler import torch_compat
from compiler.environment import InputsMode
from compiler.errors import (
    ConfigError,
    CtkError,
    MiscompileError,
    TargetError,
    UnsupportedPlatform,
)
from compiler.graph_copy import copy_graph_module
from compiler.observe import ErrorRecord, first_line
from toolkit.capture import hinted
from toolkit.case import Case
from toolkit.clone import clone_inputs
from toolkit.dump import DumpWriter, guarded, write_text
from toolkit.execute import Outcome, run_graph
from toolkit.first_call import FirstCall, check_first_call
from toolkit.graph_meta import describe_dynamic
from toolkit.log import Event, Recorder
from toolkit.modes import current_modes
from toolkit.oracle.judge import error_signature
from toolkit.oracle.verdict import Signature
from toolkit.oracle.where import root_error
from toolkit.session import Failure, Session
from toolkit.store import save_case
from toolkit.targets.base import Compiled, Target

logger = logging.getLogger("ctk")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compiled, and by whom.

    Attributes:
        target: The compiler.
        config: Its options as the program gave them; may hold functions.
        saved_config: The options as JSON values, for the case.
        sources: The user's files that target and options name.
        importable: Whether another process can find the target by its name.
    """

    target: Target
    config: Mapping[str, object]
    saved_config: Mapping[str, object] = field(default_factory=dict[str, object])
    sources: tuple[Path, ...] = ()
    importable: bool = True


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
    except torch_compat.dynamo_control_flow():  # Dynamo starts over, skips, or breaks the graph
        shutil.rmtree(watch.folder, ignore_errors=True)
        raise
    except (
        ConfigError,
        TargetError,
        UnsupportedPlatform,
    ):  # the program asks for what is not there
        raise
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
            inputs are the program's own tensors, only read.
        folder: Its case folder.
    """

    session: Session
    subject: Subject
    case: Case
    folder: Path
    recorder: Recorder = field(init=False)
    _writer: DumpWriter = field(init=False)
    _compiled: bool = False
    _checking: bool = False
    _called: bool = False
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
        kept = self.session.options.inputs

        def write() -> None:
            try:
                save_case(self.case, self.folder, inputs=kept, overwrite=True)
            except CtkError as error:
                write_text(self.folder / "not_saved.txt", f"{error}\n")
                raise

        guarded(write, f"saving {self.folder}")

    def guard(self, compiled: Compiled) -> Compiled:
        """Return what the program calls in place of the compiled graph."""
        self._compiled = True

        def call(*args: object) -> object:
            if self._eager:
                return self.case.graph(*args)
            if self._called:
                return self._later_call(compiled, args)
            self._called = True
            return self._first_call(compiled, args)

        return call

    def _first_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        options = self.session.options
        spare = (
            clone_inputs(args) if options.check != "off" or options.on_failure != "raise" else None
        )
        self._update_modes()
        if options.check != "off" and spare is not None:
            self._check(compiled, spare)
            if self._eager:
                return self.case.graph(*args)
        try:
            return compiled(*args)
        except Exception as error:
            self._call_failed(error, spare or args)
            if options.on_failure == "raise" or spare is None:
                raise
            self.tell_fallback(error, "in its first call")
            restore(args, spare)
            return self.case.graph(*args)

    def _later_call(self, compiled: Compiled, args: tuple[object, ...]) -> object:
        try:
            return compiled(*args)
        except Exception as error:
            self._call_failed(error, args)
            raise

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
        )
        self._act(text, found.error)

    def _found(self, case: Case, compiled: Compiled) -> FirstCall:
        log = self.recorder.log if self.session.options.check == "pass" else None
        self._checking = True
        try:
            return check_first_call(case, compiled, log=log, rejudge=self.subject.importable)
        except Exception as error:  # a problem of the check is not one of the user's program
            logger.debug("ctk: the check failed", exc_info=error)
            return FirstCall(note=f"the check failed: {type(error).__name__}: {first_line(error)}")
        finally:
            self._checking = False

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
            self.fail(error_signature(Outcome(None, error)), error=error)

    def _on_event(self, event: Event) -> None:
        self._writer.write(event)
        is_late = isinstance(event, ErrorRecord) and self._compiled and not self._checking
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
    ) -> str:
        """Mark the case folder, note the failure, and announce it with the commands that help.

        Returns:
            The announcement. An exception is announced once, however many places it passes.
        """
        modes = dataclasses.replace(self.case.modes, backward=backward or self.case.modes.backward)
        self.case = dataclasses.replace(self.case, signature=signature, modes=modes)
        text = announcement(self.case, self.folder, self.session.options.inputs, details)
        if not self.subject.importable:
            text += "\n  the commands cannot import the backend: make it a function of a module"
        if error is not None and not _first_time(error, self.folder):
            return text
        self.save()
        self.session.add_failure(Failure(self.case.name, self.folder, str(signature)))
        logger.warning("%s", text)
        return text


def announcement(case: Case, folder: Path, inputs: InputsMode, details: Sequence[str] = ()) -> str:
    """Return what a user is told of a failure: what, where it is saved, what to run next."""
    place = shlex.quote(str(folder))
    lines = [
        f"ctk: {case.name} fails with target {case.target}: {case.signature}",
        *(f"  {detail}" for detail in details),
        f"  saved in {place}",
        f"  reproduce:  ctk repro {place}",
        f"  minimize:   ctk minify {place}",
        f"  all of it:  ctk diagnose {place}",
    ]
    if inputs == "none":
        lines.append("  its inputs are not saved: run again with CTK_INPUTS=recipe or full")
    elif inputs == "recipe" and case.signature and case.signature.kind in ("accuracy", "nan"):
        lines.append("  its inputs are saved as a recipe; to keep the values: CTK_INPUTS=full")
    return "\n".join(lines)


def restore(tensors: Sequence[object], spare: Sequence[object]) -> None:
    """Write the saved values back into the tensors that changed."""
    with torch.no_grad():
        for tensor, saved in zip(tensors, spare, strict=True):
            if not (isinstance(tensor, torch.Tensor) and isinstance(saved, torch.Tensor)):
                continue
            if not torch.equal(tensor, saved):
                tensor.copy_(saved)


def _first_time(error: BaseException, folder: Path) -> bool:
    """Return whether an exception is new, and leave a note on it that says where it is saved."""
    root = root_error(error)
    note = f"ctk saved this as a case; all of it: ctk diagnose {shlex.quote(str(folder))}"
    if note in getattr(root, "__notes__", ()):
        return False
    root.add_note(note)
    return True
