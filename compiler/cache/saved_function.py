"""A compiled graph that Dynamo saves with `torch.compile(f, backend="ctk").aot_compile(...)`.

    compiled = torch.compile(f, backend="ctk", fullgraph=True).aot_compile(((x,), {}))
    compiled.save_compiled_function(path)
    torch.compiler.load_compiled_function(open(path, "rb"))       in another process: no compile

Dynamo saves guards and byte code, and asks the backend for the bytes of the compiled graph. They
are a sealed file in the form of an entry of the cache (`stored_compile.py`).
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.fx import Graph, GraphModule

from ctk.compiler.artifacts.container import open_container, write
from ctk.compiler.cache.stored_compile import (
    GRAPH,
    Made,
    Run,
    json_of,
    load_stored,
    read_json,
    stored_form,
)
from ctk.compiler.errors import ArtifactError, Uncacheable
from ctk.compiler.fx.outputs import restore_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.aot.aot_compile import serializable_callable, without_autograd_cache
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm

_MAGIC = "ctk-function"
_FILE = "saved-function"


class SavedFunction(serializable_callable()):
    """A compiled graph, and the data to save it.

    Attributes:
        run: The callable, of the graph's inputs.
        data: Returns the file's bytes. Raises `ArtifactError` if the compile cannot be saved.
    """

    def __init__(self, run: Run, data: Callable[[], bytes]) -> None:
        self.run, self.data = run, data

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    @classmethod
    def serialize_compile_artifacts(cls, fn: "SavedFunction") -> bytes:
        """Return the bytes of a compiled graph.

        Raises:
            ArtifactError: It cannot be saved; the message has the reason.
        """
        return fn.data()

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> "SavedFunction":
        """Return the compiled graph of some bytes.

        Raises:
            ContainerError: They were changed or damaged.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            path.write_bytes(data)
            members = open_container(path, _MAGIC).members
        stored = read_json(members)
        return cls(load_stored(stored, members, _stub(stored["inputs"])), lambda: data)


def compile_to_save(
    graph: GraphModule,
    inputs: Sequence[object],
    compile_: Callable[[], Run],
    made: Callable[[], Made],
) -> SavedFunction:
    """Return a graph compiled by `compile_`, as a function that Dynamo can save."""
    with without_autograd_cache(), aot_runtime.capture(graph, inputs) as recorded:
        run = compile_()

    def data() -> bytes:
        try:
            _require_plain(graph)
            stored, blobs = stored_form(recorded, made())
        except (NoDataForm, Uncacheable) as error:
            raise ArtifactError(f"this function cannot be saved: {first_line(error)}") from error
        stored["inputs"] = len(placeholders(graph))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            write(path, {GRAPH: json_of(stored), **blobs}, magic=_MAGIC)
            return path.read_bytes()

    return SavedFunction(run, data)


def _require_plain(graph: GraphModule) -> None:
    held = aot_runtime.parameters_of(graph)
    if held:
        raise Uncacheable(f"its graph holds tensors: {', '.join(held)}")
    if restore_of(graph) is not None:
        raise Uncacheable("its graph returns nested values")


def _stub(inputs: int) -> GraphModule:
    """Return a graph with a number of inputs, in place of a captured one."""
    graph = Graph()
    graph.output(tuple(graph.placeholder(f"input_{place}") for place in range(inputs)))
    return GraphModule({}, graph)
