"""Bisecting a command by its exit codes: made-up commands, and a real one."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import CaptureError, CaseError, ConfigError, ProgramError
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.toolkit.cli.commands.bisect_pass import answer_of_search, command_words
from ctk.toolkit.operations.command.command_run import CommandRun, run_command
from ctk.toolkit.operations.command.command_search import CommandSearch, bisect_command
from ctk.toolkit.operations.command.plan import Suspect, read_suspects, read_vetoes, write_plan
from ctk.toolkit.operations.command.steering import Steering
from ctk.toolkit.operations.session.command_bisection import bisect_with_journal
from ctk.toolkit.operations.session.operation_listing import describe
from ctk.toolkit.watch.child_start import BOOK
from tests.helpers.cli import ctk as run_ctk
from tests.helpers.cli import write

PASSES = [Suspect(f"graph{n // 10}", "pass", f"joint/p{n}") for n in range(40)]
REWRITES = [Suspect("graph2", "rewrite", "joint/p23", n, "fold") for n in range(5, 12)]
KERNELS = [Suspect("graph0", "kernel", f"lowered/codegen:k{n}") for n in range(6)]
DECOMPOSITIONS = [Suspect("graph0", "pass", f"dispatch/decompose.{n}") for n in range(3)]
EVERYTHING = (*PASSES[:24], *REWRITES, *PASSES[24:], *DECOMPOSITIONS, *KERNELS)

Left = frozenset[Suspect]


def command(is_good: Callable[[Left], bool]) -> Callable[..., CommandRun]:
    def run(_: Sequence[str], left_out: Iterable[Suspect], *, seconds: float | None) -> CommandRun:
        code = 0 if is_good(frozenset(left_out)) else 1
        return CommandRun("bad" if code else "good", f"exit code {code}", EVERYTHING)

    return run


def found_by(is_good: Callable[[Left], bool]) -> CommandSearch:
    return bisect_command(["program"], run=command(is_good))


class TestSearch:
    def test_a_pass_and_its_rewrite(self) -> None:
        found = found_by(lambda left: PASSES[23] in left or REWRITES[4] in left)
        assert (found.culprit, found.rewrite, found.confirmed) == (PASSES[23], REWRITES[4], True)
        assert found.runs <= 15

    def test_a_pass_without_rewrites(self) -> None:
        for culprit in (PASSES[0], PASSES[17], PASSES[39]):
            found = found_by(lambda left, culprit=culprit: culprit in left)  # type: ignore[misc]  # a default binds it
            assert (found.culprit, found.rewrite, found.confirmed) == (culprit, None, True)

    def test_a_kernel(self) -> None:
        found = found_by(lambda left: KERNELS[3] in left)
        assert (found.culprit, found.confirmed) == (KERNELS[3], True)

    def test_a_decomposition_that_cannot_be_left_out_with_the_others(self) -> None:
        found = found_by(lambda left: left == {DECOMPOSITIONS[1]})
        assert (found.culprit, found.confirmed) == (DECOMPOSITIONS[1], True)

    def test_two_that_must_both_go(self) -> None:
        found = found_by(lambda left: {PASSES[3], PASSES[30]} <= left)
        assert found.culprit == PASSES[3]
        assert not found.confirmed
        assert "still bad" in found.reason

    def test_what_no_pass_causes(self) -> None:
        found = found_by(lambda _: len(_) > 10_000)
        assert found.culprit is None
        assert "without any pass" in found.reason

    @pytest.mark.parametrize("calm", [1, 5])
    def test_a_command_that_fails_at_random(self, calm: int) -> None:
        asked = list[Left]()

        def is_good(left: Left) -> bool:
            asked.append(left)
            return bool(left) or len(asked) > calm

        found = found_by(is_good)
        assert (found.is_flaky, found.culprit) == (True, None)
        answer = answer_of_search("python train.py", found)
        assert answer.exit_code == 125
        assert answer.headline.startswith("cannot tell: python train.py fails at random: the same")

    @pytest.mark.parametrize(
        ("words", "step"),
        [
            (["python3", "-u", "a b.py", "x"], "ctk run 'a b.py' x"),
            (["./train.py"], "ctk run ./train.py"),
            (["python", "-m", "pytest", "-q", "t.py::a"], "ctk diagnose pytest:t.py::a"),
            (["pytest", "-x", "t.py::a[1 2]"], "ctk diagnose 'pytest:t.py::a[1 2]'"),
            (["python", "-m", "package"], ""),
            (["make", "test.py"], ""),
        ],
    )
    def test_what_is_next(self, words: list[str], step: str) -> None:
        found = found_by(lambda left: PASSES[23] in left)
        body = answer_of_search(shlex.join(words), found).body
        (said,) = [line for line in body if str(line).startswith("next")] or [""]
        assert str(said).partition("  #")[0] == (f"next       {step}" if step else "")

    def test_a_good_command_and_one_that_cannot_tell(self) -> None:
        found = found_by(lambda _: True)
        assert (found.first.outcome, found.runs) == ("good", 1)
        assert answer_of_search("program", found).exit_code == 0

    def test_a_command_that_compiles_nothing(self) -> None:
        with pytest.raises(CaptureError, match="compiles nothing that ctk can steer"):
            bisect_command([sys.executable, "-c", "raise SystemExit(3)"])

    def test_the_answer(self) -> None:
        found = found_by(lambda left: PASSES[23] in left or REWRITES[4] in left)
        answer = answer_of_search("python train.py", found)
        assert answer.headline == (
            "python train.py fails because of joint/p23 in graph2 (confirmed)"
        )
        assert "proof      without that rewrite alone the command exits with 0" in answer.body


class TestRun:
    @pytest.mark.parametrize(
        ("code", "outcome", "ended"),
        [
            ("raise SystemExit(0)", "good", "exit code 0"),
            ("raise SystemExit(125)", "cannot tell", "exit code 125"),
            ("raise SystemExit(7)", "bad", "exit code 7"),
            ("import os; os.kill(os.getpid(), 9)", "bad", "signal SIGKILL"),
        ],
    )
    def test_exit_codes(self, code: str, outcome: str, ended: str) -> None:
        run = run_command([sys.executable, "-c", code])
        assert (run.outcome, run.ended, run.asked) == (outcome, ended, ())

    def test_a_time_limit_ends_what_it_started(self) -> None:
        run = run_command([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.5)
        assert (run.outcome, run.ended) == ("bad", "did not end within 0.5 s")

    def test_no_such_program(self) -> None:
        with pytest.raises(ProgramError, match="cannot be started"):
            run_command(["no-such-program-at-all"])


class TestSteering:
    def test_a_plan_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        write_plan(tmp_path, [PASSES[1], REWRITES[0], KERNELS[0]])
        vetoes = read_vetoes(tmp_path)
        assert vetoes["graph0"].passes == {"joint/p1"}
        assert vetoes["graph0"].kernels == {"lowered/codegen:k0"}
        assert vetoes["graph2"].rewrites == {5}

    def test_each_graph_is_asked_about_and_obeys(self, tmp_path: Path) -> None:
        def one(x: torch.Tensor) -> torch.Tensor:
            return x.view(2, 2).view(4).sin()

        def other(x: torch.Tensor) -> torch.Tensor:
            return x.view(2, 2).view(4).cos()

        def compiled(left_out: list[Suspect]) -> tuple[Suspect, ...]:
            (tmp_path / BOOK).write_text("")
            write_plan(tmp_path, left_out)
            steering = Steering(tmp_path)
            undo = dynamo.wrap_backend_lookup(steering.wrap, steering)
            try:
                torch.compiler.reset()
                for function in (one, other):
                    given = torch.compile(function, backend="ctk")(torch.ones(4))
                    torch.testing.assert_close(given, function(torch.ones(4)))
            finally:
                undo()
                (tmp_path / "process0").rmdir()
            return read_suspects(tmp_path)

        asked = compiled([])
        assert {each.graph for each in asked} == {"graph0", "graph1"}
        rewrites = [each for each in asked if each.kind == "rewrite"]
        assert {each.graph for each in rewrites} == {"graph0", "graph1"}
        first = next(each for each in rewrites if each.graph == "graph0")
        without = compiled([Suspect("graph0", "pass", first.id)])
        left = [each for each in without if each.kind == "rewrite"]
        assert not any((each.graph, each.id) == ("graph0", first.id) for each in left)
        assert any((each.graph, each.id) == ("graph1", first.id) for each in left)


class TestCommand:
    def test_words_in_quotes_or_one_by_one(self) -> None:
        wanted = ["python", "train.py", "--steps", "1"]
        assert command_words("python train.py --steps 1", ["", ""]) == wanted
        assert command_words("python", wanted[1:]) == wanted
        assert command_words("", wanted) == wanted
        assert command_words("", ["net.py"]) == []
        assert command_words("-- true", [""]) == ["true"]

    @pytest.mark.parametrize(
        ("quoted", "rest"),
        [("--", ["python"]), ("'", []), (" ", []), ("", ["net.py", "other.py"])],
    )
    def test_what_is_no_command(self, quoted: str, rest: list[str]) -> None:
        with pytest.raises(ConfigError):
            command_words(quoted, rest)

    def test_a_case_or_a_command(self) -> None:
        assert run_ctk("bisect-pass").code == 2
        assert run_ctk("bisect-pass", "net.py", "--command", "python x.py").code == 2
        assert run_ctk("bisect-pass", "--command", " ").code == 2
        for option in (("--target", "ctk"), ("-c", "fuel=1"), ("--isolate",), ("--calls", "3")):
            said = run_ctk("bisect-pass", "--command", "true", *option)
            assert (said.code, "is about a CASE" in said.err) == (2, True)
        assert run_ctk("bisect-pass", "--command", "'").code == 2
        assert run_ctk("bisect-pass", "net.py", "--", "true").code == 2

    @pytest.mark.parametrize("name", ["train.sh", "in a folder/train.sh"])
    def test_one_word_after_dashes_is_a_command(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        script = write(tmp_path, name, "#!/bin/sh\nexit 0\n")
        out = ("--out", tmp_path / "out")
        said = run_ctk("bisect-pass", *out, "--", script)
        assert (said.code, "not a program that can be executed" in said.err) == (2, True)
        script.chmod(0o700)
        said = run_ctk("bisect-pass", *out, "--", script)
        assert (said.code, said.first.startswith("no failure: ")) == (0, True)
        said = run_ctk("bisect-pass", *out, "--", tmp_path)
        assert f"for a case: ctk bisect-pass {tmp_path}" in said.err


PROGRAM = """
import torch

