"""`ctk bisect-pass`: the guilty pass, then its rewrite, then the proof by counterfactual."""

from ctk.toolkit.cli.answer import Answer
from ctk.toolkit.cli.diagnose import answer_of_diagnosis
from ctk.toolkit.cli.options import IsolationOptions, OutOption, ResumeOption, SubjectOptions
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command


def bisect_pass(
    subject: SubjectOptions, out: OutOption, resume: ResumeOption, isolation: IsolationOptions
) -> Answer:
    """Find the guilty pass, rewrite and node.

    Proves it by compiling without that rewrite alone, and writes diagnosis.json. The case is not
    made smaller.
    """
    from ctk.toolkit.bisect_case import bisect

    with progress() as report:
        diagnosis = bisect(
            subject.subject,
            out=out.out,
            resume=resume.resume,
            say=report,
            **subject.keywords(),
            **isolation.keywords(),
        )
    return answer_of_diagnosis(diagnosis)


COMMAND = Command("bisect-pass", bisect_pass)
