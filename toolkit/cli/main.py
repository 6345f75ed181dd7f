"""The entry point of `ctk`: handles the signals that end a command, then imports the shell."""

from ctk.toolkit.processes.interrupts import handle_interrupts, ignore_interrupts


def main() -> None:
    """Run the `ctk` command line; nothing is imported from the working folder by its place."""
    handle_interrupts()
    try:
        from ctk.toolkit.cli.app import run_line

        run_line()
    except KeyboardInterrupt as interrupt:  # outside of a command
        ignore_interrupts()
        from ctk.toolkit.cli.app import leave_interrupted

        leave_interrupted(interrupt)
