"""Sealed files and the machine that they were made for."""