def careless(graph: torch.fx.Graph):
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.sin.default:
            with graph.inserting_before(node):
                moved = graph.call_function(torch.ops.aten.add.Tensor, (node.args[0], 0.5))
            node.replace_input_with(node.args[0], moved)

if __name__ == "__main__":
    def f(x):
        return x.view(2, 2).view(4).sin() + x.cos()

    x = torch.ones(4)
    torch.compile(torch.relu, backend="ctk")(x)
    options = {"custom_passes": {"joint": [__file__ + ":careless"]}}
    compiled = torch.compile(f, backend="ctk", options=options)
    torch.testing.assert_close(compiled(x), f(x))
"""


class TestFolder:
    """Every answer is on disk at once: what was ended goes on without asking it again."""

    def test_what_ctrl_c_ended_goes_on(self, tmp_path: Path) -> None:
        ask, asked = command(lambda left: PASSES[23] in left), list[object]()

        def run(
            words: Sequence[str], left: Iterable[Suspect], *, seconds: float | None
        ) -> CommandRun:
            if len(asked) == 4:
                raise KeyboardInterrupt
            asked.append(left)
            return ask(words, left, seconds=seconds)

        words, out = ["python", "a b.py"], tmp_path / "out"
        with pytest.raises(KeyboardInterrupt) as stopped:
            bisect_with_journal(words, out=out, run=run)
        quoted = shlex.quote(shlex.join(words))
        go_on = f"to go on: ctk bisect-pass --command {quoted} --out {out} --resume"
        assert go_on in stopped.value.__notes__
        assert describe(out).state == "begun"
        with pytest.raises(CaseError, match="earlier run"):
            bisect_with_journal(words, out=out, run=run)
        with pytest.raises(CaseError, match="of another run"):
            bisect_with_journal(["python", "b.py"], out=out, resume=True, run=run)

        again: list[object] = []

        def count(
            words: Sequence[str], left: Iterable[Suspect], *, seconds: float | None
        ) -> CommandRun:
            again.append(left)
            return ask(words, left, seconds=seconds)

        found, _ = bisect_with_journal(words, out=out, resume=True, run=count)
        assert (found.culprit, found.confirmed) == (PASSES[23], True)
        assert len(asked) + len(again) == found.runs
        assert describe(out).state == "finished"
        assert bisect_with_journal(words, out=out, resume=True, run=run)[0] == found

    def test_a_folder_without_an_answer_goes(self, tmp_path: Path) -> None:
        with pytest.raises(ProgramError):
            bisect_with_journal(["no-such-program"], out=tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_changed_script_is_another_command(self, tmp_path: Path) -> None:
        script, out = write(tmp_path, "train.py", "1"), tmp_path / "out"
        words, run = ["python", str(script)], command(lambda left: PASSES[3] in left)
        bisect_with_journal(words, out=out, run=run)
        write(tmp_path, "train.py", "2")
        with pytest.raises(CaseError, match=r"changed since: .*train\.py"):
            bisect_with_journal(words, out=out, resume=True, run=run)


@pytest.mark.slow
def test_a_program_that_is_no_case(tmp_path: Path) -> None:
    path = write(tmp_path, "train.py", PROGRAM)
    said = run_ctk("bisect-pass", "--command", f"{sys.executable} {path}", "--json")
    assert said.code == 1, said.err
    found = said.data
    assert (found["culprit"]["id"], found["culprit"]["graph"]) == ("joint/careless", "graph1")
    assert found["confirmed"]
    assert found["rewrite"]["id"] == "joint/careless"
