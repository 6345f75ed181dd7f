"""The folder of an operation, on disk as it grows: begun, gone on with, survived.

OUT/journal.jsonl     every answer, at once: what `--resume` goes on from (`oracle/answers/journal.py`)
OUT/diagnosis.json    what is known so far: from the moment the failure was seen, after each step
OUT/ctk-bug.txt       the traceback of an error of ours that the operation has survived
and the cases, where the operation says.
"""
