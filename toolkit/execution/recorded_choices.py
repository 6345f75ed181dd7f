"""What a compile has measured and decided becomes part of its case.

So a bisection, its children and the repro decide as the failing compile did, on any machine.
"""

from dataclasses import replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.targets import traits_of


def with_decisions(case: Case) -> Case:
    """Return a case whose config says what its target has decided by measuring in this process."""
    config = traits_of(case.target).decided(case.config)
    return case if config == case.config else replace(case, config=config)
