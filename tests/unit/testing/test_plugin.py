"""The pytest plugin: a compile that is wrong fails the test in which it happens, and no other."""

from pathlib import Path

import pytest

from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.ci.collect import collect_outcomes
from tests.helpers.suites import SuiteRun, run_suite

KINDS = """
import asyncio, subprocess, sys, threading, unittest
import ctk

def test_right(): assert run(right) is not None
def test_no_compile(): pass
def test_wrong(): run(wrong, 4)
def test_wrong_and_fails(): assert run(wrong, 5)[0] == f(torch.ones(1))[0]
def test_fails_by_itself(): assert run(right, 6)[0] == 0
def test_dtype(): run(low, 7)
def test_strides_do_not_count(): run(strided, 2, 3)
def test_no_mutation():
    def add(x): return x.add_(1)
    torch.compile(add, backend=no_mutation)(torch.ones(3))
def test_alias():
    def view(x): return x.view(-1)
    torch.compile(view, backend=copied)(torch.ones(2, 2))
def test_gradient():
    torch.compile(f, backend=bad_gradient)(torch.ones(3, requires_grad=True)).sum().backward()

def test_refused(): run(refuses, 8)
def test_expects_refusal():
    with pytest.raises(Exception, match="no kernel"):
        run(refuses, 8)
def test_raises_later(): run(raises_later, 9)
def test_expects_error():
    with pytest.raises(ValueError):
        run(raises_later, 9)
def test_error_of_eager_too():
    def g(x): return x.sin().view(7)
    with pytest.raises(Exception):
        torch.compile(g, backend=right)(torch.ones(3))
def test_wrong_behind_raises():
    with pytest.raises(ZeroDivisionError):
        run(wrong, 10)
        1 / 0

def test_second_compile():
    run(right, 11)
    run(wrong, 11)
@pytest.mark.parametrize("backend", [right, wrong], ids=["good", "bad"])
def test_each(backend): run(backend, 12)

@pytest.mark.xfail
def test_xfail(): run(wrong, 13)
@pytest.mark.xfail(strict=True)
def test_xfail_that_passes(): run(right, 13)
def test_xfail_inside():
    run(wrong, 14)
    pytest.xfail("later")
def test_skip_inside():
    run(wrong, 15)
    pytest.skip("later")
@pytest.mark.skip
def test_skipped(): run(wrong)
known = pytest.mark.xfail(raises=ctk.WrongCompile, reason="https://example.org/1")
@known
def test_known(): run(wrong, 16)
@known
def test_known_is_gone(): run(right, 16)
@pytest.mark.xfail(raises=ctk.WrongCompile, strict=True)
def test_known_is_gone_strict(): run(right, 16)
@known
def test_known_but_fails_by_itself(): assert run(right, 16)[0] == 0
@known
def test_known_and_fails_by_itself():
    run(wrong, 16)
    {}["key"]
@known
def test_known_with_a_compile_in_teardown(right_in_teardown): run(wrong, 16)
@pytest.mark.ctk(off=True)
def test_off(): run(wrong, 17)
def test_after_off(): run(wrong, 17)

@pytest.fixture(scope="module")
def compiled(): return torch.compile(f, backend=wrong)
def test_shared_first(compiled): compiled(torch.ones(2, 2))
def test_shared_unused(compiled): pass
def test_shared_again(compiled): compiled(torch.ones(2, 2))
@pytest.fixture
def in_setup(): run(wrong, 18)
def test_setup(in_setup): pass
@pytest.fixture
def in_teardown():
    yield
    run(wrong, 19)
def test_teardown(in_teardown): pass
@pytest.fixture
def right_in_teardown():
    yield
    run(right, 19)
def test_compiles_in_teardown(right_in_teardown): run(wrong, 19)

class TestOfUnittest(unittest.TestCase):
    def test_unit_right(self): self.assertTrue(run(right, 20).all())
    def test_unit_wrong(self): run(wrong, 20)
    def test_unit_asserts(self): self.assertEqual(run(wrong, 20)[0], 0)
    @unittest.expectedFailure
    def test_unit_expected(self): self.assertEqual(run(wrong, 20)[0], 0)
class TestOfAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_async_right(self): run(right, 21)
    async def test_async_wrong(self):
        await asyncio.sleep(0)
        run(wrong, 21)

def test_thread():
    thread = threading.Thread(target=run, args=(wrong, 22))
    thread.start()
    thread.join()
def test_child():
    subprocess.run([sys.executable, "-c", "from backends import *; run(wrong)"], check=True)
def test_right_child():
    subprocess.run([sys.executable, "-c", "from backends import *; run(right)"], check=True)
def test_quiet(caplog, capfd, recwarn):
    run(wrong, 23)
    assert not [each for each in caplog.records if each.name == "ctk"]
    assert capfd.readouterr() == ("", "") and not recwarn.list
"""

