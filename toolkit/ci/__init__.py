"""Continuous integration: outcomes of tests, reports for CI systems, and baselines."""
