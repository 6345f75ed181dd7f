"""What the environment leaves out is left out besides what the config says."""

import pytest

from ctk.compiler.options.config import leaves_out, resolve


def test_the_proof_of_a_repro_that_runs_one_pass_only(monkeypatch: pytest.MonkeyPatch):
    config = {"disable": ["*", "-joint/fold"]}
    names = {"fold", "joint/fold"}
    assert not leaves_out(resolve(config).disable, names)
    monkeypatch.setenv("CTK_DISABLE", "joint/fold")
    assert leaves_out(resolve(config).disable, names)
    assert resolve({}).disable == ("joint/fold",)
