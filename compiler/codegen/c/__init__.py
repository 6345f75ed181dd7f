"""The C code generator: kernels of the loop IR as plain C, compiled by the system's compiler."""
