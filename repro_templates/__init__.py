"""Templates of the emitted scripts (package data). toolkit/repro.py renders them; nothing here runs."""
