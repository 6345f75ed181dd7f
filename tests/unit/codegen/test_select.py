"""`generate`: who is asked, who takes the graph, and what logs, observers and callers see."""

import logging

import pytest
import torch
from torch.fx import GraphModule

from ctk.compiler.codegen import CODEGENS
from ctk.compiler.codegen.base import as_boxed
from ctk.compiler.codegen.kernels import Codegen, one_kernel
from ctk.compiler.codegen.select import generate, generators
from ctk.compiler.errors import CodegenUnsupported, ConfigError
from ctk.compiler.observe import CallRecord, ErrorRecord
from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from tests.helpers.codegen_graphs import functional

X = torch.ones(3)


def plain() -> GraphModule:
    return functional(lambda x: (x + 1,), X)


def refused_by_torchscript() -> GraphModule:
    return functional(lambda x: (torch.ops.prims.convert_element_type(x, torch.float16),), X)


def make(gm: GraphModule, **changes):
    observer = changes.pop("observer", None)
    return generate(gm, [X], "forward", Numbering(observer, Config(**changes)))


def failing(gm, example_inputs):
    raise ArithmeticError("a bug\nwith details")


def refusing(gm, example_inputs):
    raise CodegenUnsupported("not mine")


def working(gm, example_inputs):
    def run(args):
        args.clear()
        return ("mine",)

    return as_boxed(run, lambda: "source")


TABLE = (
    Codegen("failing", one_kernel(failing)),
    Codegen("refusing", one_kernel(refusing)),
    Codegen("working", one_kernel(working)),
)


@pytest.fixture
def choose(monkeypatch):
    """Compile a backward graph with generators of `TABLE`."""
    monkeypatch.setattr("ctk.compiler.codegen.select.CODEGENS", TABLE)

    def choose(*names: str, on_failure="raise", observer=None):
        config = Config(codegen=names[0], fallback=names, on_failure=on_failure)
        return generate(plain(), [X], "backward", Numbering(observer, config))

    return choose


def test_table() -> None:
    assert [codegen.name for codegen in CODEGENS] == ["c", "triton", "torchscript", "eager"]


def test_both_generators_agree() -> None:
    for name in ("c", "torchscript", "eager"):
        (result,) = make(plain(), codegen=name)([X])
        torch.testing.assert_close(result, X + 1)


def test_without_observer_nothing_is_wrapped(monkeypatch) -> None:
    def forbidden(*args, **kwargs):
        raise AssertionError("extra work without an observer")

    monkeypatch.setattr("ctk.compiler.codegen.select._observed", forbidden)
    monkeypatch.setattr("ctk.compiler.codegen.select.watch_calls", forbidden)
    assert make(plain(), codegen="torchscript").__qualname__.startswith("_bind.")


def test_refused_graph_goes_to_the_next_with_one_log_line(caplog) -> None:
    with caplog.at_level(logging.INFO, logger="ctk.codegen"):
        (result,) = make(refused_by_torchscript(), codegen="torchscript")([X])
    assert result.dtype == torch.float16
    (record,) = [r for r in caplog.records if r.name == "ctk.codegen"]
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert text.startswith("graph forward: torchscript refuses it: TorchScript cannot")
    assert "convert_element_type" in text
    assert text.endswith("; eager takes it")
    assert "\n" not in text


def test_a_taken_graph_is_not_logged(caplog) -> None:
    make(plain())
    assert not [r for r in caplog.records if r.name == "ctk.codegen"]


def test_nobody_takes_it() -> None:
    with pytest.raises(CodegenUnsupported) as caught:
        make(refused_by_torchscript(), codegen="torchscript", fallback=())
    message = str(caught.value)
    assert message.startswith("no code generator takes graph forward:\n  torchscript ref")
    assert "add it to Config.fallback" in message


def test_unknown_generator() -> None:
    for config in (Config(codegen="torchscrpt"), Config(fallback=("eager", "torchscrpt"))):
        with pytest.raises(ConfigError, match="'torchscrpt'; did you mean 'torchscript'"):
            generators(config)


