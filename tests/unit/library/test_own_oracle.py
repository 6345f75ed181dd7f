"""minify with a question of the user's: a command, a function, time, memory; and flaky failures."""

import gc
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ctk
from ctk.compiler.errors import ConfigError, DoesNotReproduce
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.journal import JOURNAL
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write
from tests.helpers.own_oracles import PROGRAM, calls, has_softmax
from tests.helpers.warm_python import warm_python

CHECK = """
import os, sys
text = open(sys.argv[1] + "/graph.py").read()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "asked"), "a") as file:
    file.write("asked\\n")
if "softmax" in text and "SLEEP" in os.environ:
    import time
    time.sleep(float(os.environ["SLEEP"]))
print("softmax is there" if "softmax" in text else "it is gone")
sys.exit(3 if "softmax" in text else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return write(tmp_path, "program.py", PROGRAM)


@pytest.fixture
def check(tmp_path: Path) -> Path:
    return write(tmp_path, "check.py", CHECK)


def asked(check: Path) -> int:
    file = check.with_name("asked")
    return len(file.read_text().splitlines()) if file.exists() else 0


def python(check: Path, rest: str = "{case}") -> str:
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(check))} {rest}"


def test_a_command_decides_and_a_finished_run_asks_nothing_again(
    program: Path, check: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = command("minify", program, "--command", python(check), "--out", out)
    assert said.code == 1, said.err
    assert "7 -> 1 call node (minimal): " in said.first
    assert "decides (exit code 3)" in said.first
    assert calls(ctk.load_case(out / "case", trust=True)) == ["softmax"]
    header = (out / "case" / "repro.py").read_text().partition('"""\n')[0]
    assert "calls it a failure" in " ".join(header.split())
    assert f"python {out}/case/repro.py  # reproduced" in said.out
    before = asked(check)
    again = command("minify", program, "--command", python(check), "--out", out, "--resume")
    assert (again.code, again.first) == (said.code, said.first)
    assert asked(check) == before


