"""The contract of a target: a compiler of FX graphs that can be put under test."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from torch.fx import GraphModule

from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import Observer
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.graph.loading import CannotTell

Inputs = Sequence[object]
Options = Mapping[str, object]
Compiled = Callable[..., object]
"""A compiled graph: called with its inputs as positional arguments, returns its output."""


def toolkit_backend(target: str, folder: Path) -> Callable[..., Any]:
    """Return the compiler under test: a target of ctk's toolkit, as a Dynamo backend."""
    try:
        from ctk.toolkit.targets import resolve_target
    except ImportError as error:
        raise CannotTell(f"the target {target} is missing (pip install ctk): {error}") from error
    found = resolve_target(target)

    def backend(gm: Any, example_inputs: Any, *, options: Any = None) -> Any:
        return found.compile(gm, example_inputs, config=options or {}, observer=None)

    return backend


def preload_captured() -> None:
    """Import the modules that every compile of a captured graph imports."""
    inductor.preload_compiler(inductor=False)


@dataclass(frozen=True, slots=True)
class Trial:
    """An option at a value at which a target does less: does the failure go away?

    Attributes:
        value: A JSON value.
        culprits: Known prefixes of `stage/name` of the culprits that this leaves out.
        is_of_code: Whether it changes the generated code only.
        trace: Text in generated code that shows the option at work; empty if there is none.
    """

    option: str
    value: object
    culprits: tuple[str, ...] = ()
    is_of_code: bool = False
    trace: str = ""


class Target(Protocol):
    """A compiler under test: a subclass overrides the members that differ from these defaults.

    Members other than `compile` and `check_config` answer without loading the compiler.

    Attributes:
        name: The spec that users write and manifests store: `inductor`, `my_backends:fancy`.
        needs: The module that a repro needs besides torch; empty for none.
        takes_functions: Whether options that name a function must hold the function itself; else
            the target loads `place:function` on its own.
        is_kept: Whether its compiles go into the persistent cache of ctk.
        is_quick: Whether a compile takes so little time that questions need no shortcuts.
        has_modes: Whether `mode` of torch.compile stands for some of its options.
        exports: Whether it compiles a whole program that torch.export captures, without gradients
            and guards; `repro_backend` then makes a backend for `export_model`.
        profiles_on_gpu: Whether the first call of a compiled graph on a GPU differs from later ones
            (TorchScript profiles, then fuses), so that a check must not use it up.
        defaults: Options that the toolkit sets unless the config does; a repro shows them.
        forced: Options that the toolkit sets over the config, because a compile without them hides
            its failures; cases are saved without them.
        settings: Prefix of the target's options among torch's settings (`torch._inductor.config.`);
            empty for none.
        lowerings: The passes that lower a graph, as a `Veto` takes them; empty for a target that
            reports no stages of its pipeline.
        repro_backend: The function that makes the backend of a repro, which carries its source. It
            gets the target's spec and the script's folder, and returns the argument of
            `torch.compile(backend=...)`. Its imports of ctk stand inside.
    """

    name: str
    needs: str = "ctk"
    takes_functions: bool = False
    is_kept: bool = False
    is_quick: bool = False
    has_modes: bool = False
    exports: bool = False
    profiles_on_gpu: bool = False
    defaults: Options = MappingProxyType({})
    forced: Options = MappingProxyType({})
    settings: str = ""
    lowerings: str = ""
    repro_backend: Callable[[str, Path], object] = staticmethod(toolkit_backend)

    def compile(
        self, gm: GraphModule, example_inputs: Inputs, *, config: Options, observer: Observer | None
    ) -> Compiled:
        """Compile one captured graph.

        Args:
            gm: A copy, which may change in place.
            example_inputs: One value per placeholder, real or fake.
            observer: Gets the events of the compile; fewer events make a coarser answer.
        """
        ...

    def steers_dynamo(self, error: BaseException) -> bool:
        """Return whether Dynamo restarts, or runs the graph in eager, for an exception."""
        return not self.exports and isinstance(error, dynamo.control_flow())

    def check_config(self, config: Options) -> None:
        """Refuse options that the target does not know.

        Raises:
            ConfigError: A key or a value is unknown.
        """
        if config:
            options = ", ".join(sorted(config))
            raise ConfigError(f"target {self.name!r} takes no options, got {options}")

    def preload(self) -> None:
        """Import the modules of a compile, and run no op: a process calls this before it forks."""
        preload_captured()

    def mode_options(self, mode: str) -> Options:
        """Return the options that a `mode` of torch.compile stands for; see `has_modes`."""
        return {}

    def effective(self, config: Options) -> Options:
        """Return the options of a compile with a config, with those of the environment."""
        return dict(config)

    def native(self) -> Options:
        """Return options that undo the `defaults` which change a program's results.

        These are random numbers that the target draws itself; a watched program runs with them.
        """
        return {}

    def decide(self, config: Options) -> Options:
        """Return a config with the decisions of this process's measurements.

        Another process, or another machine, then decides the same.
        """
        return dict(config)

    def freezes(self, config: Options) -> bool:
        """Return whether the target folds the parameters of a graph without gradients.

        Dynamo then gives the graph its parameters as attributes, not as inputs.
        """
        return False

    def passes(self, config: Options) -> Sequence[str]:
        """Return the passes that the option `disable` can leave out, as `stage/name`."""
        return ()

    def configured_passes(self, config: Options) -> Collection[str]:
        """Return the names of the passes that a config brings, or gives options."""
        return ()

    def spell_disable(self, names: Sequence[str]) -> str:
        """Return the setting of the environment that leaves passes out; empty if there is none.

        Args:
            names: Places of culprits, as `stage/name`; a part that is not a pass has no setting.
        """
        return ""

    def trials(self, config: Options) -> Sequence[Trial]:
        """Return options that may matter to a failure, likely ones first, each at another value."""
        return ()
