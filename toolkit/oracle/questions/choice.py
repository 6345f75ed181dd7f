"""The question of a reduction, as the user chose it; mistakes are errors before any compile.

nothing chosen                 does it fail as the case did?          same_failure.py
--command CMD [--match REGEX]  does this program accept it?           user_command.py
--oracle FILE.py:NAME          does this function accept it?          user_function.py
--slower-than 1.5x             is it so much slower than eager?       performance.py
--memory-above 1.5x            does it take so much more memory?      the same
"""

import math
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import ConfigError, any_of, nearest, not_taken
from ctk.compiler.options.choices import SameRule
from ctk.compiler.usercode import identity
from ctk.compiler.usercode.identity import NotComparable
from ctk.compiler.usercode.references import load
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.usercode.references import reference_to
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.tensor_text import TensorTexts
from ctk.toolkit.oracle.questions.dependencies import files_of_command, files_of_reference

Function = Callable[[Case], object]
"""Returns a bool, a `Verdict` or a `Judgement`."""

CASE, REPRO = "{case}", "{repro}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The question about each candidate; by default, whether it fails as the given case.

    Attributes:
        command: A program and its arguments, with `{case}` or `{repro}` in them.
        match: Pattern of a failure in its output; None: its exit code decides.
        function: A function of the user.
        reference: Its name, under which another process finds it; empty if there is none.
        incomparable: Why the function cannot be compared with that of an earlier process.
        measured: The failure to measure: `slow` or `peak-memory`.
        same: The rule by which two failures are the same.
    """

    command: tuple[str, ...] = ()
    match: re.Pattern[str] | None = None
    function: Function | None = None
    reference: str = ""
    code: str = ""
    incomparable: str = ""
    measured: Signature | None = None
    same: SameRule | None = None

    @property
    def is_own(self) -> bool:
        """Whether the user decides, and not the comparison of eager with compiled."""
        return bool(self.command) or self.function is not None

    @property
    def words(self) -> str:
        """The command or function, for people."""
        if self.command:
            pattern = f" (matching {self.match.pattern})" if self.match else ""
            return f"`{_as_typed(self.command)}`{pattern}"
        return self.reference or getattr(self.function, "__qualname__", "a function")

    @property
    def told(self) -> dict[str, object]:
        """Return the choice as the journal holds it and `resume_command` repeats it."""
        found: dict[str, object] = {}
        if self.command:
            found["command"] = _as_typed(self.command)
            found |= {"match": self.match.pattern} if self.match else {}
        elif self.function is not None:
            found["function"] = self.reference or None
        elif self.measured is not None:
            found[_OPTIONS[self.measured.kind]] = self.measured.limit
        told: dict[str, object] = {"oracle": found} if found else {}
        return told | ({"same_failure": self.same} if self.same else {})

    def check_resumable(self) -> None:
        """Check that the answers of an earlier run can be compared with this question.

        Raises:
            ConfigError: A function holds a value that no other process can compare.
        """
        if self.incomparable:
            raise ConfigError(
                f"cannot resume: the oracle {self.words} cannot be compared with that of the "
                f"earlier run: {self.incomparable}, which has no form to compare\n"
                "next: leave out resume, or define the function in a file and name it: "
                "oracle='FILE.py:NAME'"
            )

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of the user on which the answers depend."""
        if self.command:
            return files_of_command(self.command)
        return files_of_reference(self.reference)


def _as_typed(words: Sequence[str]) -> str:
    """Return words as typed in a shell: the marks need no quotes."""
    text = shlex.join(words)
    return text.replace(f"'{CASE}'", CASE).replace(f"'{REPRO}'", REPRO)


NOTHING_CHOSEN = Choice()

_OPTIONS = {"slow": "slower_than", "peak-memory": "memory_above"}


