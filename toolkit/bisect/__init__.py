"""Bisection: the pass, rewrite or kernel that causes a failure, and the proof."""

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.bisect.culprit_search import find_culprit
from ctk.toolkit.bisect.options import confirm_options, options_that_matter

__all__ = ["Culprit", "Search", "confirm_options", "find_culprit", "options_that_matter"]
