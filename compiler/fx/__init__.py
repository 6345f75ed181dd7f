"""FX graphs: walk, copy, compare, rebuild, describe, print. Knows no pass and no pipeline."""
