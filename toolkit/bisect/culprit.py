"""What a bisection says: the culprit, how it was found, and what it cost."""

from dataclasses import dataclass
from typing import Literal

from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto

FoundBy = Literal["error", "check", "fuel", "elimination"]
"""`error`: the exception says where it was raised. `check`: the first step after which a value is
wrong. `fuel`: binary search over rewrites by compiling again. `elimination`: neither passes nor
kernels are needed for the failure.
"""

Relation = Literal["independent", "together"]
"""How several culprits belong together. `independent`: each does harm by itself, so all must go.
`together`: they do harm only together, so leaving out any one of them is enough.
"""


@document
@dataclass(frozen=True, slots=True)
class Culprit:
    """What causes a failure.

    Attributes:
        stage: Where in the pipeline.
        name: Name of the pass (`fold_constants`, with `#2` for its second run in the stage), of the
            kernel (`torchscript:forward`), or `autograd_dispatch`.
        rewrite: Number of the guilty rewrite in the whole compile; None when the pass as a whole is
            meant.
        index: Its place among the rewrites of the pass, from 1.
        rule: What that rewrite applied.
        rewrites_in_pass: How many rewrites the pass made.
        nodes: Names of the nodes that the rewrite touched, or of the first wrong one.
        captured: Names of the nodes of the captured graph that these came from.
        veto: What a counterfactual must leave out.
        evidence: The measured mismatch or the exception, one line.
        excerpt: The lines of the generated kernel that compute the first wrong value, below the
            kernel's id; "" where that is not known.
        line: `FILE:LINE` of the user's program that is to blame, where no graph tells it; else "".
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
    """Return a culprit in one line; `place` tells of its rewrite within the pass, if it has one."""
    parts = [where]
    parts += [f"rewrite {rewrite} ({place})"] if rewrite is not None else []
    parts += [f"at {', '.join(nodes[:4])}"] if nodes else []
    return ", ".join(parts)


@document
@dataclass(frozen=True, slots=True)
class OptionEffect:
    """What a failing case shows with one option of its target changed, and nothing left out.

    Attributes:
        option: Name of the option.
        value: Its value as `--config` takes it; None: not set, though the case sets it.
        verdict: What it shows: it passes, or fails in another way.
    """

    option: str
    value: str | None
    verdict: Verdict

    @property
    def words(self) -> str:
        return option_words(self.option, self.value)


def option_words(option: str, value: str | None) -> str:
    """Return an option and its value in words, as a user would type it."""
    return f"without --config {option}" if value is None else f"with --config {option}={value}"


@document
@dataclass(frozen=True, slots=True)
class Search:
    """The result of a bisection.

    Attributes:
        judgement: What the case shows when compiled as it is.
        culprit: What causes it; None when it does not fail, or nothing could be found.
        confirmed: Whether leaving out the culprit, and nothing else, makes the case pass.
        found_by: How.
        compiles: Compiles used, the first and the confirming ones included.
        option_compiles: Compiles used to see which options of the target matter.
        also: Further culprits, each proved to be needed; see `relation`.
        reason: Why there is no culprit or no confirmation, or what is special about the proof.
        relation: How the culprits belong together, if there are several.
        hidden: Steps that change values although the results agree, each proved by a compile
            without it; only where the case passes.
        options: Options of the target that change what the case shows, if that was asked.
        excluded: What was shown not to be the cause, a sentence each.
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
