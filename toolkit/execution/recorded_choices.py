"""Record the measured decisions of a compile in its case.

A bisection, its children and the repro then decide as the failing compile did, on any machine.
"""

from dataclasses import replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.targets import target_of


def record_decisions(case: Case) -> Case:
    """Return a case whose config holds the decisions that its target measured in this process."""
    config = target_of(case.target).decide(case.config)
    return case if config == case.config else replace(case, config=config)
