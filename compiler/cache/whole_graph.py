"""The persistent cache around one compile: from a captured graph to its callable.

    cache = cache_of(graph, inputs, config, passes)         None: this compile is not cached
    run = cache.run(compile_, made)                          loaded, or compiled and stored

1. **A hit traces nothing.** The entry has the compiled graphs as data (`runtime/compiled_graph.py`)
   and the wrappers of AOTAutograd around them (`torch_compat/aot/aot_runtime.py`).
2. **Of the processes that need it at once, one compiles.** The others wait for its entry. Dynamo's
   lock is always taken first, so no two threads wait for each other.
3. **A compile may hold for some sizes only.** So a key with symbolic sizes has a row of entries,
   each with its guards; the first whose guards hold is taken, and its guards are noted for the
   current sizes, as that compile did. An entry may also record that Dynamo had to trace again.
4. **The cache breaks nothing.** A compile that cannot be stored runs as ever, and the reason is
   noted (`ctk cache why`); an entry that does not load is dropped and made again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.artifacts.container import Bytes, Container
from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.key import Passes, key_parts
from ctk.compiler.cache.portable_entries import record
from ctk.compiler.cache.store import Store, open_store
from ctk.compiler.cache.stored_compile import (
    GRAPH,
    Made,
    json_of,
    load_stored,
    read_json,
    stored_form,
)
from ctk.compiler.errors import MALFORMED, ArtifactError, Uncacheable
from ctk.compiler.fx.outputs import restore_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import Stage, first_line
from ctk.compiler.options.config import Config
from ctk.compiler.phases import phase
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm
from ctk.compiler.torch_compat.dynamo.dynamo_api import FloatRestart
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fake import shape_guards
from ctk.compiler.torch_compat.inductor.inductor_api import compile_lock

log = logging.getLogger("ctk.cache")

Run = Callable[..., object]

VARIANTS = 8
"""Limit of the entries with different guards under one key with symbolic sizes."""

_CANNOT_LOAD = (ArtifactError, NoDataForm, *MALFORMED)


@dataclass(frozen=True, slots=True)
class WholeGraph:
    """The cache of one compile.

    Attributes:
        row: The keys of its entries: one, or several with other guards. A compile may replace
            symbols by numbers, so they are counted before it.
        inputs: Its example inputs, as a trace sees them.
    """

    store: Store
    key: Key
    row: Sequence[Key]
    graph: GraphModule
    inputs: Sequence[object]
    config: Config

    def run(self, compile_: Callable[[], Run], made: Callable[[], Made]) -> Run:
        """Return the callable of an entry; if there is none, compile and store it.

        Args:
            made: Called after it: returns the results to store.
        """
        with phase("cache", "load"):
            found = self.found()
        if found is not None:
            return found
        with compile_lock(), self.store.lock(self.key):
            found = self.found()
            if found is not None:
                return found
            before = FloatRestart.names()
            try:
                with aot_runtime.capture(self.graph, self.inputs) as recorded:
                    run = compile_()
            except FloatRestart.exception():
                self._put({"restart": sorted(FloatRestart.names() - before)}, {}, {})
                raise
            with phase("cache", "store"):
                self.keep(recorded, made())
            return run

    def found(self) -> Run | None:
        """Return the callable of the first entry whose guards hold for these inputs, or None."""
        for key in self.row:
            container = self.store.get(key)
            if container is None:
                return None
            try:
                run = self._load(container)
            except _CANNOT_LOAD as error:
                self.store.drop(key, f"an entry cannot be loaded: {first_line(error)}")
                return None
            if run is not None:
                record(self.store, key)
                return run
        return None

    def keep(self, recorded: aot_runtime.Recorded, made: Made) -> None:
        """Store the results of a compile, or note why they cannot be stored."""
        try:
            require = partial(_require_first_choice, self.config)
            data, blobs = stored_form(recorded, made, require)
        except (ArtifactError, NoDataForm, Uncacheable) as error:
            _note_bypass(self.store, first_line(error), self.key)
        else:
            self._put(data, blobs, self._about(made))

    def _put(self, data: Any, blobs: Mapping[str, Bytes], about: Mapping[str, str | int]) -> None:
        free = next((key for key in self.row if not self.store.has(key)), None)
        if free is None:
            _note_bypass(self.store, f"it has {len(self.row)} entries for other sizes", self.key)
            return
        if self.store.put(free, {GRAPH: json_of(data), **blobs}, about):
            record(self.store, free)

    def _load(self, container: Container) -> Run | None:
        """Return the callable of an entry; None if its guards do not hold.

        Raises:
            BaseException: Dynamo must trace again (`FloatRestart`), as the compile did.
        """
        data = read_json(container.members)
        if "restart" in data:
            FloatRestart.ask(data["restart"], shape_guards.known_names(self.inputs))
            return None
        wrappers: Any = data["wrappers"]
        if not shape_guards.fits(wrappers["guards"], self.inputs):
            return None
        run = load_stored(data, container.members, self.graph)
        if not shape_guards.replay(wrappers["guards"], self.inputs):
            return None
        restore = restore_of(self.graph)
        return run if restore is None else lambda *args: restore(run(*args))

    def _about(self, made: Made) -> dict[str, str | int]:
        devices = {each.device.type for each in self.inputs if isinstance(each, torch.Tensor)}
        return {
            "nodes": len(self.graph.graph.nodes),
            "inputs": len(placeholders(self.graph)),
            "stages": ", ".join(made.lowered),
            "device": ", ".join(sorted(devices)) or "cpu",
            "torch": torch.__version__,
        }


def cache_of(
    graph: GraphModule, inputs: Sequence[object], config: Config, passes: Passes
) -> WholeGraph | None:
    """Return the cache of a compile; None if it is off, or the compile cannot be stored.

    Raises:
        ConfigError: A `CTK_CACHE*` variable has a value that is not allowed.
    """
    store = open_store()
    if store is None:
        return None
    try:
        key = Key(key_parts(graph, inputs, config, passes))
    except Uncacheable as error:
        _note_bypass(store, first_line(error), None)
        return None
    row = [key]
    inputs = fake.inputs_of_trace(inputs)
    if shape_guards.symbols_of(inputs):
        row = variants(key)
    return WholeGraph(store, key, row, graph, inputs, config)


def variants(key: Key) -> list[Key]:
    """Return the keys of the entries of a compile with symbolic sizes."""
    return [Key({**key.parts, "variant": str(number)}) for number in range(VARIANTS)]


def _note_bypass(store: Store, reason: str, key: Key | None) -> None:
    log.info("not kept in the cache: %s", reason)
    digest, parts = ("", None) if key is None else (key.digest, key.parts)
    store.notes.tell("bypassed", digest, reason, parts)


def _require_first_choice(config: Config, graph: CompiledGraph, stage: Stage) -> None:
    """Raise unless the first generator compiled a graph: it may succeed next time."""
    wanted = ("c", "triton") if config.codegen == "auto" else (config.codegen,)
    if graph.generator not in wanted:
        raise Uncacheable(f"no generator of {' or '.join(wanted)} took the graph {stage}")
