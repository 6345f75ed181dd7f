"""Which options of a target change what a failing case shows, and how few questions that takes."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from ctk.toolkit.bisect import Culprit, options_that_matter
from ctk.toolkit.bisect.options import OptionSearch, config_text, confirm_options
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.usercode.program import UserProgram, load_program
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.targets.base import Target, Trial
from tests.helpers.case_folders import linear_case
from tests.helpers.inductor_faults import FAULTS
from tests.helpers.project import ROOT
from tests.helpers.torch_bugs import PERMUTED_KEY

NAMES = "abcdefgh"


class Fake(Executor):
    """A compiler whose verdict is a function of the config; counts the questions."""

    isolates = False

    def __init__(self, verdict):
        self.verdict, self.asked = verdict, list[Mapping[str, object]]()
        self.vetoes: list[Veto | None] = []

    def judge(self, question: Question) -> Judgement:
        self.asked.append(question.case.config)
        self.vetoes.append(question.veto)
        return Judgement(self.verdict(question.case.config))

    def close(self) -> None:
        pass


@pytest.fixture
def failing(monkeypatch) -> Case:
    """A case of a slow target with eight options that can be off."""

    def trials(_self, config):
        of = {
            "e": {"is_of_code": True, "trace": "vec"},
            "f": {"is_of_code": True},
            "g": {"culprits": ("joint/",)},
            "h": {"culprits": ("joint/fold",)},
        }
        names = [name for name in NAMES if config.get(name) is not False]
        return [Trial(name, False, **of.get(name, {})) for name in names]

    slow = type("Slow", (Target,), {"name": "slow", "trials": trials})()
    monkeypatch.setattr("ctk.toolkit.bisect.options.target_of", lambda spec: slow)
    return linear_case(signature=Signature("accuracy", output="out0"))


def passes_without(*names: str):
    def verdict(config):
        return Verdict.PASSES if any(config.get(n) is False for n in names) else Verdict.REPRODUCES

    return verdict


def found(search: OptionSearch) -> list[str]:
    return [effect.words for effect in search.effects]


def test_one_question_tells_that_no_option_matters(failing):
    fake = Fake(passes_without())
    assert options_that_matter(failing, fake, print) == OptionSearch(questions=1)
    assert fake.asked == [dict.fromkeys(NAMES, False)]


@pytest.mark.parametrize("names", ["a", "h", "c", "af", "cd", "abc"])
def test_each_option_that_matters_alone_is_found(names: str, failing):
    search = options_that_matter(failing, Fake(passes_without(*names)), print)
    assert found(search) == [f"with --config {name}=false" for name in names]
    assert search.questions <= 1 + 2 * 3 * len(names)
    assert not search.left


def test_what_leaves_out_the_culprit_is_asked_first_and_alone(failing):
    fake = Fake(passes_without("g", "h"))
    culprit = Culprit("joint", "fold#2", Veto())
    search = options_that_matter(failing, fake, print, culprit=culprit)
    assert found(search) == ["with --config g=false", "with --config h=false"]
    assert fake.asked == [{}, {"g": False}, {"h": False}, dict.fromkeys("abcd", False)]
    assert fake.vetoes == [NO_KERNELS] * 4, "no code is generated where none is guilty"


def test_generated_code_is_asked_about_by_its_traces(failing):
    fake = Fake(passes_without("e"))
    scalar = Culprit("lowered", "lower.abs", Veto(), excerpt="auto tmp1 = std::abs(tmp0);")
    assert not options_that_matter(failing, fake, print, culprit=scalar).effects
    assert fake.asked == [dict.fromkeys("abcdfgh", False)]
    vectors = dataclasses.replace(scalar, excerpt="auto tmp1 = at::vec::abs(tmp0);")
    search = options_that_matter(failing, fake, print, culprit=vectors)
    assert found(search) == ["with --config e=false"]
    assert set(fake.vetoes) == {Veto()}


def test_what_cannot_be_asked_together_is_asked_in_smaller_groups(failing):
    def verdict(config):
        both = config.get("a") is False and config.get("b") is False
        return Verdict.INVALID if both else passes_without("g")(config)

    assert found(options_that_matter(failing, Fake(verdict), print)) == ["with --config g=false"]


def test_another_failure_is_an_effect_too(failing):
    def verdict(config):
        return Verdict.DIFFERENT if config.get("b") is False else Verdict.REPRODUCES

    (effect,) = options_that_matter(failing, Fake(verdict), print).effects
    assert (effect.option, effect.verdict) == ("b", Verdict.DIFFERENT)


def test_options_of_the_case_are_left_at_their_defaults_first(failing):
    case = dataclasses.replace(failing, config={"plant": 3, "a": False})
    fake = Fake(lambda config: Verdict.REPRODUCES if "plant" in config else Verdict.PASSES)
    search = options_that_matter(case, fake, print)
    assert found(search) == ["without --config plant"]
    assert fake.asked[:2] == [{"a": False}, {"plant": 3}]
    assert fake.asked[2] == {"plant": 3} | dict.fromkeys(NAMES, False)


def test_the_budget_says_what_was_left(failing):
    search = options_that_matter(failing, Fake(passes_without("h")), print, limit=3)
    assert search == OptionSearch(questions=3, left=2)


def test_what_holds_of_the_smallest_case_only_is_not_told(failing):
    search = options_that_matter(failing, Fake(passes_without("a", "b")), print)
    whole = confirm_options(failing, search, Fake(passes_without("b")), print)
    assert found(whole) == ["with --config b=false"]
    assert whole.questions == search.questions + 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(False, "false"), (1, "1"), ("eager", "eager"), ("1", '"1"'), (["a"], '["a"]')],
)
def test_values_are_written_as_the_command_line_reads_them(value: object, text: str):
    from ctk.toolkit.options import parse_config

    assert config_text(value) == text
    assert parse_config([f"a={text}"]) == {"a": value}


WRONG_PASS = """
import torch


