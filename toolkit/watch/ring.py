"""The ring: the last calls of each watched graph, as cases on disk.

A call is written before it is made, so that a call that ends its process (a segmentation fault, a
kill) is on disk as well. Each is a whole case with the values of all its inputs, weights included:

    DUMP/train_4711_0/ring/graph0_call998/     ctk repro, diagnose, ... take it as it is
    DUMP/train_4711_0/ring/graph0_call999/
    DUMP/train_4711_0/ring/.files/             their files by content (case/linked_case.py)

Costs per call: a digest of all values, and a write of the changed ones.
In training these are all weights; in inference, and between the steps of an optimizer, the inputs.
On a GPU the program waits until its values are on the host. Disk: at most `RING_NBYTES`, or half of
the quota. Of a call above that, the largest weights are left out and become synthetic.

A graph that holds state of its own (the step of an optimizer) is written whole at each call. The
first error of the disk ends the ring with one log line; a graph whose inputs no case can hold is
not kept. At a clean end of the process the ring is removed.
"""

import dataclasses
import logging
import os
import shutil
import sys
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path

import torch

from ctk.compiler.errors import CaseError, count_of
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import PARTIAL, make_folder, raise_storage_errors
from ctk.toolkit.case.formats.tensors import Keep, keep_all
from ctk.toolkit.case.inputs import named_inputs
from ctk.toolkit.case.linked_case import (
    ContentFiles,
    PackedCall,
    adopt_case,
    pack_linked,
    write_linked,
)
from ctk.toolkit.case.manifest import INPUTS, Manifest
from ctk.toolkit.case.store import save_case
from ctk.toolkit.execution.private_copy import held_state
from ctk.toolkit.watch.dump import run_guarded
from ctk.toolkit.watch.quota import folder_nbytes

logger = logging.getLogger("ctk")

RING_NBYTES = 4 << 30
"""Limit of a ring without `CTK_QUOTA`."""

