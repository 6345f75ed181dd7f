"""The Inductor target only watches: it leaves nothing behind, changes no code, checks options."""

import gc
import logging
import re
import threading
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.compiler.errors import ConfigError
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_steps
from ctk.compiler.torch_compat.inductor.patch_sites import Site
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.hooks import install_hooks
from ctk.toolkit.targets.inductor.target import TARGET
from tests.helpers.inductor_programs import (
    observe,
    raising_match,
    relu_inputs,
    relu_net,
    shuffled,
)

# --- it only watches -----------------------------------------------------------------------------


def sites() -> list[Site]:
    s = inductor.sites()
    single = [s.pre_grad, s.joint, s.post_grad, s.freeze, s.gm_pass, s.graph_pass]
    steps = [inductor_steps.before_freezing(), *inductor_steps.steps()]
    return [
        *single,
        s.enter,
        s.exit,
        s.pattern_pass,
        *s.pattern_setup,
        *(step.site for step in steps),
    ]


def installed_functions() -> list[object]:
    return [vars(site.owner)[site.name] for site in sites()]


def test_nothing_stays_wrapped_also_not_after_an_exception():
    before = installed_functions()
    observe(relu_net, relu_inputs())
    assert installed_functions() == before
    with pytest.raises(RuntimeError, match="the match raises"), raising_match():
        observe(shuffled(), [torch.rand(32, 8)])
    assert installed_functions() == before
    for table in pattern_tables():
        for entries in table.patterns.values():
            for entry in entries:
                assert "apply" not in vars(entry)
                assert "match" not in vars(entry.pattern)


def pattern_tables() -> list[object]:
    kind = inductor.sites().pattern_pass.owner
    gc.unfreeze()  # `long_lived` hides some of them
    return [item for item in gc.get_objects() if type(item) is kind]


def test_without_an_observer_nothing_is_wrapped():
    before = installed_functions()
    seen: list[list[object]] = []

    def look(_graph: object) -> None:
        seen.append(installed_functions())

    config = {"joint_custom_pre_pass": look}
    inputs = relu_inputs()
    TARGET.compile(symbolic_trace(relu_net), inputs, config=config, observer=None)
    assert seen == [before]
    TARGET.compile(symbolic_trace(relu_net), inputs, config=config, observer=Recorder())
    assert seen[1] != before


def test_other_threads_are_not_recorded():
    session, seen = CompileRecord(Recorder()), list[bool]()
    with install_hooks(session):
        assert session.is_watching()
        thread = threading.Thread(target=lambda: seen.append(session.is_watching()))
        thread.start()
        thread.join()
    assert seen == [False]
    assert not session.is_watching()


def test_observation_does_not_change_the_generated_code():
    inputs = relu_inputs()
    with torch.no_grad():
        _, recorder = observe(relu_net, inputs)
        [kernel] = [k for k in recorder.log.kernels() if not k.nodes]
        logger = logging.getLogger("torch._inductor.codecache.__output_code")
        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]  # a test double
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            TARGET.compile(symbolic_trace(relu_net), inputs, config={}, observer=None)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    [code] = [r.removeprefix("Output code: \n") for r in records if r.startswith("Output code: ")]
    assert without_counter(code) == without_counter(kernel.source or "")


def without_counter(code: str) -> str:
    return re.sub(r"# AOT ID: .*", "", code).strip()


# --- the user's own passes, options ---------------------------------------------------------------


def test_an_exception_in_a_custom_pass_keeps_its_type():
    def broken(graph: torch.fx.Graph) -> None:
        raise ZeroDivisionError("no such scale")

    recorder = Recorder()
    with pytest.raises(ZeroDivisionError, match="no such scale") as caught:
        TARGET.compile(
            symbolic_trace(relu_net),
            relu_inputs(),
            config={"post_grad_custom_post_pass": broken},
            observer=recorder,
        )
    assert caught.value.ctk_where == "forward/post_grad_custom_post_pass"
    [error] = recorder.log.errors()
    assert error.graph is not None
    assert str(error.pass_id) == caught.value.ctk_where


def test_a_custom_pass_is_loaded_from_a_file(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def drop_relu(graph):\n"
        "    relu = torch.ops.aten.relu.default\n"
        "    for node in graph.find_nodes(op='call_function', target=relu):\n"
        "        node.replace_all_uses_with(node.args[0])\n"
        "        graph.erase_node(node)\n"
    )
    inputs = relu_inputs()
    name = f"{file}:drop_relu"
    compiled, recorder = observe(relu_net, inputs, post_grad_custom_pre_pass=name)
    assert not torch.allclose(compiled(*inputs), relu_net(*inputs))
    [record] = [p for p in recorder.log.passes() if "custom" in p.id.name and p.changed]
    veto = Veto(rewrites=frozenset(r.id.number for r in record.rewrites))
    compiled, _ = observe(relu_net, inputs, veto, post_grad_custom_pre_pass=name)
    torch.testing.assert_close(compiled(*inputs), relu_net(*inputs))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"cpp.inject_relu_bug": "accuracy"}, "did you mean 'cpp.inject_relu_bug_TESTING_ONLY'"),
        ({"max_autotune": "yes"}, "expected bool; its default is False"),
        ({"compile_threads": "two"}, "'compile_threads' of target inductor: got 'two' (str)"),
        ({"compile_threads": True}, "got True (bool)"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(config: dict[str, object], says: str):
    with pytest.raises(ConfigError) as caught:
        TARGET.check_config(config)
    assert says in str(caught.value)
    with pytest.raises(ConfigError):
        TARGET.compile(symbolic_trace(relu_net), relu_inputs(), config=config, observer=None)


def test_the_defaults_of_all_options_are_accepted():
    for name, (value, _) in inductor.known_options().items():
        TARGET.check_config({name: value})
