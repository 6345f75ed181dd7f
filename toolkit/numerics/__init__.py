"""Tolerances, errors and the comparison of results."""
