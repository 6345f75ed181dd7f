"""Passes on an inference graph whose parameters have become constants."""
