"""Import `pytest:FILE::TEST`: run a test, and return every graph that `torch.compile` captures.

The test runs once, in this process, with its fixtures, parameters and classes, as `pytest` runs it.
Each backend that it looks up records the graph and runs it in eager, so that a wrong compile does
not end the test before its later graphs. The target of a case is the test's own backend, with its
options and the options of Inductor set so far, unless the user names a target. Nothing is compiled
or judged here; a test that fails on eager values gives the graphs up to the failure.

A case has the name of its test: `TestNet.test_f.2-a.graph0` for `TestNet::test_f[2-a]`.
"""

import contextlib
import dataclasses
import io
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CaptureError, ProgramError, TargetError, nearest
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.capture_reasons import Collected, collect_reasons
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.process.settings import restore_settings
from ctk.compiler.usercode.references import near_file
from ctk.repro_templates.program.program_play import seed_all
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.references import json_options, reference_to
from ctk.toolkit.importers.base import Importer, check_request
from ctk.toolkit.importers.changed_options import filter_savable
from ctk.toolkit.importers.no_graph import HINT, explain_no_graph
from ctk.toolkit.importers.program import Captured, make_case, make_recording_backend, tensors_in
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.targets import target_of

PREFIX = "pytest:"


@dataclass(frozen=True, slots=True)
class RecordedBackend:
    """A backend of a test, and the graphs that it was called with.

    Attributes:
        target: The target spec; None for a backend that no other process can import.
        settings: The options of Inductor that are set while each graph is compiled.
    """

    test: str
    target: str | None
    shown: str
    config: Mapping[str, object]
    captured: list[Captured] = field(default_factory=list[Captured])
    settings: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])


class PytestTest(Importer):
    """A test, or all tests of a file or class."""

    form = "pytest:FILE::TEST"

    @staticmethod
    def accepts(spec: str) -> bool:
        return spec.startswith(PREFIX)

    @property
    def name(self) -> str:
        return slug(self.text)

    def cases(self, request: CaseOptions) -> list[Case]:
        if request.target is not None:
            check_request(request, brings_options=True)
        return _run_tests(self.text, request)


def _run_tests(spec: str, request: CaseOptions) -> list[Case]:
    """Run the test, or all tests of a file or class, and return their graphs as cases.

    Raises:
        ProgramError: pytest is not installed, there is no such test, it cannot be collected, or it
            ends before anything is compiled.
        CaptureError: It never calls `torch.compile`.
        TargetError: Its backend has no name, and the user gives none.
    """
    name = spec.removeprefix(PREFIX)
    if not name.strip():
        raise ProgramError(f"{spec} names no test; e.g. pytest:tests/test_net.py::test_forward")
    file = Path(name.partition("::")[0]).expanduser()
    if not file.exists():
        raise ProgramError(f"no such file: {file}{near_file(file.absolute())}")
    run, found = TestRun(request), Collected()
    torch.compiler.reset()
    with seed_all(), collect_reasons(found):
        run.run(name)
    if not any(compiled.captured for compiled in run.compiled):
        raise _explain_nothing_compiled(name, run, found)
    return _cases(run, request, file.absolute().parent)


