"""Templates of the emitted scripts (package data); toolkit/repro_script.py renders them."""
