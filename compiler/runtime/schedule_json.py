"""A schedule as JSON, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.runtime import functions
from ctk.compiler.runtime.functions import function_of
from ctk.compiler.runtime.steps import Allocation, Call, Launch, Schedule, Size, Step
from ctk.compiler.runtime.values import JSON, name_of, size_json, size_of, value_json, value_of


def schedule_json(schedule: Schedule) -> JSON:
    """Return a schedule as JSON.

    Raises:
        ArtifactError: It calls or holds what cannot be stored.
    """
    return {
        "inputs": list(schedule.inputs),
        "constants": dict(schedule.constants),
        "steps": [_step_json(step) for step in schedule.steps],
        "result": value_json(schedule.result),
    }


def schedule_of(data: JSON) -> Schedule:
    """Return the schedule of `schedule_json`'s JSON.

    Raises:
        ArtifactError: It is malformed, or calls what this process does not have.
    """
    try:
        return Schedule(
            tuple(map(name_of, data["inputs"])),
            tuple(map(_step_of, data["steps"])),
            value_of(data["result"]),
            {name_of(name): str(target) for name, target in data["constants"].items()},
        )
    except MALFORMED as error:
        raise ArtifactError(f"a stored schedule is malformed: {error!r}") from error


def _step_json(step: Step) -> JSON:
    if isinstance(step, Call):
        try:
            data: dict[str, JSON] = {"call": functions.name_of(step.function), "name": step.name}
            data["args"] = [value_json(each) for each in step.args]
            if step.kwargs:
                data["kwargs"] = {name: value_json(each) for name, each in step.kwargs.items()}
        except ArtifactError as error:
            raise ArtifactError(f"{step.name}: {error}") from error
        return data
    if isinstance(step, Size):
        return {"size": step.symbol, "of": step.source, "axis": step.axis}
    if isinstance(step, Launch):
        return {"launch": step.kernel, "buffers": [*step.buffers], "sizes": [*step.sizes]}
    return {
        "memory": step.name,
        "dtype": str(step.dtype).removeprefix("torch."),
        "shape": [size_json(each) for each in step.shape],
        "strides": [size_json(each) for each in step.strides],
        "device": str(step.device),
        "in": step.memory,
    }


def _step_of(data: JSON) -> Step:
    kind = next(iter(cast("Mapping[str, Any]", data)))
    read = _STEPS.get(kind)
    if read is None:
        raise ArtifactError(f"a stored schedule has a step {kind!r}, which this ctk does not know")
    return read(data)


def _call_of(data: JSON) -> Call:
    kwargs = {name_of(name): value_of(each) for name, each in data.get("kwargs", {}).items()}
    args = tuple(map(value_of, data["args"]))
    return Call(name_of(data["name"]), function_of(str(data["call"])), args, kwargs)


def _size_of(data: JSON) -> Size:
    axis = data["axis"]
    symbol, source = name_of(data["size"]), name_of(data["of"])
    return Size(symbol, source, None if axis is None else int(axis))


def _launch_of(data: JSON) -> Launch:
    buffers, sizes = (tuple(map(name_of, data[name])) for name in ("buffers", "sizes"))
    return Launch(int(data["launch"]), buffers, sizes)


def _allocation_of(data: JSON) -> Allocation:
    shape, strides = (tuple(map(size_of, data[name])) for name in ("shape", "strides"))
    dtype = value_of({"dtype": data["dtype"]})
    device = value_of({"device": data["device"]})
    memory = data["in"] and name_of(data["in"])
    return Allocation(name_of(data["memory"]), dtype, shape, strides, device, memory)


_STEPS: Mapping[str, Callable[[JSON], Step]] = {
    "call": _call_of,
    "size": _size_of,
    "launch": _launch_of,
    "memory": _allocation_of,
}
