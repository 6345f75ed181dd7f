"""Run a case: eager, in float64, compiled; always on copies."""
