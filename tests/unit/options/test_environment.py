"""The CTK_* variables: values, defaults, and what a wrong one says."""

from pathlib import Path

import pytest

from ctk.compiler.errors import ConfigError
from ctk.compiler.options.conditions import Condition, parse_conditions
from ctk.compiler.options.environment import Environment, misspelt, parse_size, read_environment
from ctk.toolkit.case.manifest import RECORDED, select_recorded_variables


def test_nothing_set_is_the_default():
    environment = read_environment({})
    assert environment == Environment()
    assert not environment.wants_hooks
    assert environment.config_changes() == {}


def test_all_variables():
    environment = read_environment(
        {
            "CTK_DUMP": "some/folder",
            "CTK_CHECK": "Pass",
            "CTK_ON_FAILURE": "warn",
            "CTK_INPUTS": "full",
            "CTK_FUEL": "12",
            "CTK_DISABLE": "fold, joint/cse,",
            "CTK_QUOTA": "1.5G",
            "CTK_SHARE": "1",
            "CTK_CHECK_EVERY": "100",
            "CTK_CHECK_WHEN": "nan, Loss >= 1e3",
            "CTK_RING": "4",
        }
    )
    assert environment == Environment(
        dump=Path("some/folder"),
        check="pass",
        on_failure="warn",
        inputs="full",
        fuel=12,
        disable=("fold", "joint/cse"),
        quota_nbytes=3 << 29,
        share=True,
        check_every=100,
        check_when=(Condition("nan"), Condition("loss", 1000.0, or_equal=True)),
        ring=4,
    )
    assert environment.wants_hooks
    assert environment.config_changes() == {
        "fuel": 12,
        "disable": ("fold", "joint/cse"),
        "on_failure": "warn",
    }


def test_fuel_zero_is_not_unset():
    assert read_environment({"CTK_FUEL": "0"}).config_changes() == {"fuel": 0}


def test_an_empty_value_counts_as_unset():
    assert read_environment({"CTK_DUMP": "", "CTK_FUEL": " "}) == Environment()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CTK_CHECK", "outputs", "off, output or pass, not 'outputs'; did you mean 'output'?"),
        ("CTK_ON_FAILURE", "rise", "did you mean 'raise'?"),
        ("CTK_INPUTS", "all", "takes recipe, full, none or failing, not"),
        ("CTK_FUEL", "-1", "takes a count of rewrites from 0"),
        ("CTK_FUEL", "1.5", "takes a count"),
        ("CTK_FUEL", "²", "takes a count"),
        ("CTK_QUOTA", "lots", "such as 500M or 2G"),
        ("CTK_QUOTA", "0", "above zero"),
        ("CTK_QUOTA", "5X", "units K, M, G, T"),
        ("CTK_CHECK_EVERY", "-3", "takes a count of calls from 0"),
        ("CTK_CHECK_WHEN", "loss", "loss>NUMBER"),
        ("CTK_CHECK_WHEN", "loss>", "loss>NUMBER"),
        ("CTK_CHECK_WHEN", "loss>nan", "loss>NUMBER"),
        ("CTK_CHECK_WHEN", "loss>1e999", "loss>NUMBER"),
        ("CTK_CHECK_WHEN", "loss<3", "loss>NUMBER"),
        ("CTK_CHECK_WHEN", "nan,,inf", "with commas between"),
        ("CTK_CHECK_WHEN", "nan|inf", "with commas between"),
        ("CTK_RING", "four", "takes a count of calls from 0"),
        ("CTK_SHARE", "yes", "takes 1 (the umask decides who may read) or 0"),
        ("CTK_DISABLE", ",", "takes pass names"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(name: str, value: str, said: str):
    with pytest.raises(ConfigError) as raised:
        read_environment({name: value})
    assert str(raised.value).startswith(f"{name} takes ")
    assert f"not {value!r}" in str(raised.value)
    assert said in str(raised.value)


def test_a_dump_that_is_a_file(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="which is a file"):
        read_environment({"CTK_DUMP": str(file)})


def test_a_misspelt_name_is_told():
    assert misspelt(["CTK_DMUP", "PATH", "CTK_DUMP", "CTK_ZZZZZZ"]) == [
        "the environment variable CTK_DMUP is ignored; did you mean 'CTK_DUMP'?"
    ]
    with pytest.warns(UserWarning, match="CTK_DMUP is ignored"):
        read_environment({"CTK_DMUP": "x"})


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("4096", 4096), ("1k", 1024), ("500M", 500 << 20), ("2GiB", 2 << 30), ("0.5GB", 1 << 29)],
)
def test_sizes(text: str, nbytes: int):
    assert parse_size(text) == nbytes


def test_only_listed_variables_are_recorded():
    environ = dict.fromkeys(RECORDED, "1") | {"MY_TORCH_SECRET_TOKEN": "s", "CTK_SECRET": "s"}
    assert set(select_recorded_variables(environ)) == set(RECORDED)


@pytest.mark.parametrize("text", ["nan", "inf", "nan,inf", "loss>10", "loss>=0.001", "loss>-1"])
def test_a_condition_is_printed_as_it_is_read(text: str):
    assert ",".join(map(str, parse_conditions(text))) == text


@pytest.mark.parametrize("name", ["CTK_CHECK_EVERY", "CTK_RING"])
def test_late_calls_want_hooks(name: str):
    assert read_environment({name: "3"}).wants_hooks
    assert not read_environment({name: "0"}).wants_hooks