def wrong(gm):
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.cos.default


def model():
    return torch.sin


def inputs():
    return (torch.ones(3),)
"""


def failing_case(program: UserProgram, **options) -> Case:
    torch._dynamo.reset()
    (case,) = capture_cases(program, **options)
    signature = judge(case).signature
    assert signature is not None
    return dataclasses.replace(case, signature=signature)


def test_a_custom_pass_and_no_option_of_ctk_matters(tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text(WRONG_PASS)
    config = {"custom_passes": {"joint": [f"{path}:wrong"]}, "freezing": False}
    case = failing_case(load_program(str(path)), config=config)
    lines: list[str] = []
    search = options_that_matter(case, InProcess(), lines.append)
    assert found(search) == ["without --config custom_passes"]
    assert "with --config codegen=eager: reproduces" in lines
    assert search.questions == len(lines) == 8


@pytest.mark.slow
def test_a_planted_option_of_inductor_matters_and_no_other():
    program = UserProgram(
        lambda x: torch.relu(x).sin(), (torch.linspace(-1, 1, 16),), {}, "f", ROOT
    )
    bug = "cpp.inject_relu_bug_TESTING_ONLY"
    case = failing_case(program, target="inductor", config={bug: "accuracy"})
    search = options_that_matter(case, InProcess(), print)
    assert found(search) == [f"without --config {bug}"]
    assert search.questions == 2


@pytest.mark.slow
@PERMUTED_KEY.is_needed
def test_the_pattern_matcher_matters_to_a_wrong_pattern_of_inductor():
    program = load_program(str(ROOT / "tests/planted/inductor/permuted_key.py"))
    search = options_that_matter(failing_case(program, target="inductor"), InProcess(), print)
    assert found(search)[0] == "with --config pattern_matcher=false"


@pytest.mark.slow
def test_vector_width_matters_to_wrong_vectors_of_inductor():
    fault = next(fault for fault in FAULTS if fault.culprit == "vectorization")
    with fault.plant():
        case = failing_case(
            UserProgram(fault.program, fault.inputs, {}, "f", ROOT), target="inductor"
        )
        search = options_that_matter(case, InProcess(), print)
    assert found(search) == ["with --config cpp.simdlen=1"]
