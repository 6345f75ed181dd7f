"""A schedule as Python: the function that runs it in this process.

    def forward(_ctk_inputs):
        x, w, = _ctk_inputs
        _ctk_inputs.clear()
        x_fitted, w_fitted, = (x, w, ) if _ctk_fits(x, w) else _ctk_fit(x, w)
        x = w = None
        mm = _ctk_mm(x_fitted, w_fitted)
        x_fitted = w_fitted = None
        relu = _ctk_empty((4, 8, ), (8, 1, ), _ctk_float32)
        _ctk_launch_0(relu.data_ptr(), mm.data_ptr())
        mm = None
        return (relu, )

On a GPU the function first makes the device of its memory the current one, if it is not.
It is printed as text, because a call of a graph is few statements and each instruction counts. Each
value is dropped after its last use. Names of ctk begin with `_ctk_`: a node may be called `empty`.
"""

import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal, cast

import torch

from ctk.compiler.runtime.input_check import InputCheck, input_fits
from ctk.compiler.runtime.steps import (
    Allocation,
    Argument,
    Call,
    Launch,
    Ref,
    Schedule,
    Size,
    Step,
    leaves,
    names_read,
)
from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import python_text
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.process import strided_tensors

Takes = Literal["address", "tensor"]
"""The argument of a launch for a buffer."""


