"""The pass contract: Pass, Rewriter, numbering, fuel, running and verifying."""
