"""The user's own code: program files, names of functions, source files."""
