"""Repro scripts: emit, run and verify them."""
