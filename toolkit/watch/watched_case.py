"""The case of a watched graph on disk: saved before the compile, marked by each failure."""

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from torch.fx import GraphModule

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import NOT_SAVED
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.manifest import MANIFEST, read_manifest, write_manifest
from ctk.toolkit.case.roles import roles_of
from ctk.toolkit.case.store import save_case
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.importers.plain_case import plain_case
from ctk.toolkit.importers.program import replace_symbols
from ctk.toolkit.targets import record_decisions
from ctk.toolkit.watch.announce import (
    Subject,
    describe_failure,
    note_saved,
)
from ctk.toolkit.watch.dump import run_guarded
from ctk.toolkit.watch.watch_session import Failure, Missing, WatchSession

logger = logging.getLogger("ctk")


@dataclass(slots=True)
class WatchedCase:
    """One watched graph and its case folder.

    Attributes:
        case: A private copy of the graph, never compiled: it is saved, and run in eager. Its inputs
            are the program's own tensors, only read, and released after the first call.
        command: The next command for the saved case; empty while it is not saved.
    """

    session: WatchSession
    subject: Subject
    case: Case
    folder: Path
    command: str = ""
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
            name=session.next_graph(),
            sources=subject.sources,
            dynamic=describe_dynamic(graph),
            roles=roles_of(gm, example_inputs),
        )
        watched = cls(session, subject, case, session.folder / case.name)
        watched._save(case)
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
        kept = self.session.options.inputs
        advice = self.subject.advice
        text = describe_failure(self.case, self.folder, kept, details, advice=advice)
        if error is None or note_saved(error, self.case, self.folder, advice):
            known = at or self.case
            self._save(dataclasses.replace(self.case, graph=known.graph, inputs=known.inputs))
            failure = Failure(self.case.name, self.folder, str(signature), self._can_save, advice)
            if not self._can_save:
                text = f"{text.splitlines()[0]}\n  it could not be saved in {self.folder}"
            self.session.add_failure(failure)
            logger.warning("%s", text)
        if at is not None:
            self.forget_inputs()
        return text

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
            save_case(
                plain_case(case), self.folder, inputs=self.session.options.inputs, overwrite=True
            )
        except CtkError as error:
            write_text(self.folder / NOT_SAVED, f"{error}\n")
            raise
        if not self.subject.advice:
            self.command = command_on("diagnose", self.folder, case)