@dataclass(slots=True, eq=False)
class TestRun:
    """One run of pytest: its plugin, and the wrapper of each backend."""

    __test__ = False  # pytest would collect a class of this name

    request: CaseOptions
    test: str = ""
    tests: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    compiled: list[RecordedBackend] = field(default_factory=list[RecordedBackend])
    _before: Mapping[str, object] = field(default_factory=dict[str, object])
    _known: list[tuple[str, object, Callable[..., object]]] = field(
        default_factory=list[tuple[str, object, Callable[..., object]]]
    )

    def run(self, name: str, *options: str) -> int:
        """Run pytest on a selection, without its output."""
        pytest = _pytest()
        undo = dynamo.wrap_backend_lookup(self.record_backend, self)
        arguments = [name, "-q", "-o", "addopts=", "-o", "ctk=off"]
        arguments += ["-p", "no:cacheprovider", *options]
        self._before = inductor.option_values()
        try:
            with _restore_process_state(), _drop_output():
                return int(pytest.main(arguments, plugins=[self]))
        finally:
            undo()

    def pytest_collection_modifyitems(self, items: Sequence[Any]) -> None:
        """Record the selected tests."""
        self.tests += [str(item.nodeid) for item in items]

    def pytest_collectreport(self, report: Any) -> None:
        """Record a failed collection."""
        if report.failed:
            self.problems.append(_last_line(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the running test."""
        self.test = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record why a test ended early."""
        if report.failed or report.skipped:
            word = "is skipped" if report.skipped else f"fails in its {report.when}"
            self.problems.append(f"{report.nodeid} {word}: {_last_line(report)}")

    def record_backend(self, backend: object) -> object:
        """Return the recording backend for a backend of the test; the same for equal ones."""
        if hasattr(backend, "ctk_records"):
            return backend
        for test, known, wrapper in self._known:
            if test == self.test and (known is backend or known == backend):
                return wrapper
        wrapper = self._make_recording_backend(*dynamo.unwrap_backend(backend))
        self._known.append((self.test, backend, wrapper))
        return wrapper

    def _make_recording_backend(
        self, name: str | None, function: object, keywords: Mapping[str, object]
    ) -> Callable[..., object]:
        options = keywords.get("options")
        given = dict(options) if isinstance(options, Mapping) else {}
        target = name or reference_to(function)
        shown = name or getattr(function, "__qualname__", type(function).__qualname__)
        compiled = RecordedBackend(self.test, target, shown, json_options(given)[0])
        self.compiled.append(compiled)
        backend = make_recording_backend(compiled.captured, backward=self.request.backward)

        def ctk_recording(
            gm: GraphModule, example_inputs: Sequence[object], **_: object
        ) -> Callable[..., object]:
            slot = len(compiled.captured)
            compiled.settings.append(self._find_changed_options())
            made: Any = backend(gm, example_inputs)
            return partial(_call_and_note_backward, made, compiled.captured, slot)

        ctk_recording.ctk_records = True  # type: ignore[attr-defined]  # functions take attributes
        return ctk_recording

    def _find_changed_options(self) -> Mapping[str, object]:
        """Return the options of Inductor that the test, its fixtures and files have set so far."""
        now, before = inductor.option_values(), self._before
        return {key: value for key, value in now.items() if before.get(key) != value}


def _call_and_note_backward(
    call: Callable[..., object], captured: list[Captured], slot: int, *args: object
) -> object:
    """Call a recorded graph; set `modes.backward` when a gradient reaches it."""

    def note(_: torch.Tensor) -> None:
        modes = dataclasses.replace(captured[slot].modes, backward=True)
        captured[slot] = dataclasses.replace(captured[slot], modes=modes)

    result = call(*args)
    for tensor in tensors_in(result):
        if tensor.requires_grad:
            tensor.register_hook(note)
    return result


def _cases(run: TestRun, request: CaseOptions, folder: Path) -> list[Case]:
    cases: list[Case] = []
    for compiled in run.compiled:
        target = request.target or compiled.target
        if target is None:
            raise TargetError(
                f"the backend {compiled.shown} of {compiled.test} is local: nothing else can "
                "import it\nnext: define it at the top level of a module, or give --target"
            )
        own = compiled.config if target == compiled.target else {}
        for captured, settings in zip(compiled.captured, compiled.settings, strict=True):
            kept = filter_savable(settings, compiled.test) if target_of(target).settings else {}
            config = {**kept, **own, **(request.config or {})}
            sources = source_files(target, config, folder)
            number = sum(case.name.startswith(f"{slug(compiled.test)}.") for case in cases)
            name = f"{slug(compiled.test)}.graph{number}"
            cases.append(make_case(captured, name, target=target, config=config, sources=sources))
    return cases


def slug(test: str) -> str:
    """Return a test's id as a name for folders: `TestNet.test_f.2-a` of `a.py::TestNet::...`."""
    inner = test.partition("::")[2] or Path(test).stem
    return re.sub(r"[^\w.-]+", ".", inner).strip(".")[:80] or "test"


def _explain_nothing_compiled(name: str, run: TestRun, found: Collected) -> Exception:
    if run.problems:
        more = f" (and {len(run.problems) - 1} more)" if len(run.problems) > 1 else ""
        return ProgramError(f"{name}: nothing is compiled: {run.problems[0]}{more}")
    if not run.tests:
        return ProgramError(f"no such test: {name}{_near_test(name)}")
    never = "it never calls torch.compile, or did before it was run here"
    was_asked = found.reasons or found.traced
    reasons = explain_no_graph(found) if was_asked else (never,)
    return CaptureError(f"Dynamo captured no graph of {name}: {reasons[0]}\n  {HINT}")


def _near_test(name: str) -> str:
    file, _, inner = name.partition("::")
    listing = TestRun(CaseOptions())
    listing.run(file, "--collect-only")
    if listing.problems:
        return f": {listing.problems[0]}"
    inners = sorted({test.partition("::")[2] for test in listing.tests})
    plain = sorted({each.partition("[")[0] for each in inners})
    hint = nearest(inner, plain if "[" not in inner else inners)
    return hint or (f"; it has {', '.join(plain[:5])}" if plain else f": {file} has no tests")


def _last_line(report: Any) -> str:
    """Return the reason of a failed or skipped report, in one line."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    if crash is not None:
        return f"{str(crash.message).splitlines()[0]} ({Path(crash.path).name}:{crash.lineno})"
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: file, line, reason
        return str(longrepr[-1])  # pyright: ignore[reportUnknownArgumentType]  # pytest's own tuple
    lines = [line.strip() for line in str(longrepr).splitlines() if line.strip()]
    return lines[-1].removeprefix("E ").strip() if lines else "no reason given"


@contextlib.contextmanager
def _drop_output() -> Generator[None]:
    dropped = io.StringIO()
    with contextlib.redirect_stdout(dropped), contextlib.redirect_stderr(dropped):
        yield


@contextlib.contextmanager
def _restore_process_state() -> Generator[None]:
    path = list(sys.path)
    with restore_settings():
        os.environ.pop("PYTEST_ADDOPTS", None)
        try:
            yield
        finally:
            sys.path[:] = path


def _pytest() -> Any:
    try:
        import pytest
    except ImportError as error:
        raise ProgramError("pytest:FILE::TEST needs pytest (pip install pytest)") from error
    return pytest


IMPORTER = PytestTest