BLAMED = {
    "test_wrong", "test_wrong_and_fails", "test_dtype", "test_no_mutation",
    "test_alias", "test_gradient", "test_refused", "test_raises_later", "test_wrong_behind_raises",
    "test_second_compile", "test_each[bad]", "test_skip_inside", "test_after_off",
    "test_shared_first", "test_shared_again", "test_setup", "test_teardown",
    "test_compiles_in_teardown", "test_known_and_fails_by_itself", "test_unit_wrong",
    "test_unit_asserts", "test_async_wrong", "test_thread", "test_child", "test_quiet",
}  # fmt: skip

FAIL_BY_THEMSELVES = {
    "test_fails_by_itself", "test_xfail_that_passes", "test_known_but_fails_by_itself",
    "test_known_is_gone_strict",
}  # fmt: skip


EXPECTED = {
    "test_xfail", "test_xfail_inside", "test_known", "test_known_with_a_compile_in_teardown",
    "test_unit_expected",
}  # fmt: skip


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> SuiteRun:
    return run_suite(tmp_path_factory.mktemp("kinds"), KINDS, "-W", "error")


def test_each_wrong_compile_fails_its_test_and_no_other(kinds: SuiteRun):
    failed = {n for n, each in kinds.results.items() if each.outcome in ("failed", "error")}
    assert failed == BLAMED | FAIL_BY_THEMSELVES, kinds.output
    assert kinds.blamed == BLAMED


def test_the_report_has_the_verdict_and_a_command(kinds: SuiteRun):
    found = kinds.results["test_wrong"].properties
    assert found["ctk_verdict"] == "reproduces" and found["ctk_target"] == "backends:wrong"
    assert found["ctk_signature"].startswith("accuracy at out0")
    assert f"next       ctk diagnose {found['ctk_folder']} --trust" in kinds.output
    assert (Path(found["ctk_folder"]) / "manifest.json").is_file()
    assert f"{len(BLAMED)} tests fail because of a compile" in kinds.output


def test_an_exception_of_the_test_stays_its_exception(kinds: SuiteRun):
    assert "WrongCompile" in kinds.results["test_wrong"].message
    assert kinds.results["test_wrong_and_fails"].message.startswith("assert")
    assert "AssertionError" in kinds.results["test_unit_asserts"].message
    assert "no kernel" in kinds.results["test_refused"].message


def test_phases_are_reported_where_they_fail(kinds: SuiteRun):
    assert kinds.results["test_setup"].outcome == "error"
    assert "failed on setup" in kinds.results["test_setup"].message
    assert "failed on teardown" in kinds.results["test_teardown"].message


def test_expected_failures_do_not_fail(kinds: SuiteRun):
    for name in EXPECTED:
        assert kinds.results[name].outcome == "skipped", name  # JUnit's word for it
    assert kinds.results["test_known"].message == "https://example.org/1"
    assert "KeyError" in kinds.results["test_known_and_fails_by_itself"].message
    assert kinds.results["test_known_is_gone"].outcome == "passed"


def test_each_judged_test_has_an_outcome(kinds: SuiteRun):
    found = collect_outcomes(kinds.out)
    assert found.problems == ()
    outcomes = {each.test.rpartition("::")[2]: each for each in found.outcomes}
    failing = {name for name, each in outcomes.items() if each.fails and not each.known}
    assert failing == BLAMED
    assert {name for name, each in outcomes.items() if each.fails and each.known} == EXPECTED
    assert outcomes["test_known"].known == "https://example.org/1"
    assert outcomes["test_right"].verdict is Verdict.PASSES
    assert outcomes["test_expects_refusal"].verdict is not Verdict.REPRODUCES
    assert "test_no_compile" not in outcomes and "test_shared_unused" not in outcomes
    assert outcomes["test_wrong"].place.startswith("backends.py:")
    assert Path(outcomes["test_wrong"].folder or "").is_dir()


def test_only_graphs_that_fail_are_kept(kinds: SuiteRun):
    saved = {path.parent for path in kinds.out.glob("pytest_*/*/manifest.json")}
    folders = {Path(each.properties.get("ctk_folder", "")) for each in kinds.results.values()}
    failing = {each for each in saved if read_manifest(each).signature is not None}
    assert saved == failing and len(folders & saved) >= len(BLAMED) - 3
