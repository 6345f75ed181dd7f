"""FX graphs: walk, copy, compare, rebuild, describe, print; knows no pass."""
