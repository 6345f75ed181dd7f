"""The case of a watched graph on disk: saved before the compile, marked by each failure."""

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from torch.fx import GraphModule, Node

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import output_leaves
from ctk.compiler.options.choices import InputsMode
from ctk.compiler.torch_compat.aot.autograd import without_saved_tensor_hooks
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import NOT_SAVED
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.graphs.places import place_of
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.manifest import MANIFEST, read_manifest, write_manifest
from ctk.toolkit.case.roles import roles_of
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.importers.plain_case import plain_case
from ctk.toolkit.importers.program import replace_symbols
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.targets import record_decisions
from ctk.toolkit.watch.announce import (
    Subject,
    describe_failure,
    note_saved,
)
from ctk.toolkit.watch.compared_call import ComparedCall
from ctk.toolkit.watch.dump import compute_guarded, run_guarded
from ctk.toolkit.watch.first_call import hold_compile_lock
from ctk.toolkit.watch.watch_session import Failure, Missing, WatchSession

logger = logging.getLogger("ctk")


@dataclass(slots=True)
class WatchedCase:
    """One watched graph and its case folder.

    Attributes:
        case: A private copy of the graph, never compiled: it is saved, and run in eager. Its inputs
            are the program's own tensors, only read, and released after the first call.
        command: The next command for the saved case; empty while it is not saved.
        kept: The values that the saved case keeps.
        call: The later call that this is the case of (`call 4 of f`); empty for the graph's own.
    """

    session: WatchSession
    subject: Subject
    case: Case
    folder: Path
    command: str = ""
    kept: InputsMode = "recipe"
    call: str = ""
    _can_save: bool = True

    @classmethod
    def open(
        cls,
        session: WatchSession,
        subject: Subject,
        gm: GraphModule,
        example_inputs: Sequence[object],
    ) -> "WatchedCase":
        """Copy a graph and save it, before a compiler sees it."""
        graph = copy_graph_module(gm)
        case = Case(
            graph=graph,
            inputs=replace_symbols(example_inputs),
            target=subject.target.name,
            config=subject.saved_config,
            modes=current_modes(),
            name=session.next_graph(subject.target.name),
            sources=subject.sources,
            dynamic=describe_dynamic(graph),
            roles=roles_of(gm, example_inputs),
        )
        kept = session.options.inputs
        watched = cls(session, subject, case, session.folder / case.name)
        watched.kept = "recipe" if kept == "failing" else kept
        watched._save(case)
        if watched._can_save:
            session.note_frames()
        return watched

    def update_modes(self) -> None:
        """Record the modes of the call: Dynamo switches inference mode off while it compiles."""
        modes = current_modes()
        if modes != self.case.modes:
            self.case = dataclasses.replace(self.case, modes=modes)
            self._save(self.case)

    def case_with(self, inputs: tuple[object, ...]) -> Case:
        """Return the case with the inputs of a call and the current state of the graph."""
        return dataclasses.replace(self.case, inputs=inputs)

    def at_call(self, call: ComparedCall) -> "WatchedCase":
        """Return the case of a later call, to be saved in a folder of its own if it fails."""
        stem = f"{self.case.name}_call{call.number}"
        names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        name = next(each for each in names if not (self.session.folder / each).exists())
        case = dataclasses.replace(self.case, name=name, modes=current_modes())
        return dataclasses.replace(
            self, case=case, folder=self.session.folder / name, command="", call=str(call)
        )

    def forget_inputs(self) -> None:
        """Release the program's tensors."""
        self.case = dataclasses.replace(self.case, inputs=())

    def fail(
        self,
        signature: Signature,
        *,
        error: BaseException | None = None,
        details: Sequence[str] = (),
        backward: bool = False,
        at: Case | None = None,
    ) -> str:
        """Mark the case folder, record the failure, and announce it with the next commands.

        Args:
            backward: Whether it needs the backward pass.
            at: Graph and inputs before the failing call; None: as saved.
        """
        modes = dataclasses.replace(self.case.modes, backward=backward or self.case.modes.backward)
        failing = dataclasses.replace(self.case, signature=signature, modes=modes)
        self.case = record_decisions(failing)
        advice = self.subject.advice
        is_new = error is None or note_saved(error, self.case, self.folder, advice)
        if is_new:
            known = at or self.case
            case = dataclasses.replace(self.case, graph=known.graph, inputs=known.inputs)
            self._save(case)
            self._keep_values(case)
        text = describe_failure(self.case, self.folder, self.kept, details, advice=advice)
        if is_new:
            summary = f"{signature}{f'; {self.call}' if self.call else ''}"
            failure = Failure(
                self.case.name,
                self.folder,
                summary,
                self._can_save,
                advice,
                signature,
                self.case.target,
                _place_of_result(self.case.graph, signature),
            )
            if not self._can_save:
                text = f"{text.splitlines()[0]}\n  it could not be saved in {self.folder}"
            self.session.add_failure(failure)
            logger.warning("%s", text)
        if at is not None:
            self.forget_inputs()
        return text

    def _keep_values(self, case: Case) -> None:
        """Save the values of a failing call if the recipe does not show the failure.

        A recipe that cannot be judged here shows it at a first call; the state of a later call is
        seldom drawn again.
        """
        if not (self._can_save and self.session.options.inputs == "failing" and case.inputs):
            return
        shown: bool | None = not self.call
        if self.subject.can_recompile:
            shown = compute_guarded(self._is_shown_by_recipe, f"judging {self.folder}")
        if shown is False:
            self.kept = "full"
            self._save(case)

    def _is_shown_by_recipe(self) -> bool:
        if not read_manifest(self.folder).synthetic:
            return True
        with hold_compile_lock(), without_saved_tensor_hooks():
            return judge(load_case(self.folder, trust=True)).fails

    def _save(self, case: Case) -> None:
        """Write a case; the first error is logged and written to a file, and ends further saves."""
        self._can_save = self._can_save and run_guarded(
            lambda: self._write(case), f"saving {self.folder}", partial(self.record_missing, "case")
        )

    def record_missing(self, part: Literal["case", "events"], why: str) -> None:
        """Record a part of this graph's dump that could not be written."""
        self.session.add_missing(Missing(self.case.name, part, why))

    def _write(self, case: Case) -> None:
        if not case.inputs and (self.folder / MANIFEST).exists():
            known = read_manifest(self.folder)
            known = dataclasses.replace(known, signature=case.signature, modes=case.modes)
            write_manifest(known, self.folder)
            return
        try:
            save_case(plain_case(case), self.folder, inputs=self.kept, overwrite=True)
        except CtkError as error:
            write_text(self.folder / NOT_SAVED, f"{error}\n")
            raise
        if not self.subject.advice:
            self.command = command_on("diagnose", self.folder, case)


def _place_of_result(graph: GraphModule, signature: Signature) -> str:
    """Return the place of the wrong result in the program, else of the last node that has one."""
    results = output_leaves(graph)
    number = (signature.output or "").removeprefix("out")
    wrong = results[int(number)] if number.isdigit() and int(number) < len(results) else None
    nodes = [*([wrong] if isinstance(wrong, Node) else []), *reversed(graph.graph.nodes)]
    return next(filter(None, map(place_of, nodes)), "")
