"""The text of short scripts and of tests; the bad compiler of most is one of torch's options."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ctk.toolkit.bug_report.labels import Naming
from ctk.toolkit.bug_report.regression_test import test_text as text_of_test
from ctk.toolkit.bug_report.script_check import check_script, shows
from ctk.toolkit.bug_report.short_script import (
    COMPARED,
    NoShortForm,
    exception_name,
    short_program,
    short_whole_program,
)
from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.repro.run import ReproRun
from tests.helpers.repros import make_case

RELU_BUG = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
WRONG = Signature("accuracy", output="out0", message="max abs 1")


def relu_case(signature: Signature = WRONG, **changes: object) -> Case:
    case = make_case(lambda x: (x.relu(),), torch.tensor([0.0, 1.0]), target="inductor")
    return replace(case, signature=signature, config=RELU_BUG, **changes)  # type: ignore[arg-type]  # fields by name


def test_a_script_reads_like_one_of_an_engineer() -> None:
    case = replace(relu_case(), config={})
    assert short_program(case).script == (
        "import torch\n\n\n"
        "class Repro(torch.nn.Module):\n"
        "    def forward(self, l_x_):\n"
        "        relu = l_x_.relu()  # float32[2]\n"
        "        return (relu,)\n\n\n"
        "def inputs():\n"
        '    return {\n        "l_x_": torch.tensor([0.0, 1.0]),\n    }\n\n\n'
        "model = Repro()\n"
        "compiled = torch.compile(model, fullgraph=True)\n"
        "expected = model(*inputs().values())\n"
        "actual = compiled(*inputs().values())\n"
        "torch.testing.assert_close(actual, expected, equal_nan=True)\n"
    )


@pytest.mark.parametrize(
    ("signature", "line"),
    [
        (replace(WRONG, kind="stride"), "equal_nan=True, check_stride=True)"),
        (Signature("compile-error", "RuntimeError"), 'print("eager runs it")'),
        (Signature("signal", signal=11), "faulthandler.enable()"),
        (Signature("timeout"), "faulthandler.dump_traceback_later(60, exit=True)"),
        (Signature("missing-error", "IndexError"), "except Exception as error:"),
        (replace(WRONG, output="in0"), "    return values"),
    ],
    ids=lambda each: each.kind if isinstance(each, Signature) else "",
)
def test_a_kind_of_failure_has_its_own_end(signature: Signature, line: str) -> None:
    program = short_program(relu_case(signature))
    assert line in program.script
    compile(program.script, "script", "exec")
    compile(text_of_test(program, "module: inductor", ("relu",)), "test", "exec")


def test_modes_are_in_the_script() -> None:
    modes = Modes(grad=False, autocast=(Autocast("cpu", "bfloat16"),), default_dtype="float64")
    script = short_program(relu_case(modes=modes)).script
    assert "torch.set_grad_enabled(False)" in script
    assert (
        "    with torch.autocast('cpu', torch.bfloat16):\n        outputs = call(*values)" in script
    )
    assert "torch.set_default_dtype(torch.float64)" in script


def test_the_settings_of_a_test_stand_below_its_imports() -> None:
    case = relu_case(modes=Modes(grad=False))
    case = replace(case, config={**case.config, "freezing": True})
    text = text_of_test(short_program(case), "module: inductor", ("relu",))
    places = [
        text.index(line)
        for line in (
            "import torch._inductor.config\n\nimport torch\nfrom torch._inductor.test_case import",
            "torch._inductor.config.freezing = True\ntorch.set_grad_enabled(False)",
            "class Repro",
        )
    ]
    assert places == sorted(places)


def test_gradients_are_compared_for_a_failure_of_a_gradient() -> None:
    case = relu_case(replace(WRONG, output="grad_in0"), modes=Modes(backward=True))
    assert "torch.autograd.grad(outputs, leaves, tangents" in short_program(case).script
    assert "torch.randn_like(x)" in short_program(case, ones=False).script


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target": "ctk", "config": {}}, "not part of torch"),
        ({"target": "my.py:backend", "config": {}}, "not part of torch"),
        ({"signature": Signature("alias")}, "of kind alias"),
        ({"signature": None}, "never judged"),
        ({"modes": Modes(settings={"a.b": True})}, "settings of torch: a.b"),
        ({"signature": replace(WRONG, output="held_weight")}, "held_weight"),
    ],
)
def test_no_short_form_has_a_reason(change: dict[str, object], reason: str) -> None:
    with pytest.raises(NoShortForm, match=reason):
        short_program(replace(relu_case(), **change))  # type: ignore[arg-type]  # fields by name


PROGRAM = """
import torch

