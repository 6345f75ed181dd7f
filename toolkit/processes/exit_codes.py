"""What the exit code of a user's command means: as `git bisect run` reads it.

0       good: the failure is not there
125     cannot tell
other   bad: also a signal
"""

import signal
from typing import Literal

Outcome = Literal["good", "bad", "cannot tell"]

CANNOT_TELL = 125


def outcome_of(code: int) -> Outcome:
    """Return what an exit code means; a negative one is the signal that ended the process."""
    return "good" if code == 0 else "cannot tell" if code == CANNOT_TELL else "bad"


def describe_exit(code: int) -> str:
    """Return how a process ended, for people: `exit code 3`, `signal SIGSEGV`."""
    return f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