def test_unknown_generator_is_no_failure_to_fall_back_from() -> None:
    with pytest.raises(ConfigError, match="'torchscrpt'"):
        compile_fx(plain(), [X], {"codegen": "torchscrpt", "on_failure": "fallback"})


def test_failure_is_raised_with_its_place(choose) -> None:
    recorder = Recorder()
    with pytest.raises(ArithmeticError) as caught:
        choose("failing", "working", observer=recorder)
    assert caught.value.ctk_where == "lowered/failing:backward"
    assert "lowered/failing:backward" in caught.value.__notes__[0]
    (event,) = recorder.log.errors()
    assert event.error is caught.value
    assert (event.stage, str(event.kernel)) == ("lowered", "lowered/failing:backward")
    assert event.graph is not None


def test_failure_falls_back_with_a_log_line(choose, caplog) -> None:
    recorder = Recorder()
    compiled = choose("failing", "refusing", "working", on_failure="fallback", observer=recorder)
    assert compiled([X]) == ("mine",)
    (record,) = caplog.records
    assert (
        "failing failed: ArithmeticError: a bug; refusing refuses it: not mine; working takes"
        in (record.getMessage())
    )
    (kernel,) = recorder.log.kernels()
    assert str(kernel.id) == "lowered/working:backward"
    assert kernel.reason == "failing failed: ArithmeticError: a bug; refusing refuses it: not mine"
    assert isinstance(recorder.log.events[0], ErrorRecord)


def test_failure_warns(choose) -> None:
    with pytest.warns(
        RuntimeWarning, match="failing failed: ArithmeticError: a bug; working takes"
    ):
        choose("failing", "working", on_failure="warn")


def test_failure_of_the_last_is_raised_whatever_the_mode(choose) -> None:
    with pytest.raises(ArithmeticError):
        choose("refusing", "failing", on_failure="fallback")


def test_kernel_record() -> None:
    recorder, gm = Recorder(), plain()
    make(gm, observer=recorder)
    (record,) = recorder.log.kernels()
    assert str(record.id) == "lowered/c:forward.add"
    assert "for (" in record.source and "add" in record.ir
    assert (record.reason, record.vetoed) == (None, False)
    assert record.seconds > 0
    assert record.graph is not gm
    assert record.graph.code == gm.code


def test_vetoed_kernel_runs_as_eager() -> None:
    recorder = Recorder(Veto(kernels=frozenset({"lowered/c:forward.add"})))
    compiled = make(plain(), observer=recorder)
    torch.testing.assert_close(compiled([X])[0], X + 1)
    (record,) = recorder.log.kernels()
    assert (str(record.id), record.vetoed) == ("lowered/c:forward.add", True)
    assert record.source is None


def test_first_call_is_recorded_once_with_copies() -> None:
    recorder = Recorder(keep_calls=True)
    gm = functional(lambda x: (x.mul_(2) + 1, x.shape[0]), torch.ones(3))
    compiled = make(gm, observer=recorder)
    assert compiled._boxed_call
    x = torch.ones(3)
    args = [x]
    result, _ = compiled(args)
    result.zero_()
    compiled([x])
    assert args == []
    (record,) = [event for event in recorder.log.events if isinstance(event, CallRecord)]
    assert record.inputs[0].tolist() == [1.0] * 3
    assert record.outputs[0].tolist() == [3.0] * 3
    assert record.outputs[1] == 3
    assert record.inputs_after[0].tolist() == [2.0] * 3
    assert x.tolist() == [4.0] * 3


def test_a_first_call_that_raises_is_not_recorded() -> None:
    recorder = Recorder(keep_calls=True)
    compiled = make(plain(), observer=recorder)
    with pytest.raises(TypeError):
        compiled([])
    assert not recorder.log.calls()
    compiled([X])
    compiled([X])
    assert len(recorder.log.calls()) == 1


def test_a_generator_refuses_a_graph_of_which_nothing_is_where_its_kernels_run(caplog):
    make(plain(), codegen="triton", fallback=("eager",))
    assert (
        "triton refuses it: its kernels run on cuda, and all of the graph is on cpu" in caplog.text
    )
