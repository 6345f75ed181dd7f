"""Templates of the emitted scripts (package data); toolkit/repro/script.py renders them."""
