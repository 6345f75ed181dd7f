"""The reducer: search for the smallest case or program with the same failure.

`driver.minimize` is the entry. Steps (`steps/`) propose edits, edits are data (`edits.py`), one
driver searches (`search.py`), asks the oracle and remembers every answer (`problem.py`).
"""
