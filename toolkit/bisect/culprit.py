"""What a bisection says: the culprit, how it was found, and what it cost."""

from dataclasses import dataclass
from typing import Literal

from ctk.compiler.observe import Stage
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.formats.schema import document
from ctk.toolkit.oracle.judgement import Judgement

FoundBy = Literal["error", "check", "fuel", "elimination"]
"""`error`: the exception says where it was raised. `check`: the first step after which a value is
wrong. `fuel`: binary search over rewrites by compiling again. `elimination`: neither passes nor
kernels are needed for the failure.
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
    """

    stage: Stage
    name: str
    veto: Veto
    rewrite: int | None = None
    index: int | None = None
    rule: str = ""
    rewrites_in_pass: int = 0
    nodes: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    evidence: str = ""

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
class Search:
    """The result of a bisection.

    Attributes:
        judgement: What the case shows when compiled as it is.
        culprit: What causes it; None when it does not fail, or nothing could be found.
        confirmed: Whether leaving out the culprit, and nothing else, makes the case pass.
        found_by: How.
        compiles: Compiles used, the first and the confirming ones included.
        also: Further culprits: the case passes only without them too.
        reason: Why there is no culprit or no confirmation.
    """

    judgement: Judgement
    culprit: Culprit | None = None
    confirmed: bool = False
    found_by: FoundBy | None = None
    compiles: int = 1
    also: tuple[Culprit, ...] = ()
    reason: str = ""
