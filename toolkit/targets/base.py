"""The contract of a target: anything that compiles an FX graph and can be put under test."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.graph.loading import CannotTell

Compiled = Callable[..., object]
"""What a compile returns: called with the graph's inputs as positional arguments, returns the
graph's output.
"""


class CompileFn(Protocol):
    """How a target compiles."""

    def __call__(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Compiled: ...


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
    """Import what any compile of a captured graph imports."""
    inductor.preload_compiler(inductor=False)


@dataclass(frozen=True, slots=True)
class Trial:
    """An option at a value at which a target does less: is the failure gone with it?

    Attributes:
        option: Name of the option, as in a config.
        value: The value, one that JSON has.
        culprits: How the culprits are called that this leaves out, as far as that is known: the
            beginnings of `stage/name`.
        is_of_code: Whether it changes the generated code only.
        trace: Text that shows in generated code where it acts; "" if nothing does.
    """

    option: str
    value: object
    culprits: tuple[str, ...] = ()
    is_of_code: bool = False
    trace: str = ""


def no_trials(_config: Mapping[str, object]) -> Sequence[Trial]:
    """Return no candidates."""
    return ()


def no_passes(_config: Mapping[str, object]) -> Sequence[str]:
    """Return no passes."""
    return ()


def never(_config: Mapping[str, object]) -> bool:
    """Return False for every config."""
    return False


@dataclass(frozen=True, slots=True)
class Traits:
    """What the toolkit must know of a target beside how it compiles; known without loading it.

    Attributes:
        repro_backend: Called in a repro with the target's spec and the script's folder; returns
            what `torch.compile(backend=...)` takes. The script carries its source, so what it
            needs of ctk it imports inside. The default asks the toolkit for the target.
        needs: What a repro needs installed besides torch, for people; empty for nothing.
        preload: Imports what a compile imports, and runs no op: a process that is forked for each
            question calls it first.
        mode_options: Returns the options that a `mode` of torch.compile stands for; None: the
            target has no modes.
        takes_functions: Whether options that name a function must hold the function itself; else
            the target loads `place:function` on its own.
        effective: Returns the options that a compile with a config really has (variables of the
            environment may add some).
        defaults: Options that this toolkit sets unless the config does; a repro shows them.
        native: Returns the options that undo those of `defaults` which change what a program gets:
            random numbers that the target draws itself. A program that is watched runs with them.
        profiles_on_gpu: Whether the first call of a compiled graph on a GPU is another than the
            later ones (TorchScript profiles, then fuses), so that a check must not use it up.
        decided: Returns a config with what this process has measured and decided by it, so that
            another process, or another machine, decides the same.
        forced: Options that this toolkit sets whatever the config says, because a compile without
            them hides its failures; cases are saved without them.
        settings: Where torch keeps the target's options as settings of its own
            (`torch._inductor.config.`); empty for nowhere.
        disable_variable: The environment variable that leaves passes out, if there is one.
        freezes: Whether Dynamo gives a graph without gradients its parameters as attributes with
            these options, not as inputs, so that the target folds them.
        is_kept: Whether its compiles go into the persistent cache of ctk.
        passes: Returns the passes that run with a config and that its option `disable` can leave
            out, as `stage/name`.
        trials: Returns the options that may matter to a failure with a config, none of them at the
            value that it has already; likely ones first.
    """

    repro_backend: Callable[[str, Path], object] = toolkit_backend
    needs: str = "the package ctk"
    preload: Callable[[], None] = preload_captured
    mode_options: Callable[[str], Mapping[str, object]] | None = None
    takes_functions: bool = False
    is_kept: bool = False
    effective: Callable[[Mapping[str, object]], Mapping[str, object]] = dict[str, object]
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    native: Callable[[], Mapping[str, object]] = dict[str, object]
    profiles_on_gpu: bool = False
    decided: Callable[[Mapping[str, object]], Mapping[str, object]] = dict[str, object]
    forced: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: str = ""
    disable_variable: str = ""
    is_quick: bool = False
    freezes: Callable[[Mapping[str, object]], bool] = never
    passes: Callable[[Mapping[str, object]], Sequence[str]] = no_passes
    trials: Callable[[Mapping[str, object]], Sequence[Trial]] = no_trials


@dataclass(frozen=True, slots=True)
class Target:
    """A compiler under test.

    Attributes:
        name: The spec that users write and manifests store: `inductor`, `my_backends:fancy`.
        compile: Compiles one captured graph. May change `gm` in place: callers hand it a copy.
        check_config: Raises `ConfigError` for a key or value that the target does not know.
        traits: What else the toolkit must know of it.
    """

    name: str
    compile: CompileFn
    check_config: Callable[[Mapping[str, object]], None]
    traits: Traits = Traits()
