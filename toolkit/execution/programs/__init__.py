"""Run whole programs in a warm process."""
