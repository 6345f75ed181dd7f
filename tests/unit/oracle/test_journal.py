"""The journal, who asks through it, and the fingerprints by which questions are known again."""

import dataclasses
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.fx import symbolic_trace

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.answers import fingerprint as cache
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import (
    JOURNAL,
    Header,
    difference,
    read_header,
    resume_journal,
    start_journal,
)
from ctk.toolkit.oracle.answers.journaled import Journaled, Memo, journal_executor
from ctk.toolkit.oracle.answers.resume_command import resume_command, resume_hint
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.user_command import CommandOracle
from tests.helpers.case_folders import linear_case

HEADER = Header("minify", "net.py", {"target": "ctk"}, "full", ("a" * 32,), {})
FAILURE = Signature("accuracy", output="out0", message="max abs 1")


class Counting(Executor):
    """Answers everything alike, and notes what it was asked."""

    isolates = False

    def __init__(
        self,
        verdict: Verdict = Verdict.REPRODUCES,
        signature: Signature = FAILURE,
        limit_seconds: float | None = None,
        memory: str = "",
    ) -> None:
        self.verdict, self.signature, self.asked = verdict, signature, 0
        self.limit_seconds, self.memory = limit_seconds, memory

    def judge(self, question: Question) -> Judgement:
        self.asked += 1
        within = question.deadline_seconds
        seconds = (within or self.limit_seconds) if self.signature.kind == "timeout" else 0.5
        return Judgement(self.verdict, self.signature, f"answer {self.asked}", seconds)


QUESTIONS = [
    (None, None),
    (FAILURE, None),
    (FAILURE, Veto()),
    (FAILURE, Veto(rewrites=frozenset({1, 2}))),
    (FAILURE, Veto(passes=frozenset({"joint/a", "joint/b"}), fuel=3)),
    (Signature("nan"), None),
]


def ask_all(executor: Oracle) -> list[Judgement]:
    return [executor.ask(Question(linear_case(), expected, veto)) for expected, veto in QUESTIONS]


def test_another_process_asks_nothing_again(tmp_path: Path) -> None:
    first = Counting()
    with start_journal(tmp_path, HEADER) as journal:
        answers = ask_all(journal_executor(first, journal, Digests()))
    assert first.asked == len(QUESTIONS)
    with resume_journal(tmp_path, HEADER) as journal:
        assert journal.is_replay and journal.remembered == len(QUESTIONS)
        second = Counting()
        assert ask_all(journal_executor(second, journal, Digests())) == answers
        assert second.asked == 0 and journal.is_replay
        other = dataclasses.replace(linear_case(), target="aot_eager")
        journal_executor(second, journal, Digests()).ask(Question(other))
        assert second.asked == 1 and not journal.is_replay


def test_what_is_only_told_of_a_failure_makes_no_other_question(tmp_path: Path) -> None:
    with start_journal(tmp_path, HEADER) as journal:
        executor = Counting()
        for message in ("max abs 1", "max abs 2"):
            expected = dataclasses.replace(FAILURE, message=message)
            journal_executor(executor, journal, Digests()).ask(Question(linear_case(), expected))
        assert executor.asked == 1


HANG = Signature("timeout")


@pytest.mark.parametrize("verdict", [Verdict.TIMEOUT, Verdict.REPRODUCES])  # it may be looked for
def test_a_time_limit_that_ran_out_says_nothing_about_a_longer_one(
    tmp_path: Path, verdict: Verdict
) -> None:
    asked: list[int] = []
    with start_journal(tmp_path, HEADER) as journal:
        for seconds in (1.0, 1.0, 2.0, 1.0, None):
            executor = Counting(verdict, HANG, seconds)
            journal_executor(executor, journal, Digests()).ask(Question(linear_case()))
            asked.append(executor.asked)
    assert asked == [1, 0, 1, 0, 1]


def test_a_memory_limit_that_was_passed_says_nothing_about_another(tmp_path: Path) -> None:
    asked: list[int] = []
    with start_journal(tmp_path, HEADER) as journal:
        for memory in ("200M", "200M", "8G"):
            executor = Counting(Verdict.DIFFERENT, Signature("memory"), memory=memory)
            journal_executor(executor, journal, Digests()).ask(Question(linear_case(), FAILURE))
            asked.append(executor.asked)
    assert asked == [1, 0, 1]


