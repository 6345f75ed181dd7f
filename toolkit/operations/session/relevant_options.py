"""The options of the target that matter to a failure, asked about last."""

from dataclasses import replace

from ctk.toolkit.bisect import confirm_options, options_that_matter
from ctk.toolkit.case.case import Case
from ctk.toolkit.operations.session.running_operation import Operation


def ask_options(run: Operation, smallest: Case) -> bool:
    """Record the options that matter to the smallest case and to the whole; False after Ctrl-C.

    Args:
        run: Has the whole case; its search gets the options.
        smallest: Asked about first, as its compiles cost least; may be the whole case.
    """
    assert run.found is not None
    search, case = run.found.search, run.found.case
    try:
        culprit = search.culprit if search.confirmed else None
        found = options_that_matter(smallest, run.oracle, run.say, culprit=culprit)
        if case is not None and found.effects:
            found = confirm_options(case, found, run.oracle, run.say)
    except KeyboardInterrupt:
        return False
    except Exception as error:
        run.record_errors("the search for options that matter", error)
        return True
    if found.left:
        said = f"{found.left} options were not asked about: {found.questions} compiles is the limit"
        run.record_problems(said)
    run.write(search=replace(search, options=found.effects, option_compiles=found.questions))
    return True
