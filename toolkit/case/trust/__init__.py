"""Trust: which code of a foreign case would run, which options it sets, and which are safe."""
