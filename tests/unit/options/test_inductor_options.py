"""Inductor's options and modes: each name is known, taken with its meaning, or refused in words."""

import pytest
import torch

from ctk.compiler.backend import ctk
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.errors import ConfigError
from ctk.compiler.options.config import Config, patch, resolve
from ctk.compiler.options.inductor_groups import GROUPS
from ctk.compiler.options.inductor_options import MODES, NAMES, REFUSED, SLOTS, TAKEN, mode_options
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.options import option_types
from ctk.compiler.rewriting.stage_passes import PARTITION, select_passes
from ctk.compiler.torch_compat.inductor.inductor_api import mode_names, option_values
from ctk.toolkit.options import parse_config

SHARED = {"freezing", "TYPE_CHECKING"}
"""Options of the same name and meaning in both, and an import that torch takes for an option."""


def program(x, w):
    return torch.relu(x @ w).sum(1)


def inputs():
    return torch.randn(4, 8), torch.randn(8, 8)


def test_every_option_of_the_installed_inductor_is_known():
    missing = option_values().keys() - NAMES - SHARED
    assert not missing, f"add them to inductor_options.py or inductor_groups.py: {sorted(missing)}"


def test_no_option_has_two_entries_or_the_name_of_one_of_ctk():
    listed = [name for group in GROUPS for name in group]
    assert sorted(listed) == sorted(REFUSED)
    assert not REFUSED.keys() & (TAKEN.keys() | SLOTS.keys())
    own = set(Config.__dataclass_fields__)
    steps = [*(step for steps in PASSES.values() for step in steps), *CODEGEN_OPTIONS, PARTITION]
    own |= {f"{step.name}.{option}" for step in steps for option in option_types(step)}
    assert not own & NAMES


TUNED = {"triton.autotune": True, "tune_products.enabled": "tune"}


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_translations_are_options_of_ctk(name):
    for value, _ in TAKEN[name].values:
        options = Config().patch({name: value})
        assert not any("." in key for key in options.differences())
        select_passes(PASSES, options, CODEGEN_OPTIONS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_autotune": True}, TUNED),
        ({"shape_padding": False}, {"pad_mm.enabled": "never"}),
        ({"force_shape_pad": True}, {"pad_mm.enabled": "always"}),
        ({"fallback_random": True}, {"replace_random.enabled": False}),
        ({"force_disable_caches": True}, {"cache": False}),
        ({"emulate_precision_casts": True}, {"kernels.exact": True}),
        ({"auto_chunker.enable": True, "auto_chunker.num_chunk": 4},
         {"chunk_losses.enabled": True, "chunk_losses.chunks": 4}),
        ({"auto_chunker.num_chunk": None, "auto_chunker.amplify_ratio_threshold": 2},
         {"chunk_losses.min_ratio": 2}),
        ({"freezing": True, "freezing_discard_parameters": True},
         {"freezing": True, "freezing_discard": True}),
        ({"epilogue_fusion": True, "use_dce": True}, {}),
        ({"decompose_mem_bound_mm": False}, {"decompose_products.enabled": "never"}),
        ({"batch_fusion": False},
         {"batch_linears.enabled": False, "batch_parallel.enabled": False}),
        ({"max_autotune": True, "coordinate_descent_tuning": False}, TUNED),
        ({"deterministic": True, "max_autotune": True, "force_shape_pad": True},
         {"triton.autotune": False, "pad_mm.enabled": "never", "tune_products.enabled": "never"}),
        ({"force_disable_caches": True, "fx_graph_cache": True}, {"cache": False}),
        ({"max_autotune": True, "triton.autotune": False}, {**TUNED, "triton.autotune": False}),
        ({"triton.autotune": False, "max_autotune": True}, {**TUNED, "triton.autotune": False}),
    ],
)  # fmt: skip
def test_an_option_with_the_same_meaning_is_translated(given, expected):
    assert Config().patch(given) == Config().patch(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"compile_threads": 4}, "compiled in parallel"),
        ({"cpp.threads": 2}, "torch.set_num_threads"),
        ({"trace.enabled": True}, "CTK_DUMP=FOLDER"),
        ({"triton.cudagraph_trees": True}, "kernels.cuda_graphs"),
        ({"max_autotune_gemm": True}, "libraries"),
        ({"cuda.cutlass_dir": ""}, "libraries"),
        ({"pre_grad_fusion_options": {}}, "batch_linears.enabled=true"),
        ({"permute_fusion": False}, 'takes True, not False; disable=["fuse_permute"]'),
        ({"max_autotune": "yes"}, "max_autotune takes True or False, not 'yes'"),
        ({"shape_padding": 1}, "takes True or False, not 1"),
        ({"max_autotun": True}, "did you mean 'max_autotune'"),
        ({"freezin": True}, "did you mean 'freezing'"),
    ],
)
def test_other_options_are_refused_with_their_counterpart(given, expected):
    with pytest.raises(ConfigError) as caught:
        Config().patch(given)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"triton.cudagraphz": True}, "did you mean 'triton.cudagraphs'"),
        ({"triton.autotun": True}, "did you mean 'autotune'"),
        ({"cpp.thread": 1}, "did you mean 'cpp.threads'"),
    ],
)
def test_dotted_names_are_looked_up_in_both_vocabularies(given, expected):
    with pytest.raises(ConfigError) as caught:
        select_passes(PASSES, Config().patch(given), CODEGEN_OPTIONS)
    assert expected in str(caught.value)


