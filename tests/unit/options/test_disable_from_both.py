"""What the environment leaves out is left out besides what the config says."""

import pytest

from ctk.compiler.errors import UnknownPass
from ctk.compiler.options.config import leaves_out, resolve
from ctk.toolkit.targets.ctk import TARGET


def test_the_proof_of_a_repro_that_runs_one_pass_only(monkeypatch: pytest.MonkeyPatch):
    config = {"disable": ["*", "-joint/fold"]}
    names = {"fold", "joint/fold"}
    assert not leaves_out(resolve(config).disable, names)
    monkeypatch.setenv("CTK_DISABLE", "joint/fold")
    assert leaves_out(resolve(config).disable, names)
    assert resolve({}).disable == ("joint/fold",)


def test_a_name_of_no_pass_is_refused_where_it_is_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(UnknownPass, match="; did you mean 'joint/fold_constants'"):
        TARGET.check_config({"disable": ["joint/fold_constant"]})
    with pytest.raises(UnknownPass, match=r"'joint/mean_as_sum', which is not a pass$"):
        TARGET.check_config({"disable": ["joint/mean_as_sum"]})
    monkeypatch.setenv("CTK_DISABLE", "joint/of_another_program")
    for _ in range(2):
        TARGET.check_config({"verify": True})
    assert caplog.messages == [
        "ctk: CTK_DISABLE names 'joint/of_another_program', which is not a pass of this compile"
    ]


def test_only_passes_are_recommended_for_the_environment():
    assert TARGET.spell_disable(["joint/cse", "frozen/my"]) == "CTK_DISABLE=joint/cse,frozen/my"
    others = ("dispatch/decompose.aten.gelu.default", "lowered/fusion", "joint/partition")
    assert [TARGET.spell_disable(["joint/cse", each]) for each in others] == [""] * 3
    assert TARGET.spell_disable([]) == ""
