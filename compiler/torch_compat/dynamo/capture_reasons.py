"""Dynamo's own reasons for uncompiled code, with the file and line of the program.

Hooks three places in a region: the call by which Dynamo is offered a frame (its result shows
whether the frame was skipped), the exception by which it stops a trace, to break the graph or skip
the frame, and other exceptions of a trace, which it may suppress. For example:

    def f(x):                           Reason("Failed to trace builtin operator: Dynamo does not
        print("hi")                       know how to trace builtin operator `print` ...",
        return x                          "f.py", 2, "f")
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
import os
import sysconfig
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from ctk.compiler.torch_compat.dynamo.dynamo_api import control_flow
from ctk.compiler.torch_compat.inductor.patch_sites import replace_attribute

TORCH = str(Path(torch.__file__).parent)
LIBRARIES = (TORCH, "<", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
"""Folders of files that do not belong to the user's program."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why Dynamo skipped a frame, or broke a graph.

    Attributes:
        file: Where, in the program; empty where only torch's own frames are known.
        line: Line of `file`: of the call that broke, or the first of the skipped function.
    """

    text: str
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def is_in_library(self) -> bool:
        """Whether the place is known, and not in the user's own files."""
        return self.file.startswith(LIBRARIES)

    @property
    def place(self) -> str:
        """`FILE:LINE in FUNCTION`, or nothing."""
        return f"{self.file}:{self.line} in {self.function}" if self.file else ""


@dataclass(slots=True)
class Collected:
    """Dynamo's decisions in a region.

    Attributes:
        traced: The program's functions that Dynamo traced, with or without operations.
    """

    reasons: list[Reason] = field(default_factory=list[Reason])
    traced: list[Reason] = field(default_factory=list[Reason])

    def add(self, reason: Reason) -> None:
        """Add a reason that is not there yet."""
        if reason not in self.reasons:
            self.reasons.append(reason)


@contextmanager
def collect_reasons(found: Collected) -> Generator[None]:
    """Collect in `found`, until the block ends, why Dynamo leaves code uncompiled.

    In torch: `torch._dynamo.convert_frame.CatchErrorsWrapper`,
    `ConvertFrameAssert`, `torch._dynamo.exc.Unsupported`. Where a result does not say why its frame
    was skipped (older torch), the exception that asked for it does; where there is none, there was
    no operation.
    """
    convert: Any = importlib.import_module("torch._dynamo.convert_frame")
    frames, tracer = convert.CatchErrorsWrapper, convert.ConvertFrameAssert
    gives_up: Any = importlib.import_module("torch._dynamo.exc").Unsupported
    offer, init, trace = frames.__call__, gives_up.__init__, tracer.__call__
    here = threading.local()

    def offered(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        outer, before = getattr(here, "code", None), len(found.reasons)
        here.code, here.skip = frame.f_code, None
        try:
            result = offer(self, frame, *args, **kwargs)
        finally:
            here.code = outer
        if getattr(result, "guarded_code", None) is not None:
            found.traced.append(_at(frame.f_code, ""))
        elif len(found.reasons) == before:
            said = getattr(result, "skip_reason", None) or getattr(here, "skip", None)
            found.add(_at(frame.f_code, _skip_reason(said, frame.f_code)))
        return result

    def given_up(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        text = summarize_break(str(args[0] if args else kwargs.get("msg", "")))
        found.add(_place_of_trace(text, self, getattr(here, "code", None)))

    def traced(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(found.reasons)
        try:
            result = trace(self, frame, *args, **kwargs)
            if getattr(result, "guarded_code", None) is None:
                here.skip = "No ops traced"
            return result
        except Exception as error:
            here.skip = str(error)
            if not isinstance(error, control_flow()) and len(found.reasons) == before:
                first, *_ = str(error).strip().splitlines() or [""]
                text = f"{type(error).__name__}: {first}"
                found.add(_place_of_trace(text, error, frame.f_code))
            raise

    with ExitStack() as undo:
        undo.callback(replace_attribute(frames, "__call__", offered))
        undo.callback(replace_attribute(gives_up, "__init__", given_up))
        undo.callback(replace_attribute(tracer, "__call__", traced))
        yield


def switched_off_by() -> str:
    """Return why Dynamo compiles nothing at all; empty if it does."""
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(name) == "1":
            return f"the variable {name}=1"
    config: Any = importlib.import_module("torch._dynamo.config")
    return "torch._dynamo.config.disable" if config.disable else ""


def is_error_suppressed() -> bool:
    """Return whether Dynamo hides its errors (`suppress_errors`)."""
    config: Any = importlib.import_module("torch._dynamo.config")
    return bool(config.suppress_errors)


def definition(function: object) -> Reason:
    """Return the place of definition of a model or function, behind torch's wrappers."""
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(
            function, "_torchdynamo_orig_callable", None
        )
        if inner is None:
            break
        function = inner
    function = getattr(function, "__func__", function)
    return _at(function.__code__, "") if isinstance(function, FunctionType) else Reason("")


def _at(code: CodeType, text: str) -> Reason:
    if code.co_filename.startswith((TORCH, "<")):
        return Reason(text)
    return Reason(text, code.co_filename, code.co_firstlineno, code.co_name)


def _place_of_trace(text: str, error: BaseException, code: CodeType | None) -> Reason:
    """Return the reason at the innermost line of the program that Dynamo was tracing."""
    stack: Any = getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack()
    for foreign in (LIBRARIES, (TORCH, "<")):
        for summary in reversed(stack):
            if not summary.filename.startswith(foreign):
                return Reason(text, summary.filename, summary.lineno or 0, summary.name)
    return _at(code, text) if code is not None else Reason(text)


def _skip_reason(said: str | None, code: CodeType) -> str:
    if said is None or "skipfiles" in said:
        rules: Any = importlib.import_module("torch._dynamo.trace_rules")
        rule = rules.check_verbose(code)
        if getattr(rule, "skipped", False):
            return f"frame is in the Dynamo skipfiles list: {rule.reason}"
    return (said or "Dynamo skipped the frame without a reason").splitlines()[0]


def summarize_break(message: str) -> str:
    """Return title and explanation of a graph break, without hints and links.

    >>> summarize_break("Call to `f`\\n  Explanation: It breaks.\\n  Hint: Do not.")
    'Call to `f`: It breaks.'
    """
    title, *rest = message.strip().splitlines() or [""]
    told = [line.strip() for line in rest if line.strip().startswith("Explanation:")]
    explanation = told[0].removeprefix("Explanation:").strip() if told else ""
    return f"{title}: {explanation}" if explanation else title