def test_the_memory_that_the_environment_allows_is_a_limit_of_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    for size in ("200M", "8G"):
        monkeypatch.setenv("CTK_MEMORY", size)
        names.append(ChildProcess().memory)
    monkeypatch.delenv("CTK_MEMORY")
    assert len({*names, ChildProcess().memory}) == 3
    assert ChildProcess(memory_nbytes=200 << 20).memory == names[0]  # as --memory says it
    monkeypatch.setattr("ctk.toolkit.processes.memory.free_nbytes", lambda: 1 << 40)
    with_much = ChildProcess().memory
    monkeypatch.setattr("ctk.toolkit.processes.memory.free_nbytes", lambda: 1 << 31)
    assert ChildProcess().memory != with_much  # a part of what is free


def test_the_short_time_of_a_candidate_proves_no_hang(tmp_path: Path) -> None:
    executor = Counting(Verdict.REPRODUCES, HANG, 60.0)
    with start_journal(tmp_path, HEADER) as journal:
        asking = journal_executor(executor, journal, Digests())
        for within in (2.0, None, 2.0, 30.0):
            asking.ask(Question(linear_case(), deadline_seconds=within))
    assert executor.asked == 2


def test_a_slow_answer_is_the_same_again_with_each_limit(tmp_path: Path) -> None:
    class Slow(Executor):
        isolates = True
        limit_seconds = 60.0

        def judge(self, question: Question) -> Judgement:
            within = question.deadline_seconds
            assert within is not None
            ended = Judgement(Verdict.TIMEOUT, HANG, seconds=within)
            return ended if within < 8 else Judgement(Verdict.PASSES, seconds=8.0)

    for number in range(2):
        with (resume_journal if number else start_journal)(tmp_path, HEADER) as journal:
            asking = journal_executor(Slow(), journal, Digests())
            for within, verdict in [(4.0, "timeout"), (60.0, "passes"), (4.0, "timeout")]:
                question = Question(linear_case(), deadline_seconds=within)
                assert asking.ask(question).verdict.value == verdict


def test_a_hang_of_a_command_is_remembered_with_its_limit(tmp_path: Path) -> None:
    verdicts: list[Verdict] = []
    for number, limit in enumerate((0.3, 0.3, 20.0)):
        oracle = CommandOracle(("sh", "-c", "sleep 1", "{case}"), limit_seconds=limit)
        opened = start_journal if number == 0 else resume_journal
        with opened(tmp_path, HEADER) as journal:
            memo = Memo(journal, limit)
            noted = Journaled(oracle, memo, Digests(), oracle.identity, on_answer=oracle.remember)
            verdicts.append(noted.ask(Question(linear_case())).verdict)
    assert verdicts == [Verdict.REPRODUCES, Verdict.REPRODUCES, Verdict.PASSES]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with start_journal(tmp_path, HEADER) as journal:
        ask_all(journal_executor(Counting(), journal, Digests()))
    yield tmp_path


def test_a_journal_torn_at_any_byte_asks_the_torn_question_only(folder: Path) -> None:
    whole = (folder / JOURNAL).read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for size in range(start, len(whole), 7):
        (folder / JOURNAL).write_bytes(whole[:size])
        with resume_journal(folder, HEADER) as journal:
            executor = Counting()
            ask_all(journal_executor(executor, journal, Digests()))
            assert executor.asked == 1
    (folder / JOURNAL).write_bytes(whole[:20])  # it died in its first line
    with resume_journal(folder, HEADER) as journal:
        assert journal.remembered == 0
    assert read_header(folder) == HEADER


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"torch": "1.0"}, "torch was 1.0, and is "),
        ({"ctk": "9.9"}, "ctk was 9.9, and is "),
        ({"inputs": "none"}, "inputs was none, and is full now"),
        ({"operation": "diagnose"}, "operation was diagnose, and is minify now"),
        ({"sources": {"sources/a.py": "1"}}, "changed since: sources/a.py"),
        ({"cases": ("b",), "options": {"target": "x"}}, 'target was "x", and is "ctk" now'),
        ({"cases": ("b",), "subject": "b.py"}, "they are about b.py, not net.py"),
        ({"cases": ("b",)}, "the program makes another graph or other values now"),
        ({"options": {"target": "ctk", "isolate": True}}, ""),
        ({"cases": ("b",), "options": {"target": "ctk", "isolate": True}}, "another graph"),
    ],
)
def test_what_differs_is_said(change: dict[str, object], said: str) -> None:
    then = dataclasses.replace(HEADER, **change)
    assert (said in difference(then, HEADER)) if said else not difference(then, HEADER)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"not a journal\n", "is damaged: line 1"),
        (b'{"sum":"0000000000000000","kind":"Header"}\n', "is damaged: line 1"),
        (b"\xff\x00\n", "is damaged: line 1"),
        (b"\n\n", "is damaged: line 1"),
    ],
)
def test_what_is_no_journal_is_refused_with_a_sentence(
    text: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / JOURNAL).write_bytes(text)
    with pytest.raises(CaseError, match=said):
        resume_journal(tmp_path, HEADER)
    assert resume_hint(tmp_path) is None


