"""The target `aot_inductor`: packages of AOTInductor, as a program in C++ or Python loads them.

A whole program is exported with torch.export, compiled and packaged, loaded, and called in place of
the model (`repro_templates/program/exported_model.py`); Dynamo compiles nothing. A captured graph
is exported alone, so that it can be reduced. Without gradients: a package has none.

The config is Inductor's options, `aot_inductor.*` among them. The whole compile is one kernel,
`lowered/aot_inductor:captured`.

`export` is torch.export alone: the exported program runs in eager. It is the rung below.
"""

from collections.abc import Callable
from functools import partial

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.repro_templates.program.exported_model import (
    ExportedCall,
    aot_inductor_backend,
    compile_package,
    export_backend,
    run_exported,
)
from ctk.toolkit.targets.base import Compiled, Inputs, Options, Target
from ctk.toolkit.targets.inductor.options import config_patches
from ctk.toolkit.targets.inductor.target import Inductor
from ctk.toolkit.targets.reporting import raise_innermost


class AotInductor(Inductor):
    """Inductor ahead of time."""

    name = "aot_inductor"
    exports = True
    repro_backend = staticmethod(aot_inductor_backend)

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        """Export a captured graph, compile and load its package.

        Raises:
            ExportRefused: The graph has gradients or symbolic sizes, or torch.export refuses it.
            ConfigError: A config key or value that Inductor does not know.
            Exception: AOTInductor's own, unwrapped.
        """
        call = partial(compile_package, gm, example_inputs, options=config_patches(config))
        return _compile_as_one_kernel(self.name, gm, example_inputs, call, observer)

    def freezes(self, config: Options) -> bool:
        return False


class Export(Target):
    """torch.export alone."""

    name = "export"
    needs = ""
    exports = True
    repro_backend = staticmethod(export_backend)

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        call = partial(run_exported, gm, example_inputs)
        return _compile_as_one_kernel(self.name, gm, example_inputs, call, observer)


def _compile_as_one_kernel(
    name: str,
    gm: GraphModule,
    example_inputs: Inputs,
    call: Callable[[], ExportedCall],
    observer: Observer | None,
) -> Compiled:
    from ctk.toolkit.targets.dynamo import observe_graphs  # loads torch's compiler parts

    with raise_innermost():
        if observer is None:
            return call()
        return observe_graphs(name, gm, example_inputs, call, observer)


TARGET = AotInductor()
EXPORT = Export()
