"""Compile functions of Triton, each once in a process, and once on a machine.

A model has many equal layers, whose kernels differ in names alone. So the identity of a function is
its source with its own names numbered and without comments, the functions of `device.py` that it
may call with their constants, the types and alignments of its arguments, the device, the options
and Triton itself.

    def kernel_add_7(add_7, x_3): ...    ->    def $0($1, $2): ...

Equal functions share the machine code of the first, and its name, which profilers show. The code is
kept in Triton's cache folder under that identity: one file, where Triton keeps one for each stage.

Source: `triton/compiler/compiler.py` (`compile`), whose key has the source with its names.
"""

import hashlib
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

from ctk.compiler.codegen.numbered_names import number_names
from ctk.compiler.errors import MALFORMED
from ctk.compiler.posix import hold_in_forks
from ctk.compiler.torch_compat.gpu import triton_launch
from ctk.compiler.torch_compat.gpu.cuda_launch import MachineCode

LIMIT = 1024
"""How many binaries stay for later compiles."""

_HEAD = re.compile(r"^def (\w+)\((.*)\):$", re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<dropped>\"{3}.*?\"{3}|\#[^\n]*)     # docstrings, comments
    |'[^'\n]*'|"[^"\n]*"                       # other strings stay
    |(?<![\w.])(?P<word>[A-Za-z_]\w*)\b(?!=[^=])  # not an attribute, not a keyword argument
    """,
    re.VERBOSE | re.DOTALL,
)

_kept: OrderedDict[str, MachineCode] = OrderedDict()
"""The binaries used last, by identity."""

_pending: dict[tuple[int, str], "Future[MachineCode]"] = {}
"""Binaries in the making, by process and identity: a fork does not have the thread."""

_lock = threading.Lock()
hold_in_forks(_lock)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of Triton, for a kind of device.

    Attributes:
        types: Of its arguments, as Triton writes them.
        aligned: For each argument, whether it is a multiple of 16.
        capability: Of the device, 90 for 9.0.
    """

    source: str = field(repr=False)
    name: str
    types: Sequence[str]
    aligned: Sequence[bool]
    capability: int
    options: Mapping[str, object]

    def identity(self) -> str:
        """Return a digest: equal only for functions whose machine code does the same."""
        tools = triton_launch.fingerprint(self.capability, tuple(self.options.items()))
        text = canonical(self.source), _device_functions()
        parts = (*text, tools, tuple(self.types), tuple(self.aligned))
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def canonical(source: str) -> str:
    """Return the source of a module of one function: its names numbered, without comments."""
    head = _HEAD.search(source)
    assert head is not None, source
    return number_names(source, {head[1], *head[2].split(", ")}, _TOKEN)


def machine_code(function: Function) -> MachineCode:
    """Return the machine code of a function, compiled if no equal one was; waits for a thread."""
    identity = function.identity()
    place = os.getpid(), identity
    with _lock:
        if identity in _kept:
            _kept.move_to_end(identity)
            return _kept[identity]
        future = _pending.get(place)
        is_ours = future is None
        if future is None:
            future = _pending[place] = Future[MachineCode]()
    if is_ours:
        _complete(future, function, place)
    return future.result()


def forget() -> None:
    """Drop all binaries of this process."""
    with _lock:
        _kept.clear()


def _complete(future: "Future[MachineCode]", function: Function, place: tuple[int, str]) -> None:
    """Set the result of a future: the machine code of a function, or the exception."""
    identity = place[1]
    try:
        code = _from_disk(identity) or _compile(function, identity)
    except BaseException as error:
        with _lock:
            del _pending[place]
        future.set_exception(error)
        return
    with _lock:
        del _pending[place]
        _kept[identity] = code
        while len(_kept) > LIMIT:
            _kept.popitem(last=False)
    future.set_result(code)


def _compile(function: Function, identity: str) -> MachineCode:
    file = f"<ctk {function.name} {identity[:16]}>"
    made = triton_launch.function_of(function.source, function.name, file)
    code = triton_launch.compile_function(
        made, function.types, function.aligned, function.capability, function.options
    )
    facts = json.dumps([code.name, code.shared, code.threads, code.hidden])
    triton_launch.keep_file(identity, facts.encode() + b"\n" + code.cubin)
    return code


def _from_disk(identity: str) -> MachineCode | None:
    found = triton_launch.find_file(identity)
    if found is None:
        return None
    facts, _, cubin = found.partition(b"\n")
    try:
        name, shared, threads, hidden = json.loads(facts)
        return MachineCode(str(name), cubin, int(shared), int(threads), int(hidden))
    except MALFORMED:
        return None


def _device_functions() -> str:
    """Return the functions that kernels call and their constants, which a test may replace."""
    module = vars(import_module("ctk.compiler.codegen.triton.device"))
    return repr(
        [
            (name, getattr(value, "src", None) or repr(value))
            for name, value in module.items()
            if not name.startswith("__") and not isinstance(value, ModuleType)
        ]
    )
