"""Sentences for people about each verdict, kind of failure and place."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ctk.toolkit.case.failure import FailureKind, FailureOrigin
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.reduce.driver import Reason

VERDICTS: Mapping[Verdict, str] = {
    Verdict.PASSES: "no failure: compiled and eager agree",
    Verdict.REPRODUCES: "failure",
    Verdict.DIFFERENT: "failure, but another one than the case records",
    Verdict.INVALID: "cannot tell: the program cannot be asked about",
    Verdict.FLAKY: "cannot tell: two runs of the same program differ",
    Verdict.TIMEOUT: "cannot tell: the time limit ran out",
    Verdict.ILL_CONDITIONED: "not a failure: ill-conditioned",
    Verdict.UNINITIALIZED: "not a failure: uninitialized memory",
    Verdict.DOCUMENTED: "documented difference",
}
"""A sentence for each verdict."""

MEANINGS: Mapping[FailureKind, str] = {
    "compile-error": "the compiler raises; eager runs the program",
    "runtime-error": "the compiled program raises; eager does not",
    "missing-error": "eager raises; the compiled program gives a result instead",
    "other-error": "eager and the compiled program raise different exceptions",
    "signal": "a signal kills the process that runs the compiled program; eager runs it",
    "exit": "the compiled program ends its process; eager does not",
    "timeout": "the compile or its result takes longer than the time limit; eager does not",
    "memory": "the compile or its result takes more memory than it may; eager does not",
    "accuracy": (
        "the compiled result is wrong: its error (against float64; without such a run, against"
        " eager) is beyond the tolerance and ten times eager's own error"
    ),
    "nan": "NaN or Inf is at other places than in eager, and than in a float64 run if there is one",
    "dtype": "a result has another dtype than in eager",
    "shape": "a result has another shape than in eager",
    "stride": "a result lies in memory in another order than in eager",
    "structure": "there are more, fewer or differently nested results than in eager",
    "alias": "results share memory with others than in eager",
    "requires-grad": "a result requires a gradient on one side only",
    "state": "state differs from eager's after the call: of Python, a module or a generator",
    "slow": "the compiled call takes so many times as long as eager's",
    "peak-memory": "the compiled call takes so many times as much memory as eager's, at its peak",
    "slow-compile": "the compile takes too long, and its time grows faster than its graph",
    "oracle": "a command or function of yours calls it a failure",
}
"""A sentence for each kind of failure."""

PLACES: Mapping[FailureOrigin, str] = {
    "dynamo": "Dynamo: its capture, guards and resumes, and code around graphs, with any backend",
    "export": "torch.export: the exported program differs when it runs in eager",
    "runtime": "the target in the whole program: compiled graphs, their wrappers, later calls",
    "operator": (
        "a custom operator that breaks its declaration or differs in a trace: no compiler is at"
        " fault"
    ),
    "captured": "the graph as Dynamo captured it, on its way to the compiler",
    "pre_grad": "the passes before autograd",
    "dispatch": "AOT dispatch: autograd, functionalization and decompositions, before any pass",
    "joint": "the passes over forward and backward together",
    "forward": "the passes over the forward graph",
    "backward": "the passes over the backward graph",
    "frozen": "the passes over a graph whose parameters are constants",
    "lowered": "code generation: lowerings, fusions, kernels",
}
"""A description of each place."""

ENDINGS: Mapping[Reason, str] = {
    "minimal": "minimal",
    "incomplete": "not all steps could be tried",
    "interrupted": "interrupted",
    "questions": "stopped by questions",
    "seconds": "stopped by seconds",
    "time": "stopped by the time",
    "error": "stopped by an error",
}
"""Why a reduction ended."""

INTERRUPTED = "repro.py was not run: interrupted"
"""The problem of an operation that Ctrl-C has ended before the run of its script."""

_NAMED = 4
"""How many unfinished steps a line names."""


def ending(reason: Reason, unfinished: Sequence[str]) -> str:
    """Return how a reduction ended: `minimal` only where every step has tried everything.

    Args:
        reason: Why the search ended.
        unfinished: `STEP` or `STEP: why` of each that has not (`Reduction.unfinished`).
    """
    if not unfinished:
        return ENDINGS[reason]
    comma = "; " if any(":" in each for each in unfinished[:_NAMED]) else ", "
    more = f" and {len(unfinished) - _NAMED} more" if len(unfinished) > _NAMED else ""
    said = "stopped" if reason == "minimal" else ENDINGS[reason]
    return f"{said}; not finished: {comma.join(unfinished[:_NAMED])}{more}"


BUG = "ctk-bug.txt"
"""The file with the tracebacks of internal errors, beside the result."""


def with_log(problem: str, folder: Path) -> str:
    """Return a problem with the path of its traceback, if it is an internal error."""
    log = folder / BUG
    return f"{problem}; log: {log}" if " raised " in problem and log.is_file() else problem


_LABELS = (
    ("operator/trace.", "operator", "when that operator alone runs as in eager, untraced"),
    ("operator/", "operator", "when that operator alone runs as it is declared"),
    ("dispatch/decompose.", "decomposed", "when that operator alone is kept whole"),
    ("dispatch/meta.", "fake", "with the real kernel's shape in place of the fake one"),
    ("dispatch/functionalize", "step", ""),
    ("joint/partition", "step", "with a plain partition instead"),
    ("lowered/lower.", "lowering", "when that operator alone falls back to ATen"),
    ("lowered/fus", "fusion", "when that fusion alone is forbidden"),
    ("lowered/lower", "lowering", "when that node alone is a call of the library"),
    ("lowered/plan_memory", "memory", "when that buffer alone has memory of its own"),
    ("lowered/", "setting", "with that alone turned off"),
)
"""How places are called that are no passes: begin of the name, label, and how one is left out."""


def label_of(where: str, *, is_kernel: bool) -> str:
    """Return the kind of a culprit, in one word."""
    if is_kernel:
        return "kernel"
    return next((label for start, label, _ in _LABELS if where.startswith(start)), "pass")


def phrase_left_out(where: str, *, is_kernel: bool) -> str:
    """Return how a compile without a culprit is put: `when that fusion alone is forbidden`."""
    if is_kernel:
        return "when that kernel alone runs in eager"
    told = next((said for start, _, said in _LABELS if where.startswith(start)), "")
    return told or "without it alone"
