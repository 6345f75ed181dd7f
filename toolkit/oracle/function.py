"""A function of the user as the oracle.

    def slow_softmax(case):             ctk minify net.py --oracle check.py:slow_softmax
        return seconds_of(case) > 0.1

It gets a case of its own, which it may change, and says True, False, a `Verdict` or a `Judgement`.
What it does not do: survive a crash of the function; it runs in this process.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ctk.compiler.errors import PredicateError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.graphs.listing import graph_lines
from ctk.toolkit.processes.link import tell_alive
from ctk.toolkit.run.private_copy import private_copy

SHOWN_LINES = 20


class NoAnswer(Exception):
    """A function returned something that says neither yes nor no."""


def judgement_of(answer: object, name: str = "the predicate") -> Judgement:
    """Return the judgement that an answer of a user's function is.

    Raises:
        NoAnswer: It is None: a forgotten return.
        Exception: What has no truth value raises (a tensor of several elements).
    """
    if isinstance(answer, Judgement):
        return answer
    if isinstance(answer, Verdict):
        return Judgement(answer)
    if answer is None:
        raise NoAnswer(f"{name} returned None; it must return True, False or a Verdict")
    return Judgement(Verdict.REPRODUCES if answer else Verdict.PASSES)


@dataclass(slots=True)
class FunctionOracle:
    """Asks a function about cases.

    Attributes:
        function: Takes a case.
        name: What it is called, for messages and for a journal.
    """

    function: Callable[[Case], object]
    name: str

    @property
    def identity(self) -> str:
        """What names the question in a journal."""
        return f"function {self.name}"

    def __call__(self, case: Case) -> Judgement:
        """Judge a case.

        Raises:
            PredicateError: The function raised, or gave no answer; holds the candidate.
        """
        graph, inputs = private_copy(case.graph, case.inputs, lazy=False)
        tell_alive()
        try:
            answer = self.function(replace(case, graph=graph, inputs=inputs))
            judgement = judgement_of(answer, f"the oracle {self.name}")
        except NoAnswer as error:
            raise self._error(str(error), case) from error
        except Exception as error:
            said = f"the oracle {self.name} raised {type(error).__name__}: {first_line(error)}"
            raise self._error(said, case) from error
        if judgement.verdict is not Verdict.REPRODUCES or judgement.signature is not None:
            return judgement
        return replace(judgement, signature=Signature("oracle", message=f"{self.name} says so"))

    def _error(self, said: str, case: Case) -> PredicateError:
        shown = "".join(f"  {line}\n" for line in shortened(graph_lines(case.graph)))
        text = f"{said}\non the candidate:\n{shown}If such a candidate is no failure, return False."
        return PredicateError(text, case.graph, case.inputs)


def shortened(lines: list[str]) -> list[str]:
    """Return the first lines of a long listing."""
    return [*lines[:SHOWN_LINES], *(["..."] if len(lines) > SHOWN_LINES else [])]
