"""The `torchscript` code generator: script, freeze and optimise the graph with `torch.jit`.

It runs graphs that autograd is done with: gradient mode is off in every call, and no result
requires a gradient. The steps follow `functorch.compile.ts_compile`; each of the places where
TorchScript would silently compute something else than eager is either mended here or refused
(`refuse.py`).

* TorchScript folds factory calls (`aten.full`) to constants. A result that may share memory with a
  constant is copied in every call, else a caller who writes to it would change the next results.
* A graph that writes to its inputs is not optimised for inference: that pass moves values to other
  layouts, which the input must not see.
* Mutation is removed only from graphs that write to nothing but inputs, where it stays. On a
  computed value it would make of `half.add_(float)` an `add`, whose result is a float.
* A graph in which TorchScript's GPU fuser would compute something else (fusing.py) runs without it.
* `optimize_for_inference` is kept only if it introduces no new operators (layout conversions), or
  if the warm-up has shown that the results keep their layout.

It does not free an input before the call ends (TorchScript's caller holds it).

Source: torch/_functorch/compilers.py `ts_compile`. Differs: the graph is not changed in place,
overloads are checked, `_to_copy` always copies, symbolic sizes, None and returned inputs are
handled, the warm-up leaves inputs and random state alone.
"""

import contextlib
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, check_count
from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.codegen.kernels import Codegen, one_kernel
from ctk.compiler.codegen.packing import with_packed_weights
from ctk.compiler.codegen.torchscript.overloads import check_overloads
from ctk.compiler.codegen.torchscript.rewrite import ScriptGraph, rewrite_for_torchscript
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.clone import clone_value, clone_values, layout
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes
from ctk.compiler.torch_compat.torchscript import torchscript_api as torchscript

log = logging.getLogger("ctk.codegen")


def ts_compile(gm: GraphModule, example_inputs: Sequence[object]) -> BoxedCallable:
    """Compile an aten-level graph with TorchScript; `gm` is left unchanged.

    Args:
        gm: Functional graph of aten overloads; `aten.copy_` to inputs at its end is allowed.
        example_inputs: One value per placeholder. If all are real, a warm-up call runs on copies of
            them.

    Raises:
        CodegenUnsupported: TorchScript cannot take the graph; names the node and the reason.
    """
    program = rewrite_for_torchscript(with_packed_weights(gm), example_inputs)
    if program.unfused:
        log.info("TorchScript runs a graph without its fuser: %s", program.unfused)
    with compiling():
        scripted = _script(program)
        if "value" not in program.writes:
            torchscript.remove_mutation(scripted.graph)
        frozen = torch.jit.freeze(scripted, sorted(program.unknown))
        if program.writes:
            return _finish(program, frozen, example_inputs)
        before = set(torchscript.operators(frozen.graph))
        optimised = torch.jit.optimize_for_inference(frozen)
        call = _finish(program, optimised, example_inputs)
        added = set(torchscript.operators(optimised.graph)) - before
        if not added or _keeps_layout(call, gm, example_inputs):
            return call
        return _finish(program, torch.jit.freeze(scripted, sorted(program.unknown)), example_inputs)


def _script(program: ScriptGraph) -> Any:
    try:
        scripted = torch.jit.script(program.module.eval())
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise CodegenUnsupported(f"torch.jit.script refuses the graph: {_reason(error)}") from error
    check_overloads(program.overloads, scripted.graph)
    written = torchscript.written_attributes(scripted.graph)
    if written:
        # Freezing would copy the constant, and the write would not reach the original.
        raise CodegenUnsupported(f"the graph writes to its constant {written[0]}")
    return scripted


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[:1] + [line for line in lines[1:] if line.startswith("Expected ")][:1]
    marked = next((i for i, line in enumerate(lines) if line.endswith("<--- HERE")), 0)
    node = lines[marked - 1].partition(" = ")[0] if marked else ""
    at = f" (at node {node})" if node.isidentifier() else ""
    return f"{' '.join(said) or type(error).__name__}{at}"


def _finish(program: ScriptGraph, module: Any, example_inputs: Sequence[object]) -> BoxedCallable:
    call = _bind(program, module)
    if are_real(example_inputs):
        _warm_up(call, example_inputs)
    return call


def _bind(program: ScriptGraph, module: Any) -> BoxedCallable:
    signature = program.signature
    forward = _unfused(module.forward) if program.unfused else module.forward
    folded = torchscript.outputs_of_constants(module.graph)

    def run(args: list[Any]) -> Any:
        check_count(args, signature.count)
        inputs = tuple(args)
        args.clear()
        with torch.no_grad():
            computed = forward(*(inputs[index] for index in signature.inputs))
        values = list(computed)
        for index in folded:
            values[index] = clone_value(values[index])
        return signature.assemble(inputs, values)

    return as_boxed(run, lambda: _source(module))


def _unfused(forward: Callable[..., Any]) -> Callable[..., Any]:

    def run(*inputs: object) -> Any:
        with torch.jit.optimized_execution(False):
            return forward(*inputs)

    return run


def _source(module: Any) -> str:
    """Return TorchScript code, or the graph where code cannot be printed (prepacked weights)."""
    try:
        return str(module.code)
    except RuntimeError:
        return str(module.graph)


def are_real(values: Sequence[object]) -> bool:
    """Return whether all values hold numbers: nothing fake, symbolic or on `meta`."""
    return not any(
        fake.is_fake(value)
        or fake.is_symbolic(value)
        or (isinstance(value, torch.Tensor) and value.is_meta)
        for value in values
    )


def _warm_up(call: BoxedCallable, example_inputs: Sequence[object]) -> Any:
    """Run once on copies, so that the first call need not compile; random state stays as it was."""
    inputs = list(clone_values(example_inputs))
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    devices = {tensor.get_device() for tensor in tensors if tensor.is_cuda}
    with torch.random.fork_rng(sorted(devices)):
        return call(inputs)


def _keeps_layout(call: BoxedCallable, gm: GraphModule, example_inputs: Sequence[object]) -> bool:
    """Return whether results have the layout of eager; False if there is nothing to run."""
    if not are_real(example_inputs):
        return False
    with torch.no_grad():
        expected = _warm_up(eager_compile(gm), example_inputs)
    return layout(_warm_up(call, example_inputs)) == layout(expected)


@contextlib.contextmanager
def compiling() -> Generator[None]:
    """Compile without autocast, gradients and dispatch modes; log notices of torch.jit."""
    with (
        torchscript.notices_logged(),
        torch.no_grad(),
        outside_dispatch_modes(),
        torchscript.autocast_off(),
    ):
        yield


CODEGEN = Codegen("torchscript", one_kernel(ts_compile))
