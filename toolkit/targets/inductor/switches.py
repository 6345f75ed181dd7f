"""Parts of Inductor below the passes that have an option, as passes that can be vetoed.

They are the passes `lowered/NAME` of each graph. The observer is asked right before the graph is
lowered; a vetoed part is off until the graph is compiled. A part that is off already, or unknown to
this torch, is skipped. A part whose option name would be obscure has a name of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_lowering


@dataclass(frozen=True, slots=True)
class Switch:
    """An option as a pass.

    Attributes:
        off: Its value without it.
        trace: Text that shows in generated code where this acted; "" when nothing does.
        is_memory: Whether it decides which values share memory.
    """

    name: str
    option: str
    off: object
    trace: str = ""
    is_memory: bool = False


SWITCHES = (
    Switch("buffer_reuse", "allow_buffer_reuse", off=False, trace="# reuse", is_memory=True),
    Switch("inplace_buffers", "inplace_buffers", off=False, trace="in_out_ptr", is_memory=True),
    Switch("vectorization", "cpp.simdlen", off=1, trace="at::vec"),
    Switch("padding", "comprehensive_padding", off=False),
    Switch("output_strides", "keep_output_stride", off=False),
    Switch("layout_optimization", "layout_optimization", off=False),
    Switch("reorder_for_peak_memory", "reorder_for_peak_memory", off=False),
    Switch("loop_ordering", "loop_ordering_after_fusion", off=False),
    Switch("split_reductions", "split_reductions", off=False),
    Switch("persistent_reductions", "triton.persistent_reductions", off=False, trace="tl."),
)


def switches_on() -> Iterator[Switch]:
    """Yield the parts that are on, in order."""
    known = inductor.known_options()
    for switch in SWITCHES:
        if switch.option in known and inductor_lowering.option(switch.option) != switch.off:
            yield switch
