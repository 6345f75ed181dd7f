"""The runtime library of emitted scripts: compare, run and judge; needs torch only."""
