"""The child process of child_capture.py: reads `CaptureArguments` from stdin.

Each case is saved before its graph is called, and once more if the call shows that it has a
backward pass. The exit status is 0, `LOST_CUDA` if a kernel of the eager call has broken CUDA, and
1 for errors that the parent reproduces and reports.
"""

import json
import sys
from pathlib import Path

from ctk.compiler.errors import CtkError, LostAccelerator
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import save_case
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.importers.child_capture import CaptureArguments
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.processes.accelerator import LOST_CUDA


def main() -> int:
    """Capture the program named on stdin; return the exit status."""
    asked = CaptureArguments(**json.loads(sys.stdin.buffer.read()))

    def keep(case: Case) -> None:
        folder = Path(asked.folder, case.name)
        save_case(case, folder, inputs="full", overwrite=True, portable=False)

    try:
        capture_cases(
            load_program(asked.spec),
            target=asked.target,
            config=asked.config,
            backward=asked.backward,
            dynamic=asked.dynamic,
            keep=keep,
        )
    except LostAccelerator:
        return LOST_CUDA
    except CtkError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
