"""Options, ini keys and marks of the plugin; and the ways in which a run of pytest ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctk.compiler.errors import WrongCompile
from ctk.toolkit.ci.collect import collect_outcomes
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.operations.report.as_json import read_json
from ctk.toolkit.testing.options import read_marker
from tests.helpers.project import ROOT
from tests.helpers.suites import run_suite
from tests.helpers.warm_python import warm_python

TWO = """
def test_first(): run(wrong, 3)
def test_second(): run(wrong, 4)
"""

LIGHT = """
import sys
def test_nothing(): assert not {"torch", "ctk.toolkit.watch.hooks"} & {*sys.modules}
"""

TARGETS = """
from torch._dynamo.testing import CompileCounter

def test_named(): run("eager", 3)
def test_default(): torch.compile(f)(torch.ones(4))
@pytest.mark.ctk(target="eager")
def test_marked(): run("aot_eager", 5)
def test_own_backend():
    counter = CompileCounter()
    run(counter, 6)
    assert counter.frame_count == 1
"""

BROKEN = """
def negate_relu(gm):
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.relu.default:
            with gm.graph.inserting_after(node):
                wrong = gm.graph.call_function(torch.ops.aten.neg.default, (node,))
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user: user is not wrong)

CONFIG = {"custom_passes": {"joint": [f"{__file__}:negate_relu"]}}