def test_an_answer_of_another_form_is_refused_not_believed(tmp_path: Path) -> None:
    with start_journal(tmp_path, HEADER) as journal:
        asking = journal_executor(Counting(), journal, Digests())
        asking.ask(Question(linear_case()))
        key = journal.last(Judgement)
        assert key is not None
        journal._values["Judgement", key] = {"verdict": "fine"}
        with pytest.raises(CaseError, match=r"Judgement .*\$\.verdict: expected"):
            asking.ask(Question(linear_case()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, []),
        ({"target": "my file.py:f"}, ["--target", "my file.py:f"]),
        (
            {"config": {"a.b": [1, "x"], "c": True}},
            ["--config", 'a.b=[1, "x"]', "--config", "c=true"],
        ),
        (
            {"backward": True, "dynamic": False, "graph": 0},
            ["--backward", "--graph", "0"],
        ),
        ({"allow_imports": ["a", "b"]}, ["--allow-import", "a", "--allow-import", "b"]),
        ({"isolate": False, "timeout_seconds": 2.5}, ["--no-isolate", "--timeout", "2.5"]),
        ({"target": None, "graph": None, "surprise": "$(rm)"}, []),
    ],
)
def test_the_command_to_go_on_has_the_words_of_the_first(
    options: dict[str, object], words: list[str]
) -> None:
    header = dataclasses.replace(HEADER, options=options, subject="a;b.py")
    command = resume_command(header, Path("out dir"))
    head = ["ctk", "minify", "a;b.py"]
    assert shlex.split(command) == [*head, *words, "--out", "out dir", "--resume"]


def test_an_object_of_the_caller_is_named_in_python() -> None:
    header = dataclasses.replace(HEADER, subject=None, operation="bisect-pass")
    assert resume_command(header, Path("out")).startswith("ctk.bisect(…, out='out', resume=True)")


FINGERPRINT = """
import torch, torch.nn.functional as F
from tests.unit.oracle.test_journal import program_case
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
print(fingerprint(program_case()))
"""


def program_case() -> Case:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = F.relu(torch.sin(x)) + F.gelu(y).to(torch.float64)
        return torch.add(z, F.layer_norm(y, (4,)), alpha=2)

    x = torch.arange(8.0).reshape(2, 4)
    return Case(symbolic_trace(program), (x, x.clone()), target="fake", config={"a": [1]})


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FINGERPRINT], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == fingerprint(program_case())


def test_functions_that_a_name_does_not_lead_to_are_told_apart() -> None:
    def case(scale: float) -> Case:
        def scaled(x: torch.Tensor) -> torch.Tensor:
            return x * scale

        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(scaled, (x,)))
        return Case(torch.fx.GraphModule({}, graph), (torch.ones(2),))

    one, two = case(1.0), case(2.0)
    assert fingerprint(one) == fingerprint(one) != fingerprint(two)


def test_inputs_that_share_memory_are_another_question() -> None:
    x = torch.arange(8.0)
    graph = symbolic_trace(lambda a, b: a.add_(1) + b)
    shared = Case(graph, (x, x.view(8)))
    apart = Case(graph, (x, x.clone()))
    assert fingerprint(shared) != fingerprint(apart)


def test_the_contents_of_a_tensor_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    raw = cache.raw_bytes
    monkeypatch.setattr(cache, "raw_bytes", lambda t: read.append(t.numel()) or raw(t))
    case, digests = program_case(), Digests()
    first = fingerprint(case, digests)
    assert len(read) == 2
    assert fingerprint(case, digests) == first and len(read) == 2
    x = case.inputs[0]
    assert isinstance(x, torch.Tensor)
    x.add_(1)  # nobody does this to a case; a digest would notice
    assert fingerprint(case, digests) != first and len(read) == 3
    del case, x
    assert not digests.known


def test_a_journal_of_another_schema_is_refused(tmp_path: Path) -> None:
    """Fingerprints have another form since schema 1: none of its answers would be found."""
    start_journal(tmp_path, dataclasses.replace(HEADER, schema=1)).close()
    with pytest.raises(
        CaseError, match=r"not a journal of this ctk \(schema 1, .* reads 2\); start"
    ):
        resume_journal(tmp_path, HEADER)
