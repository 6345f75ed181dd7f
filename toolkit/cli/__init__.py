"""The `ctk` command: commands, and the shell around them.

A command is a plain function that returns an `Answer`; it neither prints nor exits. Every
answer, error and interruption leaves through `shell/entry.py`, so that exit codes, `--json` and the
first line are the same for all.
"""
