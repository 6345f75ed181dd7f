"""The target `torchscript`: torch.jit alone, as its users have it.

1. Without gradients the captured graph is traced with the weights inside, frozen and optimised for
   inference; each pass of torch.jit becomes a pass here (`torchscript_frozen`).
2. With gradients, with `freezing=False`, or for a graph that cannot be frozen: each graph that
   AOTAutograd makes, compiled with `ts_compile`.

No pass of ctk runs, so a failure is TorchScript's or the dispatch's; `ctk` with
`codegen=torchscript` is the whole pipeline. Options: `freezing` and `optimize_for_inference`.
"""

import logging
from collections.abc import Mapping

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CodegenUnsupported, ConfigError, nearest
from ctk.compiler.observe import ErrorRecord, Observer, StageRecord
from ctk.toolkit.targets.base import Compiled, Inputs, Options, Target

log = logging.getLogger("ctk.targets")

OPTIONS: Mapping[str, bool] = {"freezing": True, "optimize_for_inference": True}
"""The options of the target, and their defaults."""


def _compile_dispatched(
    gm: GraphModule, example_inputs: Inputs, observer: Observer | None
) -> Compiled:
    """Compile the graphs that AOTAutograd makes of a captured graph."""
    from ctk.compiler.codegen.torchscript.torchscript_codegen import ts_compile
    from ctk.compiler.dispatch.autograd import (  # these two load torch's compiler parts
        Stages,
        dispatch,
    )
    from ctk.compiler.fx.copy import copy_graph_module
    from ctk.compiler.resilience import DISPATCH
    from ctk.compiler.rewriting.numbering import Numbering
    from ctk.toolkit.targets.aot_events import AotEvents
    from ctk.toolkit.targets.reporting import report

    if observer is None:
        plain = Stages(lambda _gm, _inputs: None, ts_compile, ts_compile, ts_compile)
        return dispatch(gm, example_inputs, plain)
    events = AotEvents("torchscript", observer)
    forward = events.compiler("forward", ts_compile)
    stages = Stages(events.joint, forward, events.compiler("backward", ts_compile), forward)
    captured = copy_graph_module(gm)
    observer.on_stage(StageRecord("captured", captured, tuple(example_inputs)))
    try:
        return dispatch(gm, example_inputs, stages, Numbering(observer))
    except Exception as error:
        report(observer, ErrorRecord(error, "captured", graph=captured), where=DISPATCH)
        raise


class TorchScript(Target):
    """torch.jit alone."""

    name = "torchscript"
    profiles_on_gpu = True

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        """Compile one captured graph with TorchScript.

        Raises:
            ConfigError: An option is unknown, or not a boolean.
            CodegenUnsupported: TorchScript cannot take a graph; names the node and the reason.
        """
        from ctk.toolkit.targets.torchscript_frozen import compile_frozen

        self.check_config(config)
        options = {**OPTIONS, **config}
        if options["freezing"] and not torch.is_grad_enabled():
            try:
                return compile_frozen(
                    gm,
                    example_inputs,
                    optimize_for_inference=options["optimize_for_inference"] is True,
                    observer=observer,
                )
            except CodegenUnsupported as error:
                log.info("not frozen, but compiled graph by graph: %s", error)
        return _compile_dispatched(gm, example_inputs, observer)

    def check_config(self, config: Options) -> None:
        """Raise `ConfigError` for an option that is unknown, or no boolean."""
        for key, value in config.items():
            if key not in OPTIONS:
                raise ConfigError(
                    f"target torchscript has no option {key!r}{nearest(key, OPTIONS)}; it has "
                    f"{', '.join(OPTIONS)}\n"
                    "next: the target ctk has more options, codegen=torchscript among them"
                )
            if not isinstance(value, bool):
                raise ConfigError(
                    f"option {key!r} of target torchscript: got {value!r}, not a boolean"
                )

    def freezes(self, config: Options) -> bool:
        return config.get("freezing", OPTIONS["freezing"]) is True


TARGET = TorchScript()
