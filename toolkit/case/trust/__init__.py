"""Trust: what a stranger's case would run, import or set, and what is safe."""
