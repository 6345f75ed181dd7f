"""Programs with unusual nodes become cases that come back from disk as they were."""

import pytest

from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from tests.helpers.hard_programs import Hard, hard_programs
from tests.helpers.kept import KEPT, how_kept

pytestmark = [
    # torch says these of its own code
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
PROGRAMS = hard_programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
def test_what_dynamo_captures_is_kept(program: Hard) -> None:
    request = CaseOptions(target="eager", backward=program.backward)
    cases = load_cases(program.function, program.inputs, request)
    assert {how_kept(case) for case in cases} == {KEPT}
