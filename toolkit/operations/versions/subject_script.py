"""Turn the subject of a search over releases into a standalone script.

1. A Python file without `model()` is a script: its exit code answers (0 good, 1 bad).
2. A case with a failure gets the script of that failure.
3. A program is asked here first: the script is that of its first failing graph. If none fails
   here, and it has one graph, the script looks for any failure.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.errors import CaptureError, CaseError, ConfigError, NoSuchCase, count_of
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import make_folder
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers import find_source, torch_repro
from ctk.toolkit.operations.options import VersionOptions
from ctk.toolkit.oracle.open_subject import OpenSubject
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import conclude
from ctk.toolkit.repro.run import REPRO, write_repro
from ctk.toolkit.repro.verified import target_modules, write_verified_repro

TARGET = "inductor"
"""The target of a program that names none: ctk's own pipeline is not part of a release of torch."""


def script_of(subject: str) -> Path | None:
    """Return the standalone script that a subject names; None for a case or a program.

    Raises:
        CaseError: The file does not exist, or is not Python.
    """
    path = Path(subject).expanduser()
    if path.suffix != ".py" or torch_repro.IMPORTER.accepts(subject):
        return None
    if not path.is_file():
        raise NoSuchCase(f"there is no file {subject}")
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise CaseError(f"{subject} is not Python: {error}") from error
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return None if "model" in names else path.resolve()


def with_target(subject: str, options: VersionOptions) -> VersionOptions:
    """Return the options, with a target for a program that names none."""
    is_program = options.target is None and find_source(subject).is_program
    return replace(options, target=TARGET) if is_program else options


@dataclass(frozen=True, slots=True)
class ScriptWriter:
    """Writes the script of an open subject.

    Attributes:
        needs_nothing: Whether the environments have torch only, and no further packages.
    """

    subject: OpenSubject
    needs_nothing: bool
    say: Say

    def write(self, folder: Path) -> Path:
        """Write `repro.py` into a folder, unless an earlier run has written it.

        Raises:
            CaptureError: The program has no graph that can be asked alone.
            ConfigError: The target is not part of torch.
        """
        if (folder / REPRO).is_file():
            return folder / REPRO
        if not self.subject.cases:
            raise CaptureError(
                f"Dynamo gives no graph of {self.subject.source.name}, and releases are asked with "
                "the script of a graph\nnext: name a script of your own that ends with exit code 0 "
                "(good) or 1 (bad)"
            )
        for case in self.subject.cases:
            self._check_target(case)
        case = self._failing_case()
        make_folder(folder)
        if case.signature is None:
            return write_repro(case, folder)
        self.say("run the repro in a clean process")
        path, run = write_verified_repro(case, folder)
        if run.outcome != "reproduced":
            self.say(f"the script does not show the failure here: {run.verdict or run.outcome}")
        return path

    def _check_target(self, case: Case) -> None:
        needs = target_modules(case.target)
        if needs and self.needs_nothing:
            raise ConfigError(
                f"the target {case.target} needs {', '.join(needs)}, and the environments have "
                f"torch only; next: --target {TARGET}, or --with a package that pip can install"
            )

    def _failing_case(self) -> Case:
        """Return the case with its failure; without one if the only graph passes here."""
        cases = self.subject.cases
        known = [case for case in cases if case.signature is not None]
        if known:
            return known[0]
        for number, case in enumerate(cases):
            self.say(f"run {case.name} with {case.target}", number, len(cases))
            seen = conclude(self.subject.executor.ask(Question(case, veto=Veto())))
            if seen.fails:
                return replace(case, signature=seen.signature)
        return self._only_case(cases)

    def _only_case(self, cases: Sequence[Case]) -> Case:
        if len(cases) > 1:
            raise ConfigError(
                f"none of {count_of(len(cases), 'graph')} fails here, and releases are asked about "
                "one; next: --graph N"
            )
        return cases[0]
