"""Freeze an inference graph: parameters become constants, originals are discarded."""
