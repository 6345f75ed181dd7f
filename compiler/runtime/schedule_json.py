"""A schedule as JSON, and back. The first key of a step is its kind: call, size, launch, memory."""

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.records import (
    INTEGER,
    TEXT,
    Codec,
    Json,
    mapping,
    optional,
    record,
    renamed,
    sequence,
    union,
)
from ctk.compiler.runtime import functions
from ctk.compiler.runtime.steps import Allocation, Call, Launch, Schedule, Size
from ctk.compiler.runtime.values import DEVICE, DTYPE, NAME, SIZE, VALUE


def schedule_json(schedule: Schedule) -> Json:
    """Return a schedule as JSON.

    Raises:
        ArtifactError: It calls or holds a value that cannot be stored.
    """
    return _SCHEDULE.write(schedule)


def schedule_of(data: Json) -> Schedule:
    """Return the schedule of `schedule_json`'s JSON.

    Raises:
        ArtifactError: It is malformed, or calls an operator that this process does not have.
    """
    try:
        return _SCHEDULE.read(data)
    except MALFORMED as error:
        raise ArtifactError(f"a stored schedule is malformed: {error!r}") from error


def _write_call(step: Call) -> Json:
    try:
        return _CALL_RECORD.write(step)
    except ArtifactError as error:
        raise ArtifactError(f"{step.name}: {error}") from error


_MEMORY = Codec(str, lambda name: name and NAME.read(name))
_FUNCTION = Codec(functions.name_of, lambda name: functions.function_of(TEXT.read(name)))

_CALL_RECORD = record(
    Call,
    function=renamed("call", _FUNCTION),
    name=NAME,
    args=sequence(VALUE),
    kwargs=renamed("kwargs", mapping(VALUE, NAME), omitted={}),
)
_CALL = Codec(_write_call, _CALL_RECORD.read)
_SIZE = record(
    Size, symbol=renamed("size", NAME), source=renamed("of", NAME), axis=optional(INTEGER)
)
_LAUNCH = record(
    Launch, kernel=renamed("launch", INTEGER), buffers=sequence(NAME), sizes=sequence(NAME)
)
_ALLOCATION = record(
    Allocation,
    name=renamed("memory", NAME),
    dtype=DTYPE,
    shape=sequence(SIZE),
    strides=sequence(SIZE),
    device=DEVICE,
    memory=renamed("in", _MEMORY),
)
_STEP = union(
    lambda data: next(iter(data), None),
    {
        "call": (Call, _CALL),
        "size": (Size, _SIZE),
        "launch": (Launch, _LAUNCH),
        "memory": (Allocation, _ALLOCATION),
    },
)
_SCHEDULE = record(
    Schedule,
    inputs=sequence(NAME),
    constants=mapping(TEXT, NAME),
    steps=sequence(_STEP),
    result=VALUE,
)