def test_the_command_line_and_ambient_options_take_the_same_names():
    assert Config().patch(parse_config(["shape_padding=false"])) == Config().patch(
        {"pad_mm.enabled": "never"}
    )
    with patch({"force_disable_caches": True}):
        assert resolve(None).cache is False
        assert resolve({"fx_graph_cache": True}).cache is True


def test_modes_stand_for_options():
    with_graphs = {"kernels.cuda_graphs": True} if torch.cuda.is_available() else {}
    assert mode_options(None) == mode_options("default") == {}
    assert mode_options("reduce-overhead") == with_graphs
    assert mode_options("max-autotune") == {**TUNED, **with_graphs}
    with pytest.raises(ConfigError, match="did you mean 'max-autotune'"):
        mode_options("max_autotune")


def test_modes_are_those_of_the_installed_torch():
    assert mode_names() == set(MODES)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_program_compiles_in_every_mode(mode):
    given = inputs()
    compiled = torch.compile(program, backend="ctk", mode=mode)
    torch.testing.assert_close(compiled(*given), program(*given))


def test_passes_of_inductor_run_on_the_graph():
    seen = []

    def unannotated(anything):
        seen.append(anything)

    def annotated(g: torch.fx.Graph) -> None:
        seen.append(g)

    options = {"post_grad_custom_post_pass": unannotated, "joint_custom_pre_pass": [annotated]}
    x, w = inputs()
    compiled = torch.compile(program, backend="ctk", options=options)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    assert len(seen) == 2 and all(isinstance(each, torch.fx.Graph) for each in seen)


def test_a_pass_of_inductor_keeps_its_name_and_the_other_slots():
    def halve(anything):
        pass

    options = Config().patch(
        {
            "pre_grad_custom_pass": halve,
            "joint_custom_post_pass": None,
            "custom_passes": {"frozen": (print,)},
        }
    )
    assert options.custom_passes["frozen"] == (print,)
    assert options.custom_passes["pre_grad"][0].__name__ == "halve"
    assert options.custom_passes["joint"] == ()


def test_a_refused_option_reaches_the_user_of_torch_compile():
    with pytest.raises(Exception, match="ctk has no option 'cpp_wrapper', which is Inductor's"):
        torch.compile(program, backend="ctk", options={"cpp_wrapper": True})(*inputs())


def test_the_backend_function_takes_modes():
    gm = torch.fx.symbolic_trace(program)
    x, w = inputs()
    torch.testing.assert_close(ctk(gm, [x, w], mode="lite")(x, w), program(x, w))