@pytest.mark.ctk(config=CONFIG)
def test_pass(): torch.compile(lambda x: (x + 1).sin().relu(), backend="ctk")(torch.ones(4))
def test_without(): torch.compile(lambda x: x.cos().relu(), backend="ctk")(torch.ones(4))
"""

ENDS = """
def test_before(): run(wrong, 3)
def test_crash(): run(crashes, 4)
def test_after(): run(wrong, 5)
"""

HANG = """
def test_hang(): run(hangs, 4)
def test_after(): run(right, 5)
"""


def outcomes(out: Path) -> dict[str, Outcome]:
    return {each.test.rpartition("::")[2]: each for each in collect_outcomes(out).outcomes}


def item_with(request: pytest.FixtureRequest, *marks: pytest.MarkDecorator) -> pytest.Item:
    item = pytest.Function.from_parent(
        request.node.parent, name="test_marked", callobj=lambda: None
    )
    for mark in marks:
        item.add_marker(mark)
    return item


def test_a_suite_that_never_compiles_imports_nothing(tmp_path: Path):
    (tmp_path / "test_light.py").write_text(LIGHT)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "ctk_pytest", "test_light.py"]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    for mode in ([], ["--ctk=check"]):
        done = subprocess.run(
            [*words, *mode], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "ctk_dumps").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ctk=chek"], "--ctk takes off, dump or check, not 'chek'; did you mean 'check'?"),
        (["--ctk=check", "--ctk-seconds=soon"], "--ctk-seconds takes a number from 1, not 'soon'"),
        (["--ctk=check", "--ctk-seconds=nan"], "--ctk-seconds takes a number from 1, not 'nan'"),
        (
            ["--ctk=check", "--ctk-out=pytest.ini"],
            "pytest.ini is not a folder that you may",
        ),
    ],
)
def test_a_bad_option_is_refused_in_a_sentence(tmp_path: Path, options: list[str], sentence: str):
    run = run_suite(tmp_path, TWO, *options)
    assert run.code == pytest.ExitCode.USAGE_ERROR, run.output
    assert sentence in run.output and "Traceback" not in run.output


@pytest.mark.parametrize(
    ("mark", "sentence"),
    [
        ({"tarket": "eager"}, "takes the keywords off, target or config, not tarket; did you mean"),
        ({"off": "no"}, "off= of the mark ctk takes True or False, not 'no'"),
        ({"config": "fp16"}, "config= of the mark ctk takes options by name, not 'fp16'"),
        ({"known": "#1"}, "takes the keywords off, target or config, not known"),
    ],
)
def test_a_bad_mark_is_named(
    request: pytest.FixtureRequest, mark: dict[str, object], sentence: str
):
    with pytest.raises(pytest.UsageError, match=f"::test_marked: .*{sentence}"):
        read_marker(item_with(request, pytest.mark.ctk(**mark)))


def test_a_mark_that_always_expects_a_wrong_compile_needs_no_diagnosis(
    request: pytest.FixtureRequest,
):
    sometimes = pytest.mark.xfail("sys.version_info > (3, 12)", raises=WrongCompile)
    assert not read_marker(item_with(request, sometimes, pytest.mark.xfail)).is_known
    always = pytest.mark.xfail(raises=(ValueError, WrongCompile))
    assert read_marker(item_with(request, always)).is_known


def test_a_bad_mark_is_refused_before_the_first_test(tmp_path: Path):
    suite = "def test_before(): run(right)\n@pytest.mark.ctk(off='no')\ndef test_it(): pass"
    run = run_suite(tmp_path, suite)
    assert "::test_it: off= of the mark ctk takes True or False, not 'no'" in run.output
    assert "test_before" not in run.results, run.output
    assert run.code == pytest.ExitCode.INTERRUPTED


def test_an_unknown_target_is_refused_before_the_first_test(tmp_path: Path):
    run = run_suite(tmp_path, TWO, "--ctk=check", "--ctk-target=inductr")
    assert "unknown target 'inductr'; did you mean 'inductor'?" in run.output and not run.blamed
    assert run.code == pytest.ExitCode.INTERRUPTED


def test_the_header_names_the_variables_that_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTK_CHECK_EVERY", "3")
    run = run_suite(tmp_path, "def test_it(): pass", "--ctk=check", "-v")
    assert f"ctk: check, to {run.out}; CTK_CHECK_EVERY=3\n" in run.output


def test_off_only_marks_and_fixture_are_there(tmp_path: Path):
    suite = f"@pytest.mark.ctk(target='eager'){TWO}\ndef test_fixture(ctk_check): pass"
    run = run_suite(tmp_path, suite, "--ctk=off")
    assert run.code == 0 and not run.out.exists(), run.output


def test_an_ini_file_turns_it_on(tmp_path: Path):
    ini = ["-o", "ctk=check", "-o", "ctk_out=elsewhere", "--ctk-calls=1"]
    run = run_suite(tmp_path, TWO, *ini, out="")
    assert run.blamed == {"test_first", "test_second"} and (tmp_path / "elsewhere").is_dir()


def test_dump_keeps_each_case_and_judges_nothing(tmp_path: Path):
    run = run_suite(tmp_path, TWO, "--ctk=dump")
    assert run.code == 0 and len([*run.out.rglob("manifest.json")]) == 2
    assert not outcomes(run.out)


def test_it_stops_after_the_first_failure(tmp_path: Path):
    run = run_suite(tmp_path, TWO, "-x")
    assert set(run.results) == {"test_first"} and run.blamed == {"test_first"}


def test_collecting_compiles_nothing(tmp_path: Path):
    run = run_suite(tmp_path, TWO, "--ctk=check", "--collect-only")
    assert run.code == 0 and "test_second" in run.output and not run.out.exists()


def test_an_import_that_compiles_wrongly_fails_its_file(tmp_path: Path):
    run = run_suite(tmp_path, f"run(wrong)\n{TWO}")
    assert run.code == pytest.ExitCode.INTERRUPTED and "ctk diagnose" in run.output, run.output


def test_a_target_replaces_each_backend_with_a_name(tmp_path: Path):
    run = run_suite(tmp_path, TARGETS, "--ctk=check", "--ctk-target=backends:wrong")
    assert run.blamed == {"test_named", "test_default"}, run.output
    assert all(each.outcome == "passed" for name, each in run.results.items() if "_n" not in name
               and name != "test_default")  # fmt: skip


def test_a_target_is_read_once_torch_is_imported(tmp_path: Path):
    """The first compile of the process imports Dynamo, which imports Inductor in circles."""
    suite = "def test_first(): torch.compile(f)(torch.ones(3))"
    run = run_suite(tmp_path, suite, "--ctk=check", "--ctk-target=aot_eager", python=sys.executable)
    assert run.code == 0, run.output
    assert outcomes(run.out)["test_first"].target == "aot_eager"


def test_a_diagnosis_names_the_culprit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WARM_CHILDREN", "1")
    run = run_suite(tmp_path, BROKEN, "--ctk=check", "--ctk-diagnose", "--ctk-seconds=120")
    assert run.blamed == {"test_pass"}, run.output
    found = run.results["test_pass"].properties
    assert found["ctk_culprit"] == "joint/negate_relu"
    assert read_json(Path(found["ctk_folder"])).confirmed
    assert "because of joint/negate_relu (confirmed)" in run.output
    outcome = outcomes(run.out)["test_pass"]
    assert outcome.confirmed and outcome.key.startswith("ctk: accuracy: joint/negate_relu: ")
    assert outcome.command.startswith("python ") and outcome.command in run.output


def test_a_crash_leaves_the_outcome_of_the_test(tmp_path: Path):
    run = run_suite(tmp_path, ENDS)
    assert run.code < 0
    found = outcomes(run.out)
    assert found["test_before"].fails and "test_after" not in found
    crash = found["test_crash"]
    assert crash.fails and "the process ends while compiling it" in crash.headline
    assert crash.command.startswith("ctk diagnose ") and "--isolate" in crash.command
    assert Path(crash.folder or "", "manifest.json").is_file()


def test_a_worker_that_crashes_names_its_compile(tmp_path: Path):
    pytest.importorskip("xdist")
    suite = f"{ENDS}\n@pytest.mark.xfail(raises=ctk.WrongCompile)\ndef test_known(): run(wrong, 6)"
    workers = ["-p", "xdist", "--dist=load", f"--tx=2*popen//python={warm_python()}"]
    run = run_suite(tmp_path, f"import ctk\n{suite}", *workers)
    assert "worker 'gw" in run.output, run.output
    assert "the process ends while compiling it" in run.output
    assert run.blamed == {"test_before", "test_after"}
    assert run.results["test_before"].properties["ctk_target"] == "backends:wrong"
    assert run.results["test_known"].outcome == "skipped"
    assert outcomes(run.out)["test_known"].known


def test_a_time_limit_names_the_compile(tmp_path: Path):
    pytest.importorskip("pytest_timeout")
    run = run_suite(tmp_path, HANG, "-p", "pytest_timeout", "--timeout=300")
    assert run.blamed == {"test_hang"}, run.output
    assert "a time limit ends the test while compiling it" in run.output
    assert outcomes(run.out)["test_hang"].kind == "timeout"


def test_a_debugger_opens_at_the_failure(tmp_path: Path):
    run = run_suite(tmp_path, TWO, "--pdb", "--pdbcls=backends:Quits")
    assert "entering PDB" in run.output and "WrongCompile" in run.output
