"""The pass contract: Pass, Rewriter, numbering and fuel, running and verifying a stage."""
