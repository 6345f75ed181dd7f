"""The reducer of programs: the smallest file that still fails, and its repro."""
