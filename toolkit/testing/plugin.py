"""The pytest plugin: watch each test, fail a wrong compile, and name the next command.

    setup, call, teardown    judged by the failures that the watch has seen (judged_test.py)
    report                   the section `ctk`, and properties for JUnit and xdist
    outcome.json             one per test that compiled, in a folder of its own (toolkit/ci)

It is registered by `ctk_pytest.py` if `--ctk` asks for it, and imports torch when a test does.
"""

import os
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ctk.compiler.errors import CtkError, count_of
from ctk.toolkit.processes.link import Work
from ctk.toolkit.testing.options import Marker, SuiteOptions, read_marker
from ctk.toolkit.testing.suite_watch import SuiteWatch

if TYPE_CHECKING:
    from ctk.toolkit.testing.judged_test import Blame, JudgedTest

_VARIABLES = (
    *("CTK_CHECK_EVERY", "CTK_CHECK_WHEN", "CTK_RING"),
    *("CTK_FUEL", "CTK_DISABLE", "CTK_QUOTA"),
)
"""Variables of the environment that apply to the compiles and comparisons of the tests."""

SECTION = "ctk"
"""The title of the section in a report."""


@dataclass(slots=True, eq=False)
class WatchPlugin:
    """The hooks of one pytest process; a controller of xdist runs no test, and watches nothing."""

    options: SuiteOptions
    watch: SuiteWatch = field(init=False)
    running: tuple[str, str, Marker] | None = None
    test: "JudgedTest | None" = None
    blamed: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.watch = SuiteWatch(self.options, self._note_work)

    @classmethod
    def of(cls, config: pytest.Config) -> "WatchPlugin":
        """Return the plugin for the options of a run; its watch has started.

        Raises:
            UsageError: An option is not allowed, or this pytest is too old.
        """
        if pytest.version_tuple < (8,):
            raise pytest.UsageError(
                f"--ctk needs pytest 8 or newer, and this is pytest {pytest.__version__}: "
                "pip install -U pytest"
            )
        plugin = cls(SuiteOptions.of(config))
        plugin.watch.start()
        return plugin

    def pytest_report_header(self) -> str:
        """Name the mode, the folder, and the variables that change the comparison."""
        variables = (f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name))
        return "; ".join([f"ctk: {self.options.mode}, to {self.options.out}", *variables])

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Fail the collection of a file whose import compiles wrongly, or that has a wrong mark."""
        report = yield
        self.running = (collector.nodeid, "", Marker())
        blame = self._judge()
        self._end()
        problem = "" if blame is None else "\n".join(blame.lines)
        if report.passed:
            items = [each for each in report.result or () if isinstance(each, pytest.Item)]
            problem = problem or self._find_mistake(items)
        if report.passed and problem:
            report.outcome, report.result, report.longrepr = "failed", [], problem
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let a test begin and end."""
        mark = read_marker(item)
        self.running = (item.nodeid, _place_of(item), mark)
        self.watch.enter(item.nodeid, mark)
        try:
            return (yield)
        finally:
            self.watch.enter("", Marker())
            self._end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a phase in which something compiled wrongly, before others read its result."""
        error = _error_of(item, call)
        blame = self._judge(error, call.duration, item)
        if blame is not None:
            item.user_properties += blame.properties
            if error is None or isinstance(error, pytest.skip.Exception):
                call.excinfo = _excinfo_of(blame.error)
        report = yield
        if blame is not None:
            if self.test is not None and hasattr(report, "wasxfail"):
                self.test.accept(blame.outcome, str(report.wasxfail))
            if report.failed and call.excinfo is not None and call.excinfo.value is blame.error:
                report.longrepr = call.excinfo.getrepr(style="value")
            report.sections.append((SECTION, "\n".join(blame.lines)))
        return report

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Add the compile at which a worker of xdist ended."""
        from ctk.toolkit.ci.outcome import read_outcome
        from ctk.toolkit.testing.judged_test import folder_name

        try:
            outcome = read_outcome(self.options.out / folder_name(crashitem))
        except CtkError:  # the test has compiled nothing
            return
        if outcome.fails:
            report.sections.append((SECTION, f"{outcome.headline}\nnext       {outcome.command}"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests with a verdict, also those of workers."""
        for name, value in report.user_properties:
            if name == "ctk_verdict" and report.failed:
                self.blamed[report.nodeid] = str(value)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the number of tests that fail because of a compile, and the folder."""
        if self.blamed:
            tests = count_of(len(self.blamed), "test")
            verb = "fails" if len(self.blamed) == 1 else "fail"
            terminalreporter.section("ctk")
            terminalreporter.line(
                f"{tests} {verb} because of a compile; all of it: {self.options.out}"
            )

    def pytest_unconfigure(self) -> None:
        """End the watch."""
        self.watch.close()

    def _find_mistake(self, items: Sequence[pytest.Item]) -> str:
        """Return the mistake in the marks of tests, or in the target; empty if there is none.

        The target may be a function beside the tests: pytest imports them first.
        """
        try:
            for item in items:
                read_marker(item)
            if items and self.options.target:
                from ctk.toolkit.targets import resolve_target

                resolve_target(self.options.target)
        except (pytest.UsageError, CtkError) as error:
            return str(error)
        return ""

    def _judge(
        self,
        error: BaseException | None = None,
        seconds: float = 0.0,
        item: pytest.Item | None = None,
    ) -> "Blame | None":
        """Judge the phase that ends; None unless something fails in it."""
        if not self.watch.is_installed or self.options.mode != "check":
            return None
        test, new = self._open_test(), self.watch.take()
        if item is not None and self.options.diagnose and new.failures:
            _stop_timer(item)
        return test.judge(new, error, seconds)

    def _note_work(self, case: str, work: Work) -> None:
        if self.running is not None and self.options.mode == "check":
            self._open_test().note_work(case, work, sys.exception(), self.watch.target)

    def _open_test(self) -> "JudgedTest":
        from ctk.toolkit.testing.judged_test import JudgedTest

        if self.test is None:
            self.test = JudgedTest(*(self.running or ("", "", Marker())), self.options)
        return self.test

    def _end(self) -> None:
        if self.test is not None:
            self.test.forget_pending()
        self.running = self.test = None


def _error_of(item: pytest.Item, call: pytest.CallInfo[Any]) -> BaseException | None:
    """Return the exception that ends a phase; `unittest` keeps that of a test case aside."""
    aside: list[Any] = getattr(item, "_excinfo", None) or [call.excinfo]
    return aside[0].value if aside[0] is not None else None


def _place_of(item: pytest.Item) -> str:
    """Return `FILE:LINE` of a test, relative to the working folder."""
    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    line = item.location[1]
    return path if line is None else f"{path}:{line + 1}"


def _excinfo_of(error: Exception) -> pytest.ExceptionInfo[Exception]:
    try:
        raise error
    except type(error) as raised:
        return pytest.ExceptionInfo.from_exception(raised)


def _stop_timer(item: pytest.Item) -> None:
    """Stop the timer of pytest-timeout: it is for the test, and not for its diagnosis."""
    cancel = getattr(item.config.hook, "pytest_timeout_cancel_timer", None)
    if cancel is not None:
        cancel(item=item)
