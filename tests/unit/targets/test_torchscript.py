"""TorchScript with the weights inside: each pass of torch.jit has a name, and can be left out."""

import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctk.compiler.errors import ConfigError
from ctk.compiler.torch_compat.torchscript import torchscript_api
from ctk.toolkit.bisect.culprit_search import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import check_log
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.repro.run import run_repro, write_repro
from ctk.toolkit.targets.torchscript import TARGET

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="needs oneDNN's frozen passes"
)
MKLDNN = "frozen/convert_frozen_ops_to_mkldnn"


class Conv(nn.Module):
    """A convolution, its normalization, and what comes then."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.norm, self.then = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), then
        nn.init.uniform_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.norm(self.conv(x)))


class Counting(nn.Module):
    """A buffer that is written to cannot be a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.get_buffer("calls").add_(1)
        return self.linear(x) * self.get_buffer("calls")


def scripted_case(model: nn.Module, *inputs: Tensor, **config: object) -> Case:
    torch.manual_seed(0)
    (case,) = load_cases(model, inputs, CaseOptions(target="torchscript", config=config))
    return case


def doubled_sum(y: Tensor) -> Tensor:
    return torch.add(y, y, alpha=2)


FOR_CUDNN = ["frozen/fuse_frozen_conv_add_relu"] if torch.backends.cuda.is_built() else []
"""The pass that a CUDA build of torch has; on the CPU it turns `_convolution` into `conv2d`."""


def image() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(1, 2, 6, 6)


def passes(recorder: Recorder, *, changed: bool = True) -> list[str]:
    return [str(p.id) for p in recorder.log.passes() if p.changed or not changed]


@needs_onednn
def test_the_passes_of_torch_jit_have_names_and_are_checked():
    case, recorder = scripted_case(Conv(torch.tanh).eval(), image()), Recorder(keep_calls=True)
    assert judge(case, observer=recorder).verdict.value == "passes"
    expected = ["frozen/trace_and_freeze", "frozen/fold_frozen_conv_bn", *FOR_CUDNN, MKLDNN]
    assert passes(recorder) == expected
    findings = check_log(case, recorder.log)
    assert [(f.step.where, f.status) for f in findings] == [
        *((name, "ok") for name in expected),
        ("lowered/torchscript:frozen", "ok"),
    ]


@needs_onednn
def test_an_addition_made_in_place_is_named_and_the_repro_shows_it(tmp_path: Path):
    case = scripted_case(Conv(doubled_sum).eval(), image())
    search = find_culprit(case)
    assert search.culprit is not None
    assert search.culprit.where == MKLDNN
    assert "+aten::add_" in search.culprit.rule
    assert search.confirmed
    failing = dataclasses.replace(case, signature=search.judgement.signature)
    assert run_repro(write_repro(failing, tmp_path)).exit_code == 1


def test_every_pass_can_be_left_out():
    case = scripted_case(Conv(torch.tanh).eval(), image())
    recorder = Recorder()
    judge(case, observer=recorder)
    for name in passes(recorder):
        without = Recorder(Veto(passes=frozenset({name})))
        assert judge(case, observer=without).verdict.value == "passes"
        assert name not in passes(without)
    without = Recorder(Veto(fuel=0))
    assert judge(case, observer=without).verdict.value == "passes"
    assert passes(without) == ["frozen/trace_and_freeze"]


def test_options():
    x = image()
    recorder = Recorder()
    judge(
        scripted_case(Conv(torch.tanh).eval(), x, optimize_for_inference=False), observer=recorder
    )
    assert MKLDNN not in passes(recorder, changed=False)
    case, recorder = scripted_case(Conv(torch.tanh).eval(), x, freezing=False), Recorder()
    assert judge(case, observer=recorder).verdict.value == "passes"
    assert [s.stage for s in recorder.log.stages()] == ["captured", "forward"]
    assert len(case.inputs) == 7
    with pytest.raises(ConfigError, match="optimize_for_inference"):
        TARGET.check_config({"optimise_for_inference": True})
    with pytest.raises(ConfigError, match="boolean"):
        TARGET.check_config({"freezing": 1})


def test_a_graph_that_cannot_be_frozen_is_announced_once():
    recorder = Recorder()
    case = scripted_case(Counting().eval(), torch.ones(2, 3))
    assert judge(case, observer=recorder).verdict.value == "passes"
    assert [s.stage for s in recorder.log.stages()] == ["captured", "forward"]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Counting().eval(), [torch.ones(2, 3)]),
        (Counting(), [torch.ones(2, 3)]),
        (nn.Dropout().eval(), [torch.ones(2, 3)]),
        (nn.TransformerEncoderLayer(8, 2, 16).eval(), [torch.ones(2, 1, 8)]),
        (Conv(lambda y: y.add_(1)).eval().half(), [torch.ones(1, 2, 6, 6).half()]),
        (
            Conv(torch.relu).eval().to(memory_format=torch.channels_last),
            [torch.ones(1, 2, 6, 6).to(memory_format=torch.channels_last)],
        ),
    ],
    ids=["counting", "training", "dropout", "encoder", "half", "channels_last"],
)
def test_healthy_programs_pass(model: nn.Module, inputs: list[Tensor]):
    judgement = judge(scripted_case(model, *inputs))
    assert judgement.verdict.value == "passes", judgement


def test_the_notice_on_torch_jit_is_logged_once(caplog: pytest.LogCaptureFixture):
    """Also where warnings are errors, which torch's own warning would turn into a failure."""
    torchscript_api._log_notice.cache_clear()
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "ctk.codegen"):
        warnings.simplefilter("error")
        for _ in range(2):
            assert judge(scripted_case(Conv(torch.tanh).eval(), image())).verdict.value == "passes"
    (record,) = [each for each in caplog.records if "torch.jit" in each.getMessage()]
    is_supported = sys.version_info < (3, 14)
    assert is_supported == (" deprecates torch.jit" in record.getMessage())
    assert is_supported == (" does not support torch.jit on Python" not in record.getMessage())
    is_for_users = torch.__version__ >= "2.14"
    assert record.levelno == (logging.WARNING if is_for_users else logging.INFO)
