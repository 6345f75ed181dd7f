"""Cases that name code, programs, modules or paths: refused, each with what it names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ctk
from ctk.compiler.errors import TrustError
from tests.helpers.hostile import JUDGING, Craft, assert_refused, first_call, run_on

Change = Callable[[Craft], None]


def target(form: str) -> Change:
    """The target is `form`, with a canary's names in it."""
    return lambda craft: craft.manifest(lambda data: data.update(target=filled(form, craft)))


def config(of: str, options: dict[str, Any]) -> Change:
    """The target `of` has options, with a canary's names in their strings."""

    def change(craft: Craft) -> None:
        named = fill(options, craft)
        craft.manifest(lambda data: data.update(target=of, config=named))

    return change


def filled(form: str, craft: Craft) -> str:
    """Put a canary's names into a text."""
    names = {
        "FUNCTION": craft.canary.reference,
        "FILE": craft.canary.file_reference,
        "MODULE": craft.canary.module,
        "PROGRAM": craft.canary.program,
        "SHELL": craft.canary.shell,
        "NEST": str(craft.canary.folder / "written"),
    }
    for word, name in names.items():
        form = form.replace(word, name)
    return form


def fill(value: Any, craft: Craft) -> Any:
    """Put a canary's names into all strings of a JSON value."""
    if isinstance(value, str):
        return filled(value, craft)
    if isinstance(value, dict):
        return {key: fill(each, craft) for key, each in value.items()}
    return [fill(each, craft) for each in value] if isinstance(value, list) else value


TARGETS = [
    "FUNCTION",
    "FILE",
    "MODULE:no_such_name",
    "os:system",
    "builtins:eval",
    "torch:load",
    "subprocess:call",
    "runpy:run_path",
    "~/evil.py:f",
    "../../evil.py:f",
    "sources/evil.py:f",
    "ctk.toolkit.cli.main:main",
    "tvm",
    "openxla",
    "onnxrt",
    "tensorrt",
    "dynamo_minifier_backend",
    "dynamo_accuracy_minifier_backend",
    "relu_compile_error_TESTING_ONLY",
    "no_such_backend",
    "",
    "ctk ",
    "CTK",
    "x" * 3000,
]


