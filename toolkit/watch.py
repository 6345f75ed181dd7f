"""Watch one compile and its calls: save the case first, dump each event, check the first call.

The order is what makes a crash useful: the captured graph is on disk before the compiler sees it,
and each event is written as it arrives. A failure is announced with the commands that take it
further, its case folder is marked, and `on_failure` decides what the program gets:

* `raise`: the exception, or a `MiscompileError` for wrong values.
* `fallback`: one log line, and from then on the captured graph in eager.
* `warn`: a Python warning; eager after an exception, the compiled result for wrong values.

A failing call may have written half of its results into its inputs. For the first call they are put
back before eager takes over (which costs one clone of the inputs, weights included); later calls
raise in every mode.
"""

import dataclasses
import logging
import shlex
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.fx import GraphModule

from compiler import torch_compat
from compiler.errors import MiscompileError
from compiler.graph_copy import copy_graph_module
from compiler.observe import ErrorRecord, first_line
from toolkit.capture import hinted
from toolkit.case import Case
from toolkit.clone import clone_inputs
from toolkit.dump import DumpWriter, guarded, write_text
from toolkit.first_call import check_first_call, error_signature
from toolkit.graph_json import describe_dynamic
from toolkit.log import Event, Recorder
from toolkit.modes import capture_modes
from toolkit.oracle.verdict import Signature
from toolkit.session import Failure, Session
from toolkit.store import save_case
from toolkit.targets.base import Compiled, Target

logger = logging.getLogger("ctk")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compiled, and by whom.

    Attributes:
        target: The compiler.
        config: Its options as the program gave them; may hold functions.
        saved_config: The options as JSON values, for the case.
        sources: The user's files that target and options name.
        importable: Whether another process can find the target by its name.
    """

    target: Target
    config: Mapping[str, object]
    saved_config: Mapping[str, object] = field(default_factory=dict[str, object])
    sources: tuple[Path, ...] = ()
    importable: bool = True


def compile_watched(
    session: Session, subject: Subject, gm: GraphModule, example_inputs: Sequence[object]
) -> Compiled:
    """Compile one graph under watch; what it returns checks its first call and guards the others.

    Args:
        session: The process's books and options.
        subject: Target and options.
        gm: The captured graph; given to the compiler as it is, after a private copy was made.
        example_inputs: One value per placeholder, real or symbolic.

    Raises:
        Exception: What the compiler raised, with `on_failure="raise"`.
    """
    watch = _open(session, subject, gm, example_inputs)
    try:
        compiled = subject.target.compile(
            gm, example_inputs, config=subject.config, observer=watch.recorder
        )
    except torch_compat.dynamo_control_flow():  # Dynamo starts over, skips, or breaks the graph
        shutil.rmtree(watch.folder, ignore_errors=True)
        raise
    except Exception as error:
        watch.failed(error_signature(error, compiling=True, where=watch.where), error)
        if session.options.on_failure == "raise":
            raise
        watch.take_over(f"{type(error).__name__} while compiling: {first_line(error)}")
        return watch.case.graph.forward
    finally:
        session.keep_quota()
    return watch.guard(compiled)
