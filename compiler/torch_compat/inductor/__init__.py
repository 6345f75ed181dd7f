"""Inductor: passes, options, lowerings, kernels, oneDNN."""
