"""The operations of the library: check, bisect, minify, diagnose, diff, repro, cache."""
