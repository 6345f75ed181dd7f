"""The reducer: the smallest case that fails in the same way.

`driver.minimize` is the entry. Steps (`steps/`) propose edits, edits are data (`edits.py`), one
driver searches (`search.py`), asks the oracle and remembers every answer (`problem.py`).
"""