def choice_of(
    *,
    oracle: Function | str | None = None,
    command: str | Sequence[str] | None = None,
    match: str | None = None,
    slower_than: float | str | None = None,
    memory_above: float | str | None = None,
    same_failure: str | None = None,
) -> Choice:
    """Return the choice that the keywords of a caller make.

    Raises:
        ConfigError: Two of them contradict each other, or one is invalid: not a program, function,
            regular expression, factor or rule.
    """
    given = {
        "--oracle": oracle,
        "--command": command,
        "--slower-than": slower_than,
        "--memory-above": memory_above,
    }
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} are different questions; ask one of them")
    if match is not None and command is None:
        raise ConfigError("--match is about the output of a program; name it with --command CMD")
    if same_failure is not None and chosen and chosen != ["--command"]:
        raise ConfigError(
            f"--same-failure compares failures that ctk sees; {chosen[0]} decides by itself"
        )
    same = _rule(same_failure)
    if command is not None:
        return Choice(command=_words(command), match=_pattern(match), same=same)
    if oracle is not None:
        return _function(oracle)
    if slower_than is not None:
        limit = _factor("--slower-than", slower_than)
        return Choice(measured=Signature("slow", limit=limit))
    if memory_above is not None:
        limit = _factor("--memory-above", memory_above)
        return Choice(measured=Signature("peak-memory", limit=limit))
    return Choice(same=same)


def _rule(text: str | None) -> SameRule | None:
    allowed = get_args(SameRule)
    if text is not None and text not in allowed:
        hint = f"{nearest(text, allowed)}; without it: kind, exception type, raising place"
        raise not_taken("--same-failure", text, any_of(allowed), hint)
    return cast("SameRule | None", text)


def _words(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command whose program exists and that asks about a candidate."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ConfigError(f"--command {command!r}: {error}") from error
    if not words:
        raise ConfigError(f"--command {command!r} is empty; {_EXAMPLE}")
    if not any(mark in word for word in words for mark in (CASE, REPRO)):
        raise ConfigError(
            f"--command {shlex.join(words)!r} names no candidate, so its answer would always "
            f"be the same: put {CASE} (a case folder) or {REPRO} (a script) in it; {_EXAMPLE}"
        )
    program = words[0]
    if program not in (CASE, REPRO) and shutil.which(program) is None:
        why = "cannot be run (chmod +x)" if Path(program).is_file() else "is not a program here"
        raise ConfigError(f"--command: {program!r} {why}; {_EXAMPLE}")
    return tuple(words)


_EXAMPLE = "e.g. --command 'python check.py {case}'"


def _pattern(match: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(match, re.MULTILINE) if match is not None else None
    except re.error as error:
        raise ConfigError(f"--match {match!r} is not a regular expression: {error}") from error


def _function(oracle: Function | str) -> Choice:
    given: object = oracle
    if isinstance(given, str):
        found = load(given, kind="oracle")
        if not callable(found):
            raise ConfigError(
                f"oracle {given!r} is a {type(found).__name__}, which cannot be called; name a "
                "function that takes a case and returns True, False or a Verdict"
            )
        return _identify(found, given)
    if not callable(given):
        raise ConfigError(
            f"oracle is a {type(given).__name__}; pass a function that takes a case and returns "
            "True, False or a Verdict, or its name: 'FILE.py:NAME'"
        )
    return _identify(cast("Function", oracle), reference_to(given) or "")


def _identify(function: Function, reference: str) -> Choice:
    """Return the choice of a function; a name leads to a file, whose text identifies it."""
    try:
        code = digest_of(function, by_file=bool(reference))
    except NotComparable as error:
        why = "" if reference else str(error)
        return Choice(function=function, reference=reference, incomparable=why)
    return Choice(function=function, reference=reference, code=code)


def digest_of(function: Callable[..., object], *, by_file: bool = False) -> str:
    """Return the digest of a function, a method or a callable object.

    Tensors and graphs in it count by their contents.

    Args:
        by_file: Leave out the global names, which the text of its file determines.

    Raises:
        NotComparable: It holds a value that cannot be compared, such as a lock or an open file.
    """
    return identity.digest_of(function, _leaf, by_file=by_file)


def _leaf(value: object) -> str | None:
    match value:
        case GraphModule():
            return f"graph {fingerprint(Case(value, ()))}"
        case torch.Tensor():
            return TensorTexts(Digests().of).of(value)
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return repr(value)
        case _:
            return None


def _factor(option: str, value: float | str) -> float:
    """Return the number of `1.5x` or `1.5`."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("x"))
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not (math.isfinite(number) and number > 0):
        raise ConfigError(
            f"{option} {text!r} is not a factor; name how many times eager's, e.g. {option} 1.5x"
        )
    return number
