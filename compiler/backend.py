"""The Dynamo backend `ctk`: `torch.compile(model, backend="ctk", options={...})`."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from ctk.compiler.cache.portable_entries import register
from ctk.compiler.errors import InstallError
from ctk.compiler.options.environment import read_environment
from ctk.compiler.options.inductor_options import mode_options

if TYPE_CHECKING:
    from torch.fx import GraphModule

register()  # before `load_cache_artifacts`, which may precede the first compile

HOOKS_GROUP = "ctk.hooks"

Backend = Callable[..., Callable[..., object]]


def ctk(
    gm: "GraphModule",
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Compile a graph that Dynamo captured.

    With `CTK_DUMP`, `CTK_CHECK`, `CTK_CHECK_EVERY`, `CTK_CHECK_WHEN` or `CTK_RING` the entry point
    `environment` of group `ctk.hooks` compiles, and observes the compile; the toolkit registers it.

    Args:
        gm: Captured graph.
        example_inputs: One value per placeholder.
        options: Options of `Config` for this compile, or of Inductor with the same meaning.
        mode: A mode of torch.compile, which stands for some options (`inductor_options.py`).

    Raises:
        ConfigError: An option, a variable or the mode is not allowed.
        UnsupportedPlatform: On Windows.
    """
    from ctk.compiler.pipeline import compile_fx, require_supported_platform

    require_supported_platform()
    options = {**mode_options(mode), **(options or {})}
    if read_environment().wants_hooks:
        return _hooks()("ctk")(gm, example_inputs, options=options)
    return compile_fx(gm, example_inputs, options)


def _hooks() -> Callable[[str], Backend]:
    points = entry_points(group=HOOKS_GROUP, name="environment")
    if not points:
        raise InstallError(
            "CTK_DUMP, CTK_CHECK, CTK_CHECK_EVERY, CTK_CHECK_WHEN or CTK_RING is set, but no entry "
            "point of group ctk.hooks is installed; install the distribution (pip install ctk), or "
            "unset the variable"
        )
    return cast("Callable[[str], Backend]", next(iter(points)).load())