FACTORS = [2.0]


def model():
    return lambda x: x * FACTORS[0]


def between(m):
    FACTORS[0] = 3.0


def inputs():
    return torch.ones(2)
"""


def whole(signature: Signature, **changes: object) -> EndToEnd:
    judgement = Judgement(Verdict.REPRODUCES, signature)
    answer = EndToEnd(judgement, call=2, target="inductor", backend="eager")
    return replace(answer, **changes)  # type: ignore[arg-type]  # fields by name


def test_a_program_is_called_in_eager_and_compiled_by_turns() -> None:
    script = short_whole_program(PROGRAM, whole(WRONG)).script
    assert script.count("import torch\n") == 1
    assert 'torch.compile(program, backend="eager")' in script
    assert "    if number == len(calls):\n        between(program)\n" in script
    compile(script, "script", "exec")


@pytest.mark.parametrize(
    "changes",
    [
        {"judgement": Judgement(Verdict.REPRODUCES, Signature("state"))},
        {"more": "sizes"},
        {"backend": "", "target": "ctk"},
    ],
)
def test_a_program_without_a_short_form(changes: dict[str, object]) -> None:
    with pytest.raises(NoShortForm):
        short_whole_program(PROGRAM, whole(WRONG, **changes))


@pytest.mark.parametrize(
    ("signature", "exit_code", "output", "is_shown"),
    [
        (WRONG, 1, "AssertionError: Tensor-likes are not close!", True),
        (WRONG, 1, "ImportError: no torch", False),
        (WRONG, 0, "AssertionError: not close", False),
        (Signature("stride"), 1, "AssertionError: for attribute 'stride()' do not match", True),
        (Signature("stride"), 1, "AssertionError: Tensor-likes are not close!", False),
        (Signature("signal", signal=11), -11, "", True),
        (Signature("signal", signal=11), -9, "", False),
        (Signature("timeout"), 1, "Timeout (0:01:00)!", True),
        (Signature("compile-error", "KeyError"), 1, "eager runs it\nKeyError: 3", True),
        (Signature("compile-error", "KeyError"), 1, "KeyError: 3", False),
        (Signature("alias"), 1, "AssertionError: not equal", False),
    ],
)
def test_a_run_counts_only_with_the_end_of_its_failure(
    signature: Signature, exit_code: int, output: str, is_shown: bool
) -> None:
    assert shows(signature, ReproRun(exit_code, output, "cannot tell")) is is_shown


def test_an_exception_of_torch_is_not_named_in_a_test() -> None:
    assert exception_name(Signature("missing-error", "IndexError")) == "IndexError"
    assert exception_name(Signature("missing-error", "OutOfMemoryError")) == "Exception"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [lambda p: p.script, lambda p: text_of_test(p, "o", ("relu",))])
def test_it_fails_with_the_bug_and_not_without_a_compiler(
    make: Callable[[object], str],
) -> None:
    program = short_program(relu_case())
    is_test = "TestCase" in make(program)
    run = check_script(make(program), WRONG, is_test=is_test)
    assert run.shows, run.output
    assert "site-packages" not in run.output


def test_a_script_that_fails_by_itself_does_not_show_anything() -> None:
    run = check_script("raise AssertionError('not close')\n", WRONG)
    assert not run.shows and run.why == "it fails without a compiler too"


def test_every_compared_kind_is_one_of_assert_close() -> None:
    assert set(COMPARED) == {"accuracy", "nan", "dtype", "shape", "stride", "structure"}


def test_the_owner_of_a_test_is_the_part_at_fault() -> None:
    labels = ("oncall: pt2", "module: dynamo", "module: crash")
    assert Naming("t", "dynamo", labels).owner == "module: dynamo"
    assert "torch._dynamo.test_case" in text_of_test(
        short_program(relu_case()), "module: dynamo", ("relu",)
    )
