"""The pytest plugin of ctk: options, marker and fixture; the work is in `ctk.toolkit.testing`.

pytest imports this module in every project in whose environment ctk is installed. So it imports
neither torch nor ctk, until `--ctk` asks for it, and runs on every pytest.
"""

from collections.abc import Callable
from typing import Any

import pytest

_OPTIONS = (
    ("ctk", "off", "Watch each torch.compile of the tests: off, dump, check (default: off)."),
    ("ctk-target", "", "Compile with this target in place of each backend that has a name."),
    ("ctk-out", "ctk_dumps", "Folder for cases and outcomes (default: ctk_dumps)."),
    ("ctk-seconds", "60", "Longest diagnosis of one test (default: 60)."),
    ("ctk-calls", "4", "How many first calls of a function are compared per test (default: 4)."),
)

_MARKER = (
    "ctk(off=False, target=None, config=None): with --ctk, do not watch the test; "
    "compile with this target; add options of the target"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with an ini key of the same name."""
    group = parser.getgroup("ctk", "wrong compiles (ctk)")
    for name, default, text in _OPTIONS:
        key = name.replace("-", "_")
        group.addoption(f"--{name}", dest=key, metavar=name.rpartition("-")[2].upper(), help=text)
        parser.addini(key, text, default=default)
    text = "Name the culprit of each wrong compile, and its smallest repro, when it happens."
    group.addoption("--ctk-diagnose", action="store_true", default=None, help=text)
    parser.addini("ctk_diagnose", text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the plugin that does the work if it is asked for."""
    config.addinivalue_line("markers", _MARKER)
    if (config.getoption("ctk") or config.getini("ctk")) == "off" or config.option.collectonly:
        return
    from ctk.toolkit.testing.plugin import WatchPlugin

    config.pluginmanager.register(WatchPlugin.of(config), "ctk-watch")


@pytest.fixture
def ctk_check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`ctk.assert_compiles`, with the target, options and folder of this test."""
    from ctk.toolkit.testing.assertion import assert_compiles
    from ctk.toolkit.testing.options import SuiteOptions, read_marker

    config: Any = request.config
    options, mark = SuiteOptions.of(config), read_marker(request.node)

    def check(function: Callable[..., object], args: Any = (), **given: Any) -> None:
        own: dict[str, Any] = {
            "target": mark.target or options.target or None,
            "config": mark.config or None,
        }
        assert_compiles(function, args, dump=options.out, **{**own, **given})

    return check
