"""Observers that raise: it ends the compile as it is, and the compile is not to blame."""

import dataclasses

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.compiler.observe import OBSERVER, is_observers, mark_errors
from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.questions.judge import judge

X = torch.ones(3)
METHODS = (
    *("allow_pass", "allow_rewrite", "allow_kernel"),
    *("on_stage", "on_pass", "on_kernel", "on_call"),
)


def raising(method: str) -> Recorder:
    """Return an observer whose `method` raises."""

    def fail(_):
        raise ZeroDivisionError("a bug of the observer")

    observer = Recorder(keep_calls=True, keep_rewrites=True)
    setattr(observer, method, fail)
    return observer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("on_failure", ["raise", "fallback"])
def test_what_an_observer_raises_is_raised_as_it_is(method, on_failure, caplog) -> None:
    observer = raising(method)
    gm = symbolic_trace(lambda x: x.sin() + x.sin())
    with pytest.raises(ZeroDivisionError) as caught:
        compile_fx(gm, [X], {"on_failure": on_failure}, observer)(X)
    assert is_observers(caught.value)
    assert caught.value.__notes__ == [
        f"ctk: raised by the observer, in Recorder.{method}; not by the compile"
    ]
    assert not observer.log.errors() and not caplog.records


def test_what_a_pass_raises_is_not_the_observers() -> None:
    def broken(gm):
        raise ZeroDivisionError("a bug of the pass")

    with pytest.raises(ZeroDivisionError) as caught:
        gm = symbolic_trace(lambda x: x.sin())
        compile_fx(gm, [X], {"custom_passes": {"joint": [broken]}}, Recorder())
    assert not is_observers(caught.value)


def test_the_cause_says_whose_an_exception_is() -> None:
    inner = ZeroDivisionError()
    inner.ctk_where = OBSERVER
    outer = RuntimeError()
    assert not is_observers(outer)
    outer.__cause__ = inner
    assert is_observers(outer)


def test_marking_is_done_once_and_costs_nothing_without_an_observer() -> None:
    marked = mark_errors(Recorder())
    assert mark_errors(marked) is marked
    assert mark_errors(None) is None


@pytest.mark.parametrize("target", ["ctk", "aot_eager"])
@pytest.mark.parametrize("method", ["on_stage", "on_kernel", "on_call"])
def test_a_case_does_not_fail_because_its_observer_does(target, method, tmp_path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import torch\ndef model(): return torch.sin\ndef inputs(): return (torch.ones(3),)\n"
    )
    (case,) = capture_cases(load_program(str(path)))
    with pytest.raises(ZeroDivisionError):
        judge(dataclasses.replace(case, target=target), observer=raising(method))
