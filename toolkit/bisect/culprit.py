"""The result of a bisection: the culprit, how it was found, and its cost in compiles."""

from dataclasses import dataclass
from typing import Literal

from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto

FoundBy = Literal["error", "check", "fuel", "elimination"]
"""`error`: the exception carries its place. `check`: the first step after which a value is wrong.
`fuel`: binary search over rewrites. `elimination`: compiles with passes or kernels left out.
"""

Relation = Literal["independent", "together"]
"""How several culprits belong together. `independent`: each does harm by itself, so all must go.
`together`: they do harm only together, so leaving out any one of them is enough.
"""


@document
@dataclass(frozen=True, slots=True)
class Culprit:
    """The cause of a failure.

    Attributes:
        name: Name of the pass (`fold_constants`, with `#2` for its second run in the stage), of the
            kernel (`torchscript:forward`), or `autograd_dispatch`.
        veto: Leaves it out in a counterfactual.
        rewrite: Number of the guilty rewrite in the whole compile; None: the pass as a whole.
        index: Position of the rewrite within the pass, from 1.
        nodes: Names of the nodes that the rewrite touched, or of the first wrong one.
        captured: Names of the nodes of the captured graph from which these came.
        evidence: The measured mismatch or the exception, one line.
        excerpt: The lines of the generated kernel that compute the first wrong value, below the
            kernel's id; "" if unknown.
        line: Guilty `FILE:LINE` of the user's program, if no graph shows the failure; else "".
        alternatives: Other suspects, as `stage/name`, without any one of which alone the case
            passes too, and which nothing shows to be innocent.
        proof: The counterfactual in words, if more is left out than the culprit names; else "".
    """

    stage: FailureOrigin
    name: str
    veto: Veto
    rewrite: int | None = None
    index: int | None = None
    rule: str = ""
    rewrites_in_pass: int = 0
    nodes: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    evidence: str = ""
    excerpt: str = ""
    line: str = ""
    alternatives: tuple[str, ...] = ()
    proof: str = ""

    @property
    def where(self) -> str:
        return f"{self.stage}/{self.name}"

    @property
    def is_kernel(self) -> bool:
        return bool(self.veto.kernels)

    def __str__(self) -> str:
        place = f"{self.index} of {self.rewrites_in_pass} in the pass: {self.rule}"
        return in_one_line(self.where, self.rewrite, place, self.nodes)


def in_one_line(where: str, rewrite: int | None, place: str, nodes: tuple[str, ...]) -> str:
    """Return a culprit in one line; `place` describes its rewrite within the pass."""
    parts = [where]
    parts += [f"rewrite {rewrite} ({place})"] if rewrite is not None else []
    parts += [f"at {', '.join(nodes[:4])}"] if nodes else []
    return ", ".join(parts)


@document
@dataclass(frozen=True, slots=True)
class OptionEffect:
    """The effect of one option on a failing case, with nothing left out.

    Attributes:
        value: Its value as `--config` takes it; None: not set, though the case sets it.
        verdict: `passes`, or `different`.
    """

    option: str
    value: str | None
    verdict: Verdict

    @property
    def words(self) -> str:
        return option_words(self.option, self.value)


def option_words(option: str, value: str | None) -> str:
    """Return the words for an option at a value: `without --config NAME`."""
    return f"without --config {option}" if value is None else f"with --config {option}={value}"


@document
@dataclass(frozen=True, slots=True)
class Search:
    """The result of a bisection.

    Attributes:
        confirmed: Leaving out the culprit, and nothing else, makes the case pass.
        compiles: Compiles used, the first and the confirming ones included.
        also: Further culprits, each proved to be needed; see `relation`.
        reason: Why there is no culprit or no confirmation, or a remark on the proof.
        hidden: Steps of a passing case that change values without changing the results, each proved
            by a compile without it.
        options: Options of the target that change the verdict, if they were searched.
        excluded: Causes that were ruled out, a sentence each.
    """

    judgement: Judgement
    culprit: Culprit | None = None
    confirmed: bool = False
    found_by: FoundBy | None = None
    compiles: int = 1
    option_compiles: int = 0
    also: tuple[Culprit, ...] = ()
    reason: str = ""
    relation: Relation | None = None
    hidden: tuple[Culprit, ...] = ()
    options: tuple[OptionEffect, ...] = ()
    excluded: tuple[str, ...] = ()
