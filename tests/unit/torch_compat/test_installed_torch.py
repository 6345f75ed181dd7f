"""Features are refused by the private name that the installed torch lacks, and not silently."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace

import ctk
from ctk.compiler import installed_torch
from ctk.compiler.errors import MissingTorchName
from ctk.compiler.installed_torch import missing_names_refused, refusal_of, warn_if_untested
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.torch_compat.aot import autograd, decompositions
from ctk.compiler.torch_compat.dynamo import dynamo_api
from ctk.compiler.torch_compat.inductor import inductor_api
from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site
from ctk.compiler.torch_compat.versions import NEWEST_TESTED, NEWEST_TESTED_PYTHON
from ctk.toolkit.cli.shell.errors import answer_for

NEWER = "3.1.0"


def raised_by(action: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        action()
    return caught.value


def wrap_nothing() -> None:
    with wrap_site(Site(torch._guards.TracingContext, "no_such_name"), lambda original: original):
        pass


def without(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    monkeypatch.delattr(owner, name)


def test_a_missing_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._C, "_current_graph_task_id")
    refusal = refusal_of(raised_by(autograd.is_recomputing))
    version = str(torch.__version__)
    assert str(refusal).startswith(
        f"torch {version} has no torch._C._current_graph_task_id, which ctk needs for aot/autograd"
        " (Autograd's bookkeeping: the version counters of tensors, and hooks on saved tensors); "
    )
    assert str(refusal).count("\n") == 0


def test_a_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.exc", None)
    assert "has no torch._dynamo.exc," in str(refusal_of(raised_by(dynamo_api.fallbacks)))


def test_a_missing_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._dynamo, "lookup_backend")
    error = raised_by(lambda: dynamo_api.find_backend("eager"))
    assert "has no torch._dynamo.lookup_backend," in str(refusal_of(error))


def test_a_missing_place_to_wrap_is_named() -> None:
    refusal = str(refusal_of(raised_by(wrap_nothing)))
    assert "has no torch._guards.TracingContext.no_such_name, which ctk needs for " in refusal


def test_the_module_that_wraps_needs_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._ops.OpOverload, "decompose")
    watched = decompositions.decompositions_watched(None)  # type: ignore[arg-type]  # not reached
    refusal = str(refusal_of(raised_by(watched.__enter__)))
    assert "has no torch._ops.OpOverload.decompose, which ctk needs for aot/decomp" in refusal


def test_another_signature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def tracing() -> None:
        """Take no argument any more."""

    tracing.__qualname__ = "tracing"
    monkeypatch.setattr(torch._guards, "tracing", tracing)
    refusal = str(refusal_of(raised_by(inductor_api.outside_tracing)))
    assert "another signature of tracing (takes 0 positional arguments but 1 was given)" in refusal


def test_a_missing_name_of_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.__getattr__` raises for its caller, and so do the modules of settings."""
    without(monkeypatch, torch, "_TorchCompileWrapper")
    error = raised_by(lambda: dynamo_api.unwrap_backend("eager"))
    assert "has no torch._TorchCompileWrapper, which ctk needs for dynamo/" in str(
        refusal_of(error)
    )


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = torch._dynamo.config
    monkeypatch.delitem(config._config, "specialize_float")
    error = raised_by(lambda: dynamo_api.specialized_floats().__enter__())
    assert "has no torch._dynamo.config.specialize_float," in str(refusal_of(error))


@pytest.mark.parametrize(
    "action",
    [
        lambda: torch._C.no_such_name,  # not a line of torch_compat
        lambda: autograd.without_modes(lambda values: values.nothing, []),
        lambda: autograd.without_modes(lambda: None, []),  # type: ignore[arg-type]  # of the user
        lambda: dynamo_api.find_backend("no such backend"),
        lambda: inductor_api.wrap_error(None),  # type: ignore[arg-type]  # a mistake of ctk
    ],
)
def test_other_exceptions_are_no_refusals(action: Callable[[], object]) -> None:
    assert refusal_of(raised_by(action)) is None


def test_the_cause_of_another_error_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._C, "_current_graph_task_id")

    def fail() -> None:
        try:
            autograd.is_recomputing()
        except AttributeError as error:
            raise RuntimeError("a wrapper") from error

    named = pytest.raises(MissingTorchName, match=r"torch\._C\._current_graph_task_id")
    with named, missing_names_refused():
        fail()


def program(x: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.relu(x * 2 + 1),)


def compiled(**config: Any) -> Any:
    x = torch.ones(3)
    return compile_fx(symbolic_trace(program), [x], {"cache": False, **config})(x)


def test_a_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._functorch.aot_autograd, "aot_module_simplified")
    with pytest.raises(MissingTorchName, match="aot_module_simplified"):
        compiled()


def test_a_fallback_reports_the_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without(monkeypatch, torch._functorch.aot_autograd, "aot_module_simplified")
    compiled(on_failure="fallback")
    assert "MissingTorchName: torch " in caplog.text
    assert "has no torch._functorch.aot_autograd.aot_module_simplified" in caplog.text


def test_a_question_is_refused_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._functorch.aot_autograd, "aot_module_simplified")
    with pytest.raises(MissingTorchName, match="aot_module_simplified"):
        ctk.check(symbolic_trace(program), (torch.ones(3),), target="ctk")


def test_the_command_line_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._C, "_current_graph_task_id")
    answer = answer_for(raised_by(autograd.is_recomputing))
    assert answer.exit_code == 125
    assert answer.headline.startswith("cannot tell: torch ")
    assert "traceback" not in str(answer.body)


def test_a_newer_torch_is_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(installed_torch, "torch_version", lambda: NEWER)
    warn_if_untested.cache_clear()
    for _ in range(2):
        warn_if_untested()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"ctk: torch {NEWER} is newer than ")
    warn_if_untested.cache_clear()


def test_an_untested_python_is_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(installed_torch.platform, "python_version", lambda: "3.99.1")
    monkeypatch.setattr(installed_torch, "has_gil", lambda: False)
    warn_if_untested.cache_clear()
    for _ in range(2):
        warn_if_untested()
    assert [record.getMessage() for record in caplog.records] == [
        f"ctk: Python 3.99.1 is newer than {NEWEST_TESTED_PYTHON}, the newest tested one",
        "ctk: Python 3.99.1 without its global interpreter lock is untested",
    ]
    warn_if_untested.cache_clear()


def test_a_tested_torch_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_untested.cache_clear()
    warn_if_untested()
    assert not caplog.records


def test_the_next_step_for_a_newer_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, torch._C, "_current_graph_task_id")
    monkeypatch.setattr(installed_torch, "torch_version", lambda: NEWER)
    refusal = str(refusal_of(raised_by(autograd.is_recomputing)))
    assert refusal.endswith(f"next: install torch {NEWEST_TESTED} or older, or a newer ctk")
