"""Passes on the functional ATen graph of forward and backward together (or of inference)."""
