"""The runnable script of a case: emitted, run and verified."""
