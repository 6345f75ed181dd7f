"""Packages: models and operators compiled ahead of time, for Python and C programs."""
