"""Rows of the passes for communication; `tests/unit/passes/test_collectives.py` shows ours."""

from tests.helpers.inductor_rows import row

row(
    "post_grad.fuse_ddp_communication",
    by="forward/bucket_reductions",
    note="For DDP's Python reducer, on both sides.",
)
row(
    "post_grad.bucket_all_gathers",
    by="forward/bucket_gathers",
    note="Off by default, on both sides.",
)
row(
    "post_grad.bucket_reduce_scatters",
    "post_grad.bucket_all_reduce",
    by="forward/bucket_reductions",
    note="Off by default, on both sides.",
)
row(
    "post_grad.overlap_scheduling",
    by="forward/overlap_collectives",
    note="Off by default, on both sides; ours estimates no times.",
)
row(
    "post_grad.deduplicate_wait_tensors",
    by="forward/eliminate_common_subexpressions",
    since="2.14",
)
row(
    "post_grad.dedup_reduce_scatters",
    "fsdp.*",
    note="Off by default; no graph of FSDP2 that Dynamo captures holds two equal scatters.",
)
row(
    "post_grad.decomp_comms",
    "post_grad.replace_collectives_with_low_contention",
    note="Off by default; for symmetric memory of several GPUs.",
    gpu=True,
)
row(
    "micro_pipeline_tp.micro_pipeline_tp_pass",
    note="Off by default; for symmetric memory of several GPUs.",
    gpu=True,
)
