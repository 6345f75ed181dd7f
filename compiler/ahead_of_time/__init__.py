"""Compile ahead of time: models and exported programs become packages."""
