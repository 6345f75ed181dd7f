"""repro: does it still fail? When asked for, each failing graph as a case with its repro.py."""

from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.options.choices import InputsMode
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import check_free, make_folder
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.options import ReproOptions
from ctk.toolkit.oracle.open_subject import judge_program, open_subject
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import conclude
from ctk.toolkit.repro.run import ReproRun
from ctk.toolkit.repro.verified import write_verified_repro


@dataclass(frozen=True, slots=True)
class GraphRepro:
    """One graph of a program.

    Attributes:
        case: The graph as it was asked about.
        folder: Where it was written as a case; None if it was not.
        run: The run of the script in a clean process.
    """

    case: Case
    judgement: Judgement
    folder: Path | None = None
    script: Path | None = None
    run: ReproRun | None = None


@dataclass(frozen=True, slots=True)
class ReproReport:
    """The judgements of a program.

    Attributes:
        graphs: Its graphs, in order; none where Dynamo gives none.
        end_to_end: The comparison of its compiled and eager calls; None for cases and graphs, and
            if a graph fails already.
    """

    graphs: tuple[GraphRepro, ...]
    end_to_end: EndToEnd | None = None

    @property
    def judgement(self) -> Judgement:
        """The most severe judgement of the program."""
        whole = self.end_to_end.judgement if self.end_to_end is not None else None
        return judge_program([graph.judgement for graph in self.graphs], whole)

    @property
    def fails(self) -> bool:
        return self.judgement.fails


@takes_keywords(ReproOptions)
def repro(subject: Subject, inputs: Inputs | None, options: ReproOptions) -> ReproReport:
    """Compile and run each graph of a program, and compare the results with eager.

    >>> import ctk
    >>> ctk.repro("examples/broken_pass.py").judgement.verdict.value
    'reproduces'

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `ReproOptions`.
    """
    graphs: list[GraphRepro] = []
    with open_subject(subject, inputs, options) as it:
        for number, case in enumerate(it.cases):
            if options.out is not None:  # a folder that is not free is found before the answer
                check_free(make_folder(Path(options.out).expanduser()) / case.name)
            options.say(f"run {case.name} with {case.target}", number, len(it.cases))
            seen = it.executor.ask(Question(case, case.signature, Veto()))
            graphs.append(GraphRepro(case, conclude(seen)))
        is_shown = any(graph.judgement.tells_of_the_program for graph in graphs)
        whole = None if is_shown else it.end_to_end(options.say)
    if options.out is not None:
        options.say("run the repros in a clean process")
        graphs = [_write_case(graph, Path(options.out), options.keep) for graph in graphs]
    return ReproReport(tuple(graphs), whole)


def _write_case(found: GraphRepro, out: Path, keep: InputsMode) -> GraphRepro:
    if not found.judgement.fails:
        return found
    failing = replace(found.case, signature=found.judgement.signature)
    folder = save_case(failing, out.expanduser() / failing.name, inputs=keep)
    script, run = write_verified_repro(failing, folder)
    return replace(found, folder=folder, script=script, run=run)
