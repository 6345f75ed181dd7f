"""Code generation: the table of generators, and the choice among them.

`eager` is the ground truth. A new generator is one module with a `CODEGEN` and one line here.
"""

from collections.abc import Sequence
from typing import Literal

from torch.fx import GraphModule

from ctk.compiler.codegen import eager
from ctk.compiler.codegen.base import BoxedCallable, Codegen, CodegenOptions
from ctk.compiler.codegen.select import compile_with_first
from ctk.compiler.codegen.torchscript import codegen as torchscript
from ctk.compiler.observe import Observer, Stage

__all__ = ["CODEGENS", "BoxedCallable", "Codegen", "CodegenOptions", "generate"]

CODEGENS: tuple[Codegen, ...] = (torchscript.CODEGEN, eager.CODEGEN)


def generate(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    stage: Stage,
    name: str,
    codegen: str,
    fallback: Sequence[str],
    on_failure: Literal["raise", "fallback", "warn"],
    observer: Observer | None,
) -> BoxedCallable:
    """Compile a graph with `codegen`, or with the first of `fallback` that can take it.

    Args:
        gm: Functional aten graph; left unchanged.
        example_inputs: One value per placeholder, real or fake.
        stage: Stage whose graph this is.
        name: Label of the graph, for messages and for the kernel's id.
        codegen: Code generator that is asked first.
        fallback: Those that are asked next, in order. Names that were asked before are skipped.
        on_failure: What an unexpected exception of a generator does: `raise` it, `fallback` to the
            next one, or `warn` and do so. A generator that refuses a graph (`CodegenUnsupported`)
            is no failure: the next one is asked.
        observer: May veto the kernel, in which case `eager` runs the graph; sees kernels, first
            calls and errors.

    Returns:
        A boxed callable. Without an observer it is the generator's own, with nothing around it.

    Raises:
        ConfigError: A name is not in the table.
        CodegenUnsupported: No generator takes the graph; lists the reason of each.
    """
    options = CodegenOptions(stage, name)
    names = tuple(dict.fromkeys((codegen, *fallback)))
    return compile_with_first(
        CODEGENS,
        names,
        gm,
        example_inputs,
        options=options,
        on_failure=on_failure,
        observer=observer,
    )
