"""AOTAutograd, decompositions, partitioners and export in torch."""
