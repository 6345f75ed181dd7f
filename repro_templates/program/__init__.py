"""Run a user's program in eager and compiled, and compare its calls."""
