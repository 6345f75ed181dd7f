"""A function of the user as the oracle.

    def slow_softmax(case):             ctk minify net.py --oracle check.py:slow_softmax
        return seconds_of(case) > 0.1

It gets a copy of the case, which it may change, and returns True, False, a `Verdict` or a
`Judgement`. It runs in this process, which does not survive its crash.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

import numpy as np
import torch

from ctk.compiler.errors import PredicateError
from ctk.compiler.fx.types import tensor_text
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.graphs.graph_lines import graph_lines
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.execution.private_copy import private_copy
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.processes.descriptors import keep_standard_streams
from ctk.toolkit.processes.link import report_alive, report_function

SHOWN_LINES = 20


class NoAnswer(Exception):
    """The return value of a function is neither yes nor no."""


def judgement_of(answer: object, name: str = "the predicate") -> Judgement:
    """Return the judgement for the return value of a function of the user.

    Cases: 1. a `Judgement` or a `Verdict`; 2. a bool of Python or NumPy, or a bool tensor without
    dimensions. Other values that are true for Python are mistakes: a forgotten `any`, the name of a
    verdict and a coroutine that never ran would all be a yes.

    Raises:
        NoAnswer: It is something else.
    """
    if isinstance(answer, Judgement):
        return answer
    if isinstance(answer, Verdict):
        return Judgement(answer)
    is_tensor = isinstance(answer, torch.Tensor) and answer.dtype is torch.bool and not answer.dim()
    if is_tensor or isinstance(answer, bool | np.bool_):
        return Judgement(Verdict.REPRODUCES if answer else Verdict.PASSES)
    raise NoAnswer(f"{name} returned {_show(answer)}; it must return True, False or a Verdict")


def _show(answer: object) -> str:
    """Return an answer for a message: its type, and its value where that is short."""
    if answer is None:
        return "None"
    if isinstance(answer, Coroutine):
        answer.close()  # else Python warns that it was never awaited
        return "a coroutine (an `async def` is not run here)"
    if isinstance(answer, torch.Tensor):
        return f"a tensor, {tensor_text(str(answer.dtype), answer.shape)}"
    kind = type(answer).__qualname__
    if isinstance(answer, str) and answer in (verdict.value for verdict in Verdict):
        return f"{answer!r} (the verdict is ctk.Verdict.{answer.upper()})"
    is_plain = isinstance(answer, _PLAIN)
    return f"{quote_value(answer)} ({kind})" if is_plain else f"an object of type {kind}"


_PLAIN = (str, bytes, int, float)
"""Types whose values are worth showing in a message."""


@dataclass(slots=True)
class FunctionOracle:
    """Asks a function about cases.

    Attributes:
        code: Its digest; two functions may have one name.
    """

    function: Callable[[Case], object]
    name: str
    code: str = ""

    @property
    def identity(self) -> str:
        """Names the oracle in the journal."""
        return " ".join(filter(None, ["function", self.name, self.code]))

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Call the function; it has no time limit.

        Raises:
            PredicateError: The function raised, called `sys.exit`, or gave no answer; holds the
                candidate.
        """
        if known_only:
            raise NotKnown
        case = question.case
        graph, inputs = private_copy(case.graph, case.inputs, lazy=False)
        report_alive()
        try:
            with report_function(self.name), keep_standard_streams():
                answer = self.function(replace(case, graph=graph, inputs=inputs))
            judgement = judgement_of(answer, f"the oracle {self.name}")
        except NoAnswer as error:
            raise self._error(str(error), case) from error
        except SystemExit as error:  # as `--help` of an argument parser does
            said = f"the oracle {self.name} called sys.exit({error.code!r})"
            raise self._error(said, case) from error
        except Exception as error:
            said = f"the oracle {self.name} raised {type(error).__name__}: {first_line(error)}"
            raise self._error(said, case) from error
        if judgement.verdict is not Verdict.REPRODUCES or judgement.signature is not None:
            return judgement
        return replace(judgement, signature=Signature("oracle", message=f"{self.name} says so"))

    def _error(self, said: str, case: Case) -> PredicateError:
        shown = "".join(f"  {line}\n" for line in shorten_listing(graph_lines(case.graph)))
        text = (
            f"{said}\non the candidate:\n{shown}If such a candidate is not a failure, return False."
        )
        return PredicateError(text, case.graph, case.inputs)


def shorten_listing(lines: list[str]) -> list[str]:
    """Return the first lines of a long listing."""
    return [*lines[:SHOWN_LINES], *(["..."] if len(lines) > SHOWN_LINES else [])]
