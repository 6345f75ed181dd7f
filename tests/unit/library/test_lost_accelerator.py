"""A call of the Python API in a process whose CUDA a kernel has broken."""

import pytest
import torch

from ctk.compiler.errors import CaseError, LostAccelerator
from ctk.toolkit.operations import keywords
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.options import CheckOptions
from ctk.toolkit.oracle.executors import in_process
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from tests.helpers.reduce_graphs import chain


def operation(error: Exception):
    @takes_keywords(CheckOptions)
    def raise_error(subject, inputs, options):
        raise error

    return raise_error


def test_the_exception_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keywords, "has_lost_cuda", lambda: True)
    broken = torch.AcceleratorError("CUDA error: device-side assert triggered\nmore")
    with pytest.raises(LostAccelerator) as raised:
        operation(broken)(torch.sin)
    first, following = str(raised.value).splitlines()
    assert first == "CUDA error: device-side assert triggered"
    assert following.startswith("next: --isolate")
    assert raised.value.__cause__ is broken


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_error_of_ctk_stays(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    monkeypatch.setattr(keywords, "has_lost_cuda", lambda: is_lost)
    with pytest.raises(CaseError, match="no case"):
        operation(CaseError("no case"))(torch.sin)


def test_other_exceptions_stay_while_cuda_works() -> None:
    with pytest.raises(ZeroDivisionError):
        operation(ZeroDivisionError())(torch.sin)


def test_a_question_in_the_broken_process_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "has_lost_cuda", lambda: True)
    with pytest.raises(LostAccelerator, match="next: --isolate"):
        InProcess().ask(Question(chain(2, {})))
