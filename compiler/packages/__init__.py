"""Models and exported programs become packages."""