@pytest.mark.parametrize("form", TARGETS, ids=lambda form: repr(form)[:40])
def test_a_target_that_is_not_torchs_own(form: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    target(form)(craft)
    (said,) = assert_refused(craft, says="runs the target")
    assert "--trust" in said.err
    assert "\x1b" not in said.err
    assert len(said.err) < 2000


CTK = [
    {"custom_passes": {"joint": ["FUNCTION"]}},
    {"custom_passes": {"pre_grad": "FILE"}},
    {"custom_passes": {"post_grad": ["an_entry_point"]}},
    {"custom_passes": {"joint": ["sources/x.py:f"]}},
    {"custom_passes": ["FUNCTION"]},
    {"custom_passes": "FUNCTION"},
    {"custom_passes": {"joint": [["FUNCTION"]]}},
    {"codegen": "FUNCTION"},
    {"codegen": ["eager"]},
    {"fallback": ["FUNCTION"]},
    {"fallback": "eager,FUNCTION"},
    {"passes": {"my_pass": {"path": "NEST"}}},
    {"passes": {"my_pass": {"max": 1e300}}},
    {"passes": {"my:pass": {"max": 1}}},
    {"passes": [1]},
    {"my_pass.command": "SHELL"},
    {"my_pass.deep": [[["SHELL"]]]},
    {"disable": ["FUNCTION"]},
    {"disable": [3]},
    {"disable": ["a"] * 5000},
    {"fuel": "3"},
    {"fuel": -1},
    {"fuel": True},
    {"fuel": 2**70},
    {"on_failure": "FUNCTION"},
    {"verify": "no"},
    {"freezing": 1},
    {"no_such_option": 1},
    {"__class__": "FUNCTION"},
    {"": ""},
]


@pytest.mark.parametrize("options", CTK, ids=lambda options: repr(options)[:50])
def test_an_option_of_ctk_that_is_not_harmless(options: dict[str, Any], tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    config("ctk", options)(craft)
    assert_refused(craft, says="is not trusted")


INDUCTOR = [
    {"cpp.cxx": ["PROGRAM"]},
    {"cpp.cxx": [None, "PROGRAM"]},
    {"cpp-cxx": "PROGRAM"},
    {"cpp.march": "native -fplugin=NEST"},
    {"cpp.enable_floating_point_contract_flag": "off -fplugin=NEST"},
    {"cpp.inject_relu_bug_TESTING_ONLY": "SHELL"},
    {"post_grad_custom_pre_pass": "FUNCTION"},
    {"post_grad_custom_post_pass": "FILE"},
    {"joint_custom_pre_pass": "FUNCTION"},
    {"joint_custom_post_pass": "FUNCTION"},
    {"joint-custom-post-pass": "FUNCTION"},
    {"pre_grad_custom_pass": "FUNCTION"},
    {"_pre_fusion_custom_pass": "FUNCTION"},
    {"_post_fusion_custom_pass": "FUNCTION"},
    {"custom_partitioner_fn": "FUNCTION"},
    {"inductor_choices_class": "FUNCTION"},
    {"bucket_all_gathers_fx_bucket_size_determinator": "FUNCTION"},
    {"reorder_for_compute_comm_overlap_passes": ["FUNCTION"]},
    {"_fuse_ddp_communication_passes": ["FUNCTION"]},
    {"external_matmul": ["FUNCTION"]},
    {"trace.enabled": True},
    {"trace.debug_dir": "NEST"},
    {"trace.upload_tar": "FUNCTION"},
    {"trace.save_real_tensors": True},
    {"debug": True},
    {"save_args": True},
    {"worker_log_path": "NEST"},
    {"torchinductor_worker_logpath": "NEST"},
    {"autoheuristic_log_path": "NEST"},
    {"autoheuristic_collect.pad_mm": True},
    {"profile_bandwidth_output": "NEST"},
    {"enabled_metric_tables": "kernel_autotune"},
    {"global_cache_dir": "NEST"},
    {"fx_graph_cache": True},
    {"fx_graph_remote_cache": True},
    {"autotune_remote_cache": True},
    {"remote_gemm_autotune_cache": True},
    {"compile_threads": 32},
    {"worker_start_method": "fork"},
    {"autotune_in_subproc": True},
    {"aot_inductor.output_path": "NEST"},
    {"aot_inductor.custom_op_libs": ["NEST"]},
    {"aot_inductor.dump_aoti_minifier": True},
    {"aot_inductor.package": True},
    {"cutlass.cutlass_dir": "NEST"},
    {"cuda.cutlass_dir": "NEST"},
    {"cuda.cuda_cxx": "PROGRAM"},
    {"xpu.oneapi_root": "NEST"},
    {"rocm.rocm_home": "NEST"},
    {"rocm.save_temps": True},
    {"max_autotune_gemm_backends": "ATEN,CUTLASS"},
    {"max_autotune_gemm_backends": "NVGEMM"},
    {"cpu_backend": "halide"},
    {"halide.cpu_target": "SHELL"},
    {"triton.store_cubin": True},
    {"triton.proton_output_dir": "NEST"},
    {"triton.cudagraph_trees_objgraph": True},
    {"lookup_table.table": {}},
    {"unsafe_marked_cacheable_functions": {"os.system": "x"}},
    {"aten_distributed_optimizations.profile_guided_estimations_profile_path": "NEST"},
    {"assert_indirect_indexing": False},
    {"size_asserts": False},
    {"assume_32bit_indexing": True},
    {"max_fusion_size": 10**12},
    {"cpp.threads": 10**9},
    {"padding_alignment_bytes": 2**60},
    {"max_autotune": "SHELL"},
    {"max_autotune": 1},
    {"pre_grad_fusion_options": {"x": {"y": "FUNCTION"}}},
    {"pre_grad_fusion_options": {"../x": {}}},
    {"post_grad_fusion_options": "FUNCTION"},
    {"no_such_option": 1},
    {"max_autotune\n": True},
]


@pytest.mark.parametrize("options", INDUCTOR, ids=lambda options: repr(options)[:60])
def test_an_option_of_inductor_that_is_not_harmless(
    options: dict[str, Any], tmp_path: Path
) -> None:
    craft = Craft.new(tmp_path)
    config("inductor", options)(craft)
    assert_refused(craft, says="sets the option")


@pytest.mark.parametrize("name", ["eager", "aot_eager", "torchscript", "ts", "cudagraphs"])
def test_an_option_of_another_target(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    config(name, {"anything": 1})(craft)
    assert_refused(craft, says="sets the option 'anything'")


NAMES = [
    "os:system",
    "MODULE:function",
    "torch.ops.ctk_canary.op.default",
    "torch.ops.torchvision.nms.default",
    "torch.ops.profiler._record_function_exit.default",
    "torch.ops._test.get_first.default",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_function_that_is_not_torchs(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.graph(lambda data: first_call(data).update(target=filled(name, craft)))
    assert_refused(craft, says="calls the function")


@pytest.mark.parametrize("name", ["MODULE", "os", "this", "antigravity", "a.b"])
def test_a_module_that_is_listed(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    craft.manifest(lambda data: data.update(imports=[filled(name, craft)]))
    assert_refused(craft, says="imports the module")


@pytest.mark.parametrize("form", ["inductor\n", "\x1b[31mred", "x" * 1_000_000, "\x00", "\u202e"])
def test_a_name_that_is_no_name(form: str, tmp_path: Path) -> None:
    for key, value in {"target": form, "imports": [form], "config": {form: 1}}.items():
        craft = Craft.new(tmp_path)
        craft.manifest(lambda data, key=key, value=value: data.update({key: value}))
        (said,) = assert_refused(craft)
        assert all(line.isprintable() for line in said.err.splitlines())
        assert len(said.err) < 5000


@pytest.mark.parametrize("command", [*JUDGING, "issue"])
def test_every_command_refuses_and_says_what_and_how_to_trust(command: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    config("inductor", {"cpp.cxx": ["PROGRAM"], "freezing": True})(craft)
    craft.manifest(lambda data: data.update(imports=[craft.canary.module]))
    (said,) = assert_refused(craft, commands=[command])
    assert said.code == 2
    assert "sets the option 'cpp.cxx' to ['" in said.err
    assert f"imports the module '{craft.canary.module}' (manifest.json: imports)" in said.err
    assert "freezing" not in said.err
    assert "--trust (in Python: trust=True)" in said.err
    assert f"ctk show {craft.folder}" in said.err


@pytest.mark.parametrize("name", ["check", "repro", "bisect", "minify", "diagnose"])
def test_every_operation_of_the_library_refuses_a_folder(name: str, tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    target("FUNCTION")(craft)
    with pytest.raises(TrustError, match="runs the target"):
        getattr(ctk, name)(str(craft.folder))
    with pytest.raises(TrustError, match="runs the target"):
        getattr(ctk, name)(craft.folder / "manifest.json")
    with pytest.raises(TrustError, match="runs the target"):
        getattr(ctk, name)(craft.folder.parent)  # as a dump of one case
    craft.canary.assert_silent()


def test_a_graph_in_memory_needs_no_trust() -> None:
    (graph,) = ctk.repro(torch.relu, torch.ones(2), target="aot_eager").graphs
    assert ctk.check(graph.case).ok


def test_an_empty_target_of_the_user_replaces_none(tmp_path: Path) -> None:
    """`--target "$TARGET"` with a variable that is not set: the case's own target would run."""
    craft = Craft.new(tmp_path)
    target("FUNCTION")(craft)
    said = run_on(craft, "repro", "--target", "", codes=(2,))
    assert "the target is empty" in said.err
