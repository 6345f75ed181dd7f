"""The `ctk` command: one file per command, and the table of them.

A command is a plain function that returns an `Answer`; it neither prints nor exits. `door.py` is
the one door through which every answer, error and interruption leaves, so that exit codes,
`--json` and the first line are the same for all.
"""
