"""The settings of torch's compilers: set, undone, and those that another setting implies."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.torch_compat.process.settings import (
    INDUCTOR,
    MODULES,
    implied,
    restore_settings,
    set_options,
)

UNREAD = {
    "torch._export.config": "of torch.export's tracing, which is public",
    "torch._inductor.config_comms": "of programs on several devices",
    "torch.distributed.config": "of programs on several devices",
    "torch.utils.serialization.config": "of torch.save and torch.load, which are public",
}
"""Torch's other modules of settings, and why no compile of ctk reads them."""

config: Any = importlib.import_module(INDUCTOR.removesuffix("."))
needs_implications = pytest.mark.skipif(
    not any(getattr(entry, "implies", None) for entry in config._config.values()),
    reason="in torch from 2.15 a setting implies others",
)


def test_each_module_of_settings_was_reviewed() -> None:
    package = Path(torch.__file__).parent
    found = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for file in package.rglob("*config*.py")
        if "install_config_module(sys.modules" in file.read_text(encoding="utf-8")
    }
    others = ("torch.testing.", "torch.utils._config_module")  # torch's tests, and the definition
    assert {name for name in found if not name.startswith(others)} == {*MODULES, *UNREAD}


@needs_implications
def test_a_value_that_another_setting_implies_is_no_value_that_was_set() -> None:
    with config.patch({"numerics": "strict"}):
        values = config.get_config_copy()
        assert config.emulate_precision_casts is True
        assert values["emulate_precision_casts"] is False
        assert "emulate_precision_casts" in implied(config, values)
    assert not implied(config, config.get_config_copy())


@needs_implications
@pytest.mark.parametrize("names", [("numerics", "emulate_precision_casts"), ("numerics",)])
def test_implied_values_do_not_stay(names: tuple[str, ...]) -> None:
    before = config.get_config_copy()
    values = {"numerics": "strict", "emulate_precision_casts": True}
    with set_options({INDUCTOR + name: values[name] for name in names}):
        assert config.emulate_precision_casts is True
    assert config.get_config_copy() == before
    with restore_settings() as changed:
        config.numerics = "strict"
    assert changed == {"numerics": "strict"}
    assert config.get_config_copy() == before
