"""The table of Inductor's passes and patterns beside ours, with a program that shows each.

A row names functions and passes of `torch/_inductor/fx_passes` (`joint_graph.pointless_view`, as
the Inductor target reports them), and the passes of ctk that serve the same programs, or the
reason why there is none. `tests/repo/inductor_names.py` reads the names of the installed torch.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.targets.inductor.target import TARGET as INDUCTOR

Program = tuple[Callable[..., object], Sequence[object]]
Options = Mapping[str, object]

FILES = (
    "pre_grad",
    "split_cat",
    "batches",
    "joint",
    "attention",
    "post_grad",
    "freezing",
    "distributed",
)


@dataclass(frozen=True)
class Row:
    """Passes or patterns of Inductor, and what serves the same programs here.

    Attributes:
        theirs: Their names: `split_cat.merge_splits`.
        ours: Passes of ctk by stage (`pre_grad/simplify_torch_split_cat`), or parts of the pipeline
            that are no passes (`lowering`, `dispatch`).
        note: Why there is none, or how it differs.
        program: Returns a function or module and its inputs.
        name: Of the program, for tests.
        config: Options of ctk.
        their_config: Options of Inductor.
        train: Whether the program is run forward and backward.
        gpu: Whether Inductor does it on a GPU only.
        theirs_fires: Whether it does something for the program.
        seen_as: The names under which it does, if they are others.
        since: The first release of torch with it, if that is after 2.13.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...] = ()
    note: str = ""
    program: Callable[[], Program] | None = None
    name: str = ""
    config: Options = field(default_factory=dict[str, object])
    their_config: Options = field(default_factory=dict[str, object])
    train: bool = False
    gpu: bool = False
    theirs_fires: bool = True
    seen_as: tuple[str, ...] = ()
    since: str = ""


ROWS: list[Row] = []


def shows(*theirs: str, by: str | tuple[str, ...], **more: Any) -> Callable[..., Any]:
    """Add a row whose program is the decorated function."""

    def add(program: Callable[[], Program]) -> Callable[[], Program]:
        row(*theirs, by=by, program=program, name=program.__name__, **more)
        return program

    return add


def row(*theirs: str, by: str | tuple[str, ...] = (), **more: Any) -> None:
    """Add a row."""
    ROWS.append(Row(theirs, (by,) if isinstance(by, str) else by, **more))


def table() -> Sequence[Row]:
    """Return all rows, in the order of the files that define them."""
    for name in FILES:
        import_module(f"{__name__}.{name}")
    return ROWS


def passes_that_fire(row: Row, target: str) -> set[str]:
    """Compile and run the program of a row for a target; return the passes with rewrites."""
    assert row.program is not None
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, inputs = row.program()
    recorder = Recorder(keep_rewrites=True)

    def backend(gm, example_inputs):
        if target == "ctk":
            return compile_fx(gm, example_inputs, row.config, recorder)
        config = dict(row.their_config)
        return INDUCTOR.compile(gm, example_inputs, config=config, observer=recorder)

    compiled = torch.compile(function, backend=backend)
    # Dynamo passes parameters as constants by the setting of the process, not by an option.
    freezes = torch._inductor.config.patch(freezing="freezing" in row.their_config)
    with torch.set_grad_enabled(row.train), freezes:
        results = compiled(*inputs)
    if row.train:
        sum(each.sum() for each in _floats(results)).backward()
    return {str(p.id).partition("#")[0] for p in recorder.log.passes() if p.rewrites or p.changed}


def fires(name: str, fired: Collection[str]) -> bool:
    """Return whether a pass or pattern of Inductor is among those with rewrites.

    The Inductor target names a pattern by file and function, a pass by itself.
    """
    wanted = (name, name.rpartition(".")[2], f"{name}.*")
    found = [each.partition("/")[2] for each in fired]
    return any(fnmatchcase(each, pattern) for each in found for pattern in wanted)


def _floats(results: object) -> Iterator[Tensor]:
    each = results if isinstance(results, (tuple, list)) else (results,)
    return (r for r in each if isinstance(r, Tensor) and r.requires_grad)
