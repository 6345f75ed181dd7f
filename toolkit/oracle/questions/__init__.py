"""Judges of a case: the comparison with eager, measurements, commands and functions of the user."""