class PythonCode:
    """Python that runs a schedule.

    Args:
        constants: The values of the schedule's constants, by attribute.
        takes: The argument of launches for a buffer.
        is_boxed: It takes one list with all inputs, and empties it; else each input, then the size
            symbols that no input determines.

    Attributes:
        function: The function. `bind` sets its kernels.
    """

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        constants: Mapping[str, object],
        takes: Takes,
        *,
        is_boxed: bool = True,
        symbols: Sequence[str] = (),
    ) -> None:
        self.schedule = schedule
        self._takes: Takes = takes
        self._values = constants
        self._launches: Sequence[Callable[..., None]] = ()
        self._scope: dict[str, Any] = {}
        self._globals: dict[object, str] = {}
        self._locals: dict[str, str] = {}
        known = (step.symbol for step in schedule.steps if isinstance(step, Size))
        self._taken = {"max", "min", *symbols, *known}
        self._device = _device_of(schedule) if is_boxed else None
        self._constants = {
            name: self._global(constants[target], target)
            for name, target in schedule.constants.items()
        }
        lines = [*self._beginning(schedule, is_boxed=is_boxed, name=name, symbols=symbols)]
        fits = input_fits(schedule)
        lines += self._fits([*fits.values()])
        dead = last_uses(schedule)
        for number, step in enumerate((None, *schedule.steps), -1):
            if step is not None and getattr(step, "name", None) not in fits:
                lines.append(self._step(step))
            unused = [self._local(each) for each in dead.get(number, ())]
            if unused:
                lines.append(f"{' = '.join(unused)} = None")
        lines.append(f"return {self._text(schedule.result)}")
        head, *body = lines
        self.text = "\n    ".join((head, *body))
        exec(compile(self.text, f"<ctk {name}>", "exec"), self._scope)  # generated above
        self.function: FunctionType = self._scope[name]
        self._scope["_ctk_self"] = self.function
        self.function.__module__ = "ctk_kernels"

    def bind(self, launches: Sequence[Callable[..., None]]) -> None:
        """Set the kernels of the function, by number."""
        self._launches = launches
        self._scope.update({f"_ctk_launch_{n}": each for n, each in enumerate(launches)})

    def with_schedule(self, schedule: Schedule) -> "PythonCode":
        """Return the code of a part of this schedule, with the same constants and kernels."""
        part = PythonCode(schedule, "part", self._values, self._takes)
        part.bind(self._launches)
        return part

    def _beginning(
        self, schedule: Schedule, *, is_boxed: bool, name: str, symbols: Sequence[str]
    ) -> list[str]:
        inputs = [self._local(each) for each in schedule.inputs]
        if not is_boxed:
            return [f"def {name}({', '.join((*inputs, *symbols))}):"]
        lines = [f"def {name}(_ctk_inputs):"]
        if self._device is not None:
            number, on = self._device.index, self._global(strided_tensors.on_device, "on_device")
            current = self._global(strided_tensors.current_device(), "current_device")
            lines.append(
                f"if {current}() != {number}: return {on}({number}, _ctk_self, _ctk_inputs)"
            )
        if inputs:
            lines.append(f"{', '.join(inputs)}, = _ctk_inputs")
            lines.append("_ctk_inputs.clear()")
        return lines

    def _fits(self, steps: Sequence[Call]) -> list[str]:
        """Return the line that fits inputs."""
        if not steps:
            return []
        InputCheck(steps, self._scope)
        made = "".join(f"{self._local(step.name)}, " for step in steps)
        given = ", ".join(self._text(step.args[0]) for step in steps)
        return [f"{made}= ({given}, ) if _ctk_fits({given}) else _ctk_fit({given})"]

    def _step(self, step: Step) -> str:
        if isinstance(step, Call):
            return f"{self._local(step.name)} = {self._call(step)}"
        if isinstance(step, Size):
            source = self._value(step.source)
            return (
                f"{step.symbol} = {source if step.axis is None else f'{source}.size({step.axis})'}"
            )
        if isinstance(step, Launch):
            suffix = ".data_ptr()" if self._takes == "address" else ""
            passed = [f"{self._value(buffer)}{suffix}" for buffer in step.buffers]
            return f"_ctk_launch_{step.kernel}({', '.join((*passed, *step.sizes))})"
        return f"{self._local(step.name)} = {self._allocation(step)}"

    def _call(self, call: Call) -> str:
        if call.function is operator.getitem and isinstance(call.args[1], int):
            return f"{self._text(call.args[0])}[{call.args[1]}]"
        given = [*map(self._text, call.args)]
        given += [f"{name}={self._text(value)}" for name, value in call.kwargs.items()]
        return f"{self._global(call.function)}({', '.join(given)})"

    def _allocation(self, step: Allocation) -> str:
        shape, strides = self._text(step.shape), self._text(step.strides)
        dtype = self._global(step.dtype)
        if step.memory:
            view = self._global(strided_tensors.in_memory_of)
            return f"{view}({self._value(step.memory)}, {shape}, {strides}, {dtype})"
        if step.device.type == "cpu" or step.device == self._device:
            made_by = strided_tensors.empty_on_current(step.device.type)
            return f"{self._global(made_by, 'empty')}({shape}, {strides}, {dtype})"
        empty, device = self._global(strided_tensors.empty, "empty_on"), self._global(step.device)
        return f"{empty}({shape}, {strides}, {dtype}, {device})"

    def _text(self, argument: Argument) -> str:
        if isinstance(argument, Ref):
            return self._value(argument.name)
        if isinstance(argument, Index):
            return python_text(argument)
        if isinstance(argument, (list, tuple)):
            parts = "".join(f"{self._text(each)}, " for each in cast("list[Argument]", argument))
            return f"[{parts}]" if isinstance(argument, list) else f"({parts})"
        if isinstance(argument, Mapping):
            pairs = cast("Mapping[object, Argument]", argument).items()
            return f"{{{', '.join(f'{key!r}: {self._text(value)}' for key, value in pairs)}}}"
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return f"{self._global(slice)}({', '.join(map(self._text, parts))})"
        if argument is None or type(argument) in (bool, int, str):
            return repr(argument)
        if type(argument) is float and abs(argument) < float("inf"):
            return repr(argument)
        return self._global(argument)

    def _value(self, name: str) -> str:
        return self._constants.get(name) or self._local(name)

    def _local(self, name: str) -> str:
        """Return the variable of a value: an input and a size symbol may have one name."""
        if name not in self._locals:
            text = name.replace(".", "__")
            while keyword.iskeyword(text) or text in self._taken:
                text += "_"
            self._taken.add(text)
            self._locals[name] = text
        return self._locals[name]

    def _global(self, value: object, hint: str = "") -> str:
        """Return the name of a value that the text cannot spell."""
        key: object = value if isinstance(value, (torch.dtype, torch.device)) else id(value)
        if key not in self._globals:
            is_operator = bool(operators.kind_of(value))
            said = hint or ("" if is_operator else getattr(value, "__name__", "")) or str(value)
            word = re.sub(r"\W+", "_", said.removeprefix("torch."))
            name = f"_ctk_{word}"
            while name in self._scope:
                name = f"_ctk_{word}_{len(self._scope)}"
            self._globals[key] = name
            self._scope[name] = value
        return self._globals[key]


def _device_of(schedule: Schedule) -> torch.device | None:
    """Return the GPU on which a schedule makes memory; None for none, and for several."""
    made = [step.device for step in schedule.steps if isinstance(step, Allocation)]
    found = {device for device in made if device.type == "cuda" and str(device) != "cuda"}
    return found.pop() if len(found) == 1 else None


def last_uses(schedule: Schedule) -> dict[int, list[str]]:
    """Return the values that each step uses last, by the number of the step.

    Under -1 are inputs that no step needs.
    """
    kept = {leaf.name for leaf in leaves(schedule.result) if isinstance(leaf, Ref)}
    kept.update(schedule.constants)
    last = dict.fromkeys(schedule.inputs, -1)
    for number, step in enumerate(schedule.steps):
        last.update(dict.fromkeys(names_read(step), number))
        if isinstance(step, (Call, Allocation)):
            last.setdefault(step.name, number)
    dead: dict[int, list[str]] = {}
    for name, number in last.items():
        if name not in kept:
            dead.setdefault(number, []).append(name)
    return dead
