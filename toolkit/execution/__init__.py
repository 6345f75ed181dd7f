"""Run a case or a program: eager, in float64, compiled; always on copies."""