def test_another_command_does_not_go_on_in_the_folder_of_this_one(
    program: Path, check: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command("minify", program, "--command", python(check), "--out", out, "--max-questions", 1)
    for options in (["--command", python(check, "{case} x")], ["--slower-than", "2x"], []):
        said = command("minify", program, *options, "--out", out, "--resume")
        assert said.code == 2
        assert "oracle was" in said.err
    check.write_text(CHECK + "\n# another program now\n")
    said = command("minify", program, "--command", python(check), "--out", out, "--resume")
    assert (said.code, "changed since" in said.err) == (2, True)


def test_the_command_that_is_printed_goes_on(program: Path, check: Path, tmp_path: Path) -> None:
    options = ["--command", python(check), "--match", "softmax is (there|here)"]
    said = command("minify", program, *options, "--out", tmp_path / "out", "--max-questions", 2)
    (line,) = [each for each in said.out.splitlines() if each.startswith("to go on: ")]
    words = shlex.split(line.removeprefix("to go on: "))
    before = asked(check)
    again = command(*words[1:])
    assert "(minimal)" in again.first
    assert asked(check) > before
    shown = command("show", tmp_path / "out")
    assert "--command" not in shown.out.partition("to go on")[2]  # a stranger's folder tells none


def test_a_killed_run_asks_nothing_again(
    program: Path, check: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEP", "0.25")  # what answers at once is asked more often
    ctk_path = warm_python().with_name("ctk")
    out = tmp_path / "out"
    words = ["minify", str(program), "--command", python(check), "--out", str(out)]
    process = subprocess.Popen([ctk_path, *words], start_new_session=True)
    deadline = time.monotonic() + 60
    while asked(check) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    lines = (out / JOURNAL).read_text().splitlines()
    answered = sum(json.loads(line)["kind"] == "Judgement" for line in lines)
    before = asked(check)
    said = command(*words, "--resume")
    assert "(minimal)" in said.first
    whole = tmp_path / "whole"
    after = asked(check)
    check.with_name("asked").unlink()
    command("minify", program, "--command", python(check), "--out", whole)
    total = asked(check)
    assert after - before <= total - answered + 1  # the question that was being asked


@pytest.mark.parametrize(
    ("rest", "code", "first"),
    [
        ("{case} && true", 1, None),  # words, and no shell: && is an argument
        ("--no-such-case {repro}", 1, "decides"),
    ],
)
def test_no_shell_reads_the_command(
    rest: str, code: int, first: str | None, program: Path, check: Path, tmp_path: Path
) -> None:
    said = command(
        "minify", program, "--command", python(check, rest), "--out", tmp_path / "out", "-q"
    )
    assert said.code == code
    assert first is None or first in said.first


def test_a_command_that_says_no_or_cannot_tell(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = command("minify", program, "--command", "true {case}", "--out", out)
    assert (said.code, out.exists()) == (0, False)
    assert said.first.startswith("no failure: `true {case}` says passes")
    said = command("minify", program, "--command", "sh -c 'exit 125' {case}", "--out", out)
    assert (said.code, out.exists()) == (125, False)
    assert said.first.startswith("cannot tell: ")


def test_json_and_jobs(program: Path, check: Path, tmp_path: Path) -> None:
    words = ["minify", program, "--command", python(check), "--json"]
    one = command(*words, "--out", tmp_path / "one").data
    two = command(*words, "--out", tmp_path / "two", "--jobs", 2).data
    assert one["finished"] and two["finished"]
    assert one["call_nodes"] == two["call_nodes"] == {"before": 7, "after": 1}
    assert one["decided_by"] == two["decided_by"]
    assert one["others"] == []
    assert one["flakiness"] is None
    graphs = [ctk.load_case(tmp_path / name / "case", trust=True) for name in ("one", "two")]
    assert str(graphs[0].graph.graph) == str(graphs[1].graph.graph)


def test_a_function_of_the_library_decides(program: Path, tmp_path: Path) -> None:
    found = ctk.minify(program, oracle=has_softmax, out=tmp_path / "out")
    assert found.reduction is not None
    assert found.reduction.finished
    assert calls(found.reduction.best) == ["softmax"]
    assert found.decided_by.endswith(":has_softmax")


@pytest.mark.parametrize(
    "answer", [Verdict.REPRODUCES, Judgement(Verdict.REPRODUCES, detail="so it is"), np.True_]
)
def test_what_a_function_may_answer(answer: object, program: Path, tmp_path: Path) -> None:
    found = ctk.minify(
        program,
        oracle=lambda case: answer if has_softmax(case) else Verdict.PASSES,
        out=tmp_path / "out",
    )
    assert found.reduction is not None
    assert calls(found.reduction.best) == ["softmax"]


def test_what_is_no_answer_is_an_error_and_what_it_was(program: Path, tmp_path: Path) -> None:
    text = """
import sys

def words(case):
    return "yes"

async def later(case):
    return True

def leaves(case):
    sys.exit(3)
"""
    oracle = write(tmp_path, "mine.py", text)
    for name, word in (
        ("words", "returned 'yes' (str); it must return True, False or a Verdict"),
        ("later", "returned a coroutine (an `async def` is not run here); it must return"),
        ("leaves", "called sys.exit(3)"),
    ):
        asked = (program, "--oracle", f"{oracle}:{name}", "--out", tmp_path / name)
        said = command("minify", *asked)
        assert said.code == 2
        assert f"the oracle {oracle}:{name} {word}" in said.err
        assert "If such a candidate is not a failure, return False." in said.err
    gc.collect()  # a coroutine that nobody closed would warn now


def test_a_function_by_name_may_change_its_case(program: Path, tmp_path: Path) -> None:
    text = """
def softmax(case):
    found = any("softmax" in str(node.target) for node in case.graph.graph.nodes)
    for node in list(case.graph.graph.nodes):
        node.target = "gone"
    return found
"""
    oracle = write(tmp_path, "mine.py", text)
    said = command("minify", program, "--oracle", f"{oracle}:softmax", "--out", tmp_path / "out")
    assert said.code == 1
    assert f"7 -> 1 call node (minimal): {oracle}:softmax decides" in said.first


def test_a_function_that_raises_keeps_the_best_so_far(program: Path, tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        if len(calls(case)) < 4:
            raise ValueError("too small for me")
        return True

    found = ctk.minify(program, oracle=fails, out=tmp_path / "out")
    assert found.reduction is not None
    assert found.reduction.reason == "error"
    assert "ValueError: too small for me" in found.problems[0]
    assert (tmp_path / "out" / "case" / "manifest.json").is_file()


def test_a_mistake_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    for options in ({"match": "x"}, {"command": "true"}, {"slower_than": "x"}, {"oracle": "a:b"}):
        given: Any = options
        with pytest.raises(ConfigError):
            ctk.minify(tmp_path / "no_such_program.py", **given)


def test_a_coin_decides_too(program: Path, tmp_path: Path) -> None:
    coin = random.Random(1)
    found = ctk.minify(
        program,
        oracle=lambda case: has_softmax(case) and coin.random() < 0.5,
        out=tmp_path / "out",
    )
    assert found.reduction is not None
    assert calls(found.reduction.best) == ["softmax"]
    assert found.reduction.flakiness is not None
    assert found.reduction.flakiness.given.asked == 20
    assert found.reduction.flakiness.error_probability <= 0.01
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert record["flakiness"]["given"]["asked"] == 20


def test_too_rare_a_failure_is_refused(program: Path, tmp_path: Path) -> None:
    numbers = iter(range(100))
    with pytest.raises(DoesNotReproduce, match=r"flaky: it fails in 1 of 20 runs only"):
        ctk.minify(program, oracle=lambda case: next(numbers) == 1, out=tmp_path / "out")


FLAKY = '''
import random
COIN = random.Random(11)

def compile(gm, example_inputs):
    """Wrong in half of the compiles, where there is a softmax."""
    wrong = "softmax" in str(gm.graph) and COIN.random() < 0.5
    return lambda *args: tuple(value + wrong for value in gm(*args))
'''


def test_a_compile_that_is_wrong_by_chance(program: Path, tmp_path: Path) -> None:
    backend = write(tmp_path, "backend.py", FLAKY)
    said = command("minify", program, "--target", f"{backend}:compile", "--out", tmp_path / "out")
    assert said.code == 1, said.out + said.err
    assert calls(ctk.load_case(tmp_path / "out" / "case", trust=True)) == ["softmax"]
    assert "flaky: it fails in " in said.out


TWO_FAILURES = '''
def compile(gm, example_inputs):
    """Wrong with a softmax; raises where there is no relu any more."""
    names = {getattr(node.target, "__name__", "") for node in gm.graph.nodes}
    if "relu" not in names:
        raise TypeError(f"no relu among {len(gm.graph.nodes)} nodes")
    wrong = "softmax" in names
    return lambda *args: tuple(value + wrong for value in gm(*args))
'''


def test_other_failures_are_kept_beside(program: Path, tmp_path: Path) -> None:
    backend = write(tmp_path, "backend.py", TWO_FAILURES)
    words = ["minify", program, "--target", f"{backend}:compile", "--out", tmp_path / "out"]
    said = command(*words, "--json")
    assert said.code == 1, said.err
    (other,) = said.data["others"]
    assert other["failure"].startswith("compile-error TypeError")
    kept = ctk.load_case(Path(other["case"]), trust=True)
    assert Path(other["case"]).parent == tmp_path / "out" / "others"
    assert kept.signature is not None
    assert kept.signature.exception == "TypeError"
    assert "relu" not in calls(kept)
    assert command("repro", other["case"], "--trust").code == 1
    again = command(*words, "--resume")
    assert f"also seen: {kept.signature}; ctk repro {other['case']} --trust" in again.out


@pytest.mark.parametrize(
    ("same", "left"),
    [(None, ["relu", "softmax"]), ("strict", ["relu", "softmax"]), ("any", [])],
)
def test_what_makes_two_failures_the_same(
    same: str | None, left: list[str], program: Path, tmp_path: Path
) -> None:
    backend = write(tmp_path, "backend.py", TWO_FAILURES)
    options = ["--same-failure", same] if same else []
    said = command(
        "minify", program, "--target", f"{backend}:compile", *options, "--out", tmp_path / "out"
    )
    assert said.code == 1, said.err
    found = calls(ctk.load_case(tmp_path / "out" / "case", trust=True))
    assert len(found) == (len(left) or 1)
    assert set(left) <= set(found)