FILES = ".files"


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call on disk.

    Attributes:
        digests: Of its values.
        nbytes: Of its own files, which no other call shares.
    """

    graph: str
    number: int
    folder: Path
    digests: Collection[str]
    nbytes: int = 0


@dataclass(slots=True, eq=False)
class Ring:
    """The last calls of the graphs of one process; thread-safe, and never raises."""

    folder: Path
    most: int
    limit_nbytes: int = RING_NBYTES
    files: ContentFiles = field(init=False)
    _kept: list[KeptCall] = field(default_factory=list[KeptCall])
    _manifests: dict[str, Manifest] = field(default_factory=dict[str, Manifest])
    _packed: dict[str, PackedCall] = field(default_factory=dict[str, PackedCall])
    _refused: set[str] = field(default_factory=set[str])
    _cut: set[str] = field(default_factory=set[str])
    _ended: bool = False
    _closed: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def open(cls, folder: Path, most: int, quota_nbytes: int | None) -> "Ring":
        """Return an empty ring that is closed at the end of this process.

        Args:
            quota_nbytes: Of the dump folder, of which the ring takes half.
        """
        limit_nbytes = RING_NBYTES if quota_nbytes is None else quota_nbytes // 2
        ring, owner = cls(folder, most, limit_nbytes), os.getpid()

        def close() -> None:
            if os.getpid() == owner:
                ring.close(is_clean=not is_ending_in_an_exception())

        Finalize(None, close, exitpriority=0)
        return ring

    def __post_init__(self) -> None:
        self.files = ContentFiles(self.folder / FILES)

    def keep(self, case: Case, case_folder: Path, number: int) -> None:
        """Write a call that is about to be made, and remove those beyond the limits.

        Args:
            case: With the inputs of the call, which are only read.
            case_folder: The saved case of the graph.
            number: Of the call of this graph, from 1.
        """
        with self._lock, outside_dispatch_modes(), torch.no_grad():
            if self._ended or case.name in self._refused:
                return
            done = run_guarded(
                lambda: self._keep(case, case_folder, number), f"the ring in {self.folder}"
            )
            self._ended = not done

    def calls_of(self, graph: str) -> list[KeptCall]:
        """Return the kept calls of a graph, the newest first."""
        with self._lock:
            return [call for call in reversed(self._kept) if call.graph == graph]

    def close(self, *, is_clean: bool) -> None:
        """Remove the ring at a clean end; else log the newest call. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            newest = self._kept[-1] if self._kept else None
            self._closed = self._ended = True
        if is_clean:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif newest is not None:
            logger.warning(
                "ctk: the last calls of each graph are kept in %s; the newest: %s",
                self.folder,
                command_on("repro", newest.folder),
            )

    def _keep(self, case: Case, case_folder: Path, number: int) -> None:
        folder = self.folder / f"{case.name}_call{number}"
        make_folder(self.files.folder)
        try:
            kept = self._write(case, case_folder, folder, number)
        except CaseError as error:
            self._refused.add(case.name)
            logger.warning("ctk: the ring keeps no calls of %s: %s", case.name, first_line(error))
            return
        self._kept.append(kept)
        own = [call for call in self._kept if call.graph == case.name]
        for call in own[: -self.most]:
            self._remove(call)
        while self._nbytes() > self.limit_nbytes and len(self._kept) > 1:
            self._remove(self._kept[0])

    def _write(self, case: Case, case_folder: Path, folder: Path, number: int) -> KeptCall:
        named = dataclasses.replace(case, name=folder.name)
        if held_state(case.graph):
            save_case(named, folder, inputs="full")
            return KeptCall(case.name, number, folder, (), folder_nbytes(folder))
        if case.name not in self._manifests:
            self._manifests[case.name] = adopt_case(case_folder, self.files)
        like = self._manifests[case.name]
        packed = pack_linked(named, self._choose(named), self._packed.get(case.name))
        self._packed[case.name] = PackedCall(packed.inputs, {INPUTS: packed.contents[INPUTS]})
        files = packed.contents.values()
        while self._kept and self._nbytes() + self.files.missing_nbytes(files) > self.limit_nbytes:
            self._remove(self._kept[0])
        digests = write_linked(named, folder, like, packed, self.files)
        return KeptCall(case.name, number, folder, digests)

    def _choose(self, case: Case) -> Keep:
        """Return which values of a call fit into the limit: inputs first, then small weights."""
        tensors = {n: v for n, v in named_inputs(case).items() if isinstance(v, torch.Tensor)}
        if sum(tensor.nbytes for tensor in tensors.values()) <= self.limit_nbytes:
            return keep_all
        names = sorted(tensors, key=lambda name: (name in case.roles, tensors[name].nbytes))
        rest, kept = self.limit_nbytes, set[str]()
        for name in names:
            if tensors[name].nbytes <= rest:
                kept.add(name)
                rest -= tensors[name].nbytes
        graph = case.name.rpartition("_call")[0]
        if graph not in self._cut:
            self._cut.add(graph)
            logger.warning(
                "ctk: a call of %s has more values than the %d bytes of the ring: it keeps %s of"
                " %d, and statistics of the others; more: CTK_QUOTA=SIZE",
                graph,
                self.limit_nbytes,
                count_of(len(kept), "tensor"),
                len(tensors),
            )
        return lambda name, _tensor, _count: name in kept

    def _nbytes(self) -> int:
        return self.files.nbytes + sum(call.nbytes for call in self._kept)

    def _remove(self, call: KeptCall) -> None:
        """Remove a call; a kill in between leaves a folder that is marked as partial."""
        self._kept.remove(call)
        gone = call.folder.with_name(f".{call.folder.name}{PARTIAL}")
        with raise_storage_errors(call.folder):
            call.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        self.files.release(call.digests)


def is_ending_in_an_exception() -> bool:
    """Return whether this process, at its end, has raised to its top level."""
    return sys.exception() is not None or getattr(sys, "last_value", None) is not None
