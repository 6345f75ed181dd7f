"""`compile_fx` and `compile_fx_aot` with the arguments of Inductor's: functions of the user."""

import functools
import re

import pytest
import torch
from torch._inductor.compile_fx import compile_fx_inner as inductors

import ctk
from ctk.compiler.errors import ArtifactError, ConfigError

aten = torch.ops.aten


def program(x, w):
    return torch.nn.functional.gelu(x @ w).sum(0)


def tensors(*, training=False):
    return [torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(training), torch.ones(4, 4)]


def compiled(args, **keywords):
    return ctk.compile_fx(torch.fx.symbolic_trace(program), args, **keywords)


@pytest.mark.parametrize("inner", [ctk.compile_fx_inner, inductors], ids=["ctk", "inductor"])
def test_inner_compile_gets_forward_and_backward(inner):
    seen = []

    def inner_compile(gm, example_inputs, **facts):
        seen.append((facts["is_backward"], facts["is_inference"]))
        return inner(gm, example_inputs, **facts)

    args = tensors(training=True)
    patches = {"decompositions": "inductor"}
    compiled(args, inner_compile=inner_compile, config_patches=patches)(*args).sum().backward()
    found, args[0].grad = args[0].grad, None
    program(*args).sum().backward()
    torch.testing.assert_close(found, args[0].grad)
    assert seen == [(False, False), (True, False)]


def test_inner_compile_may_return_a_plain_function():
    graphs = []

    def inner_compile(gm, example_inputs, **facts):
        graphs.append(gm)
        assert facts["is_inference"] and len(example_inputs) == 2
        return gm.forward

    args = tensors()
    torch.testing.assert_close(compiled(args, inner_compile=inner_compile)(*args), program(*args))
    (graph,) = graphs
    assert graph.graph.find_nodes(op="call_function", target=aten.mm.default)


def test_inner_compile_has_the_options_of_the_compile():
    sources = []

    def inner_compile(gm, example_inputs, **facts):
        run = ctk.compile_fx_inner(gm, example_inputs, **facts)
        sources.append(run.ctk_source())
        return run

    for patches in ({}, {"codegen": "eager"}):
        compiled(tensors(), inner_compile=inner_compile, config_patches=patches)
    assert "_ctk_launch" in sources[0] and "_ctk_launch" not in sources[1]


def test_config_patches_win_over_the_config():
    with pytest.raises(ConfigError, match="unknown code generator 'none'"):
        compiled(tensors(), config={"codegen": "eager"}, config_patches={"codegen": "none"})
    args = tensors()
    run = compiled(args, config=ctk.Config(), config_patches={"max_autotune": True})
    torch.testing.assert_close(run(*args), program(*args))


def test_decompositions_of_the_user_replace_the_tables():
    seen = []

    def gelu(x, approximate="none"):
        seen.append(tuple(x.shape))
        return x * 2

    def inner_compile(gm, example_inputs, **facts):
        assert not gm.graph.find_nodes(op="call_function", target=aten.gelu.default)
        return ctk.compile_fx_inner(gm, example_inputs, **facts)

    args = tensors()
    table = {aten.gelu.default: gelu}
    run = compiled(args, decompositions=table, inner_compile=inner_compile)
    torch.testing.assert_close(run(*args), (args[0] @ args[1] * 2).sum(0))
    assert (3, 4) in seen


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (
            {"sin": torch.sin},
            "decompositions has the key 'sin', which is not an operator that a graph calls; "
            "name an overload, as torch.ops.aten.sin.default",
        ),
        ({aten.sin: torch.sin}, "has the key <OpOverloadPacket(op='aten.sin')>, which is not"),
        (
            {aten.sin.default: 3},
            "decompositions has 3 for aten.sin.default; give a function that takes the arguments "
            "of the operator",
        ),
    ],
)
def test_a_decomposition_that_no_trace_uses_is_refused(table, fault):
    with pytest.raises(ConfigError, match=re.escape(fault)):
        compiled(tensors(), decompositions=table)


def test_functions_of_the_user_bypass_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path))
    args = tensors()
    table = {aten.gelu.default: lambda x, approximate="none": x * 2}
    compiled(args, decompositions=table)
    torch.testing.assert_close(compiled(args)(*args), program(*args))


def test_a_package_is_made_by_inner_compile(tmp_path):
    graphs = []

    def inner_compile(gm, example_inputs, *, note, **facts):
        graphs.append(note)
        return ctk.compile_fx_inner(gm, example_inputs, **facts)

    args = tensors()
    path = ctk.compile_fx_aot(
        torch.fx.symbolic_trace(program),
        args,
        inner_compile=functools.partial(inner_compile, note="seen"),
        config_patches={
            "aot_inductor.output_path": str(tmp_path / "p.ctk"),
            "extern_node_serializer": None,
        },
    )
    assert path == str(tmp_path / "p.ctk") and graphs == ["seen"]
    torch.testing.assert_close(ctk.load(path)(*args)[0], program(*args))


def test_a_package_needs_data(tmp_path):
    gm, args = torch.fx.symbolic_trace(program), tensors()
    with pytest.raises(ArtifactError, match="let it return the result of compile_fx_inner"):
        ctk.compile_fx_aot(gm, args, path=tmp_path / "p", inner_compile=lambda g, *_, **__: g)
    with pytest.raises(ConfigError, match="extern_node_serializer is not for packages"):
        ctk.compile_fx_aot(gm, args, config_patches={"extern_node_serializer": str})
    assert not list(tmp_path.iterdir())
