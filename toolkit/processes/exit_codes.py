"""Exit codes of a user's command, read as `git bisect run` does.

0       good: no failure
125     cannot tell
other   bad: also a signal
"""

import signal
from typing import Literal

Outcome = Literal["good", "bad", "cannot tell"]

CANNOT_TELL = 125


def read_outcome(code: int) -> Outcome:
    """Return the outcome for an exit code; a negative one is the signal that ended the process."""
    return "good" if code == 0 else "cannot tell" if code == CANNOT_TELL else "bad"


def describe_exit(code: int) -> str:
    """Return an exit code as text: `exit code 3`, `signal SIGSEGV`."""
    return f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
