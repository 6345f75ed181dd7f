"""Config: patching, and messages that say what is allowed."""

import pytest

from ctk import Config, patch
from ctk.compiler.errors import ConfigError
from ctk.compiler.options.config import resolve


def test_patch_returns_a_changed_copy():
    base = Config()
    changed = base.patch(codegen="eager", fuel=3)
    assert (changed.codegen, changed.fuel) == ("eager", 3)
    assert base == Config()
    assert changed.differences() == {"codegen": "eager", "fuel": 3}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"codegen": 3}, "takes a name, not 3"),
        ({"codegn": "eager"}, "did you mean 'codegen'"),
        ({"on_failure": "explode"}, "takes raise, fallback or warn, not"),
        ({"fuel": -1}, "a count of rewrites from 0"),
        ({"fuel": True}, "a count of rewrites from 0"),
        ({"verify": "yes"}, "verify takes true or false, not 'yes'"),
        ({"fallback": ("eager", 3)}, "a list of names (strings)"),
        ({"disable": 3}, "a list of names"),
        ({"custom_passes": {"jiont": []}}, "did you mean 'joint'"),
        ({"custom_passes": {"joint": [3]}}, "a Pass, a function"),
        ({"custom_passes": ["x"]}, "a mapping from a slot"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(changes, expected):
    with pytest.raises(ConfigError) as caught:
        Config().patch(changes)
    assert expected in str(caught.value)


def test_ambient_options_end_with_their_block_and_calls_win():
    with patch(codegen="eager", fuel=5):
        assert resolve(None).codegen == "eager"
        with patch(fuel=6):
            assert resolve({"codegen": "torchscript"}).fuel == 6
        assert resolve(None).fuel == 5
    assert resolve(None) == Config()


def test_ambient_patch_rejects_a_wrong_option_at_once():
    with pytest.raises(ConfigError), patch(fuel="all"):
        raise AssertionError("not reached")


def test_environment_variables_are_patched_in(monkeypatch):
    monkeypatch.setenv("CTK_FUEL", "7")
    monkeypatch.setenv("CTK_DISABLE", "joint/fold_constants,remove_noops")
    monkeypatch.setenv("CTK_ON_FAILURE", "warn")
    options = resolve({"fuel": 2})
    assert options.fuel == 2
    assert options.disable == ("joint/fold_constants", "remove_noops")
    assert options.on_failure == "warn"


def test_a_whole_config_is_taken_as_it_is(monkeypatch):
    monkeypatch.setenv("CTK_FUEL", "7")
    assert resolve(Config(fuel=1)).fuel == 1
