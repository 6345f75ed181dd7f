"""The C wrapper of a package: schedules and their kernels as one shared library for C programs."""
