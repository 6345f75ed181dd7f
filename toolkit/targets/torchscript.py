"""The target `torchscript`: each graph that AOTAutograd makes, compiled with `ts_compile` alone.

None of our passes run, so a failure is TorchScript's or the dispatch's; `ctk` with
`codegen=torchscript` is the whole pipeline. It takes no options.
"""

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import ErrorRecord, Observer, StageRecord
from ctk.toolkit.targets.base import Compiled, Target, Traits


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[object],
    *,
    config: Mapping[str, object],
    observer: Observer | None,
) -> Compiled:
    """Compile one captured graph with TorchScript.

    Raises:
        ConfigError: There are options.
        CodegenUnsupported: TorchScript cannot take a graph; says which node and why.
    """
    from ctk.compiler.codegen.torchscript.codegen import ts_compile
    from ctk.compiler.dispatch import Stages, dispatch  # these two load torch's compiler parts
    from ctk.compiler.fx.copy import copy_graph_module
    from ctk.compiler.resilience import DISPATCH
    from ctk.toolkit.targets.aot_events import AotEvents
    from ctk.toolkit.targets.reporting import report

    _check_config(config)
    if observer is None:
        plain = Stages(lambda _gm, _inputs: None, ts_compile, ts_compile, ts_compile)
        return dispatch(gm, example_inputs, plain)
    events = AotEvents("torchscript", observer)
    forward = events.compiler("forward", ts_compile)
    stages = Stages(events.joint, forward, events.compiler("backward", ts_compile), forward)
    captured = copy_graph_module(gm)
    observer.on_stage(StageRecord("captured", captured, tuple(example_inputs)))
    try:
        return dispatch(gm, example_inputs, stages)
    except Exception as error:
        report(observer, ErrorRecord(error, "captured", graph=captured), where=DISPATCH)
        raise


def _check_config(config: Mapping[str, object]) -> None:
    """Raise `ConfigError` for any option."""
    if config:
        raise ConfigError(
            f"target torchscript takes no options, got {', '.join(sorted(config))}\n"
            "next: the target ctk has options, codegen=torchscript among them"
        )


TARGET = Target("torchscript", _compile, _check_config, Traits(profiles_on_gpu=True))
