"""The folder of an operation, on disk as it grows.

OUT/journal.jsonl     every answer, at once, for `--resume` (`oracle/answers/journal.py`)
OUT/diagnosis.json    the diagnosis so far: from the first failure on, after each step
OUT/ctk-bug.txt       tracebacks of internal errors that the operation has survived
The operation chooses the folders of cases.
"""
