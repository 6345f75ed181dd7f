"""A schedule as a C function.

    static int run_0_body(ctk_call* ctk, const ctk_value* inputs, ..., ctk_value* outputs) {
        DO(call, "aten::mm", "", ARGS(2, T(&inputs[0]), T(&weights[0])), GETS(1, GET(&v[0])));
        DO(empty, &v[1], CTK_FLOAT32, 2, (const int64_t[]){n_s0, 8}, (const int64_t[]){8, 1});
        kernel_relu((&v[1])->tensor.data, (&v[0])->tensor.data, n_s0);
        DROP(&v[0]);
        SHARE(&outputs[0], &v[1]);
        return 0;
    }

Values left at the return are dropped by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.packages.c_wrapper.body import Body, require_rank
from ctk.compiler.packages.c_wrapper.c_literals import (
    array_text,
    size_name,
    size_text,
    sizes_text,
    string_text,
)
from ctk.compiler.packages.c_wrapper.entries import CEntry, CValue, NotInC, dtype_code
from ctk.compiler.packages.c_wrapper.inline_calls import is_inline, print_inline
from ctk.compiler.packages.c_wrapper.library_calls import print_call
from ctk.compiler.packages.c_wrapper.variables import Number, Tensor
from ctk.compiler.runtime.c_kernels import fault_text
from ctk.compiler.runtime.python_code import last_uses
from ctk.compiler.runtime.steps import Allocation, Argument, Call, Launch, Ref, Size
from ctk.compiler.sizes.index import Index

_PARAMETERS = (
    "ctk_call* ctk, const ctk_value* inputs, const ctk_value* weights, const int64_t* symbols, "
    "{own}ctk_value* outputs"
)


def function_text(entry: CEntry, name: str, weights: Mapping[str, int]) -> str:
    """Return the function that runs an entry point.

    Raises:
        NotInC: A step cannot be expressed in C.
    """
    body = Body(entry, weights)
    for number, symbol in enumerate(entry.symbols):
        body.lines.append(f"const int64_t {size_name(symbol)} = symbols[{number}];")
    _print_steps(body)
    _print_results(body)
    lines = "\n".join(f"    {line}" for line in body.lines)
    return f"""\
static int {name}_body({_PARAMETERS.format(own="ctk_value* v, ")}) {{
{lines}
    return 0;
}}

int {name}({_PARAMETERS.format(own="")}) {{
    ctk_value v[{max(body.slots, 1)}] = {{{{{{0}}}}}};
    int failed = {name}_body(ctk, inputs, weights, symbols, v, outputs);
    for (int i = 0; i < {body.slots}; ++i) DROP(&v[i]);
    return failed;
}}"""


def calls_torch(entry: CEntry) -> bool:
    """Return whether an entry point calls operators of torch."""
    calls = (step for step in entry.schedule.steps if isinstance(step, Call))
    return not all(map(is_inline, calls))


def fault_function(code: KernelCode) -> str:
    """Return the function that reports the fault found by a check of a kernel."""
    texts = [fault_text(check, code.name, "%lld", "%lld") for check in code.checks]
    cases = "\n".join(
        f"        case {number}: format = {string_text(text)}; break;"
        for number, text in enumerate(texts, 1)
    )
    return f"""\
static int fault_of_{code.name}(ctk_call* ctk) {{
    int64_t fault[3];
    const char* format = "";
    read_last_fault(fault);
    switch (fault[0]) {{
{cases}
    }}
    return ctk->host->fail(ctk, CTK_ERROR_INDEX, format, (long long)fault[1], (long long)fault[2]);
}}"""


def _print_steps(body: Body) -> None:
    schedule = body.entry.schedule
    known = set(body.entry.symbols)
    dead = last_uses(schedule)
    for number, step in enumerate(schedule.steps):
        if isinstance(step, Launch):
            _print_launch(body, step)
        elif isinstance(step, Allocation):
            _print_allocation(body, step)
        elif isinstance(step, Call):
            (print_inline if is_inline(step) else print_call)(body, step)
        elif step.symbol not in known:
            known.add(step.symbol)
            _print_size(body, step)
        body.drop(dead.get(number, ()))


def _print_launch(body: Body, step: Launch) -> None:
    if not 0 <= step.kernel < len(body.entry.kernels):
        raise NotInC("its kernels are not in C")
    code = body.entry.kernels[step.kernel]
    passed = [f"({body.tensor(Ref(name))})->tensor.data" for name in step.buffers]
    passed += [size_name(symbol) for symbol in step.sizes]
    call = f"{code.name}({', '.join(passed)})"
    body.lines.append(
        f"if ({call}) return fault_of_{code.name}(ctk);" if code.checks else f"{call};"
    )


def _print_allocation(body: Body, step: Allocation) -> None:
    if step.device.type != "cpu":
        raise NotInC(f"{step.name} is on {step.device}")
    require_rank(step.shape)
    shaped = f"{dtype_code(step.dtype)}, {sizes_text(step.shape)}, {array_text(step.strides)}"
    if step.memory:
        base = body.tensor(Ref(step.memory))
        body.lines.append(f"DO(view, {body.new(step.name)}, {base}, {shaped}, 0);")
    else:
        body.lines.append(f"DO(empty, {body.new(step.name)}, {shaped});")


def _print_size(body: Body, step: Size) -> None:
    source = body.places[step.source]
    if step.axis is not None:
        text = f"({body.tensor(Ref(step.source))})->tensor.sizes[{step.axis}]"
    elif isinstance(source, Number):
        text = source.text
    else:
        raise NotInC(f"{step.source}, which determines the size {step.symbol}, is not a number")
    body.lines.append(f"const int64_t {size_name(step.symbol)} = {text};")


def _print_results(body: Body) -> None:
    result = body.entry.schedule.result
    is_several = isinstance(result, (list, tuple))
    results = cast("Sequence[Argument]", result) if is_several else [result]
    for number, (value, each) in enumerate(zip(body.entry.outputs, results, strict=False)):
        _print_result(body, f"&outputs[{number}]", each, value)


def _print_result(body: Body, out: str, result: Argument, value: CValue) -> None:
    place = body.find(result) if isinstance(result, Ref) else None
    if isinstance(place, Tensor):
        body.lines.append(f"SHARE({out}, {place.text});")
        return
    if isinstance(place, Number) and not place.is_storage_offset:
        number = place.text
    elif isinstance(result, (int, Index)):
        number = size_text(result)
    else:
        raise NotInC(f"the output {value.name} is {result!r}, which C cannot give")
    body.lines.append(f"if (give_number(ctk, {out}, {number})) return 1;")
