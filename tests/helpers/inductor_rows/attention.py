"""Rows of `fuse_attention.py`: its patterns by number."""

from functools import partial

import torch

from tests.helpers.attention_programs import INDUCTOR, Form
from tests.helpers.inductor_rows import Program, row


def _program(form: Form) -> Program:
    return form.run, form.inputs(torch.float32)


for each in INDUCTOR:
    row(
        f"fuse_attention._sfdp_pattern_{each.name.partition('_')[0]}",
        by="joint/fuse_attention",
        program=partial(_program, each),
        name=f"attention_{each.name}",
        seen_as=("fuse_attention.*",),  # without dropout the form is another one
    )

row("fuse_attention._sfdp_init", by="joint/fuse_attention", note="The tracing of the patterns.")
