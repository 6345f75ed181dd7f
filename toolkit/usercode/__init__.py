"""The user's own code: program files, names of functions, the source files that define them."""
