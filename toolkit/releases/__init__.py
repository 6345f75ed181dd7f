"""Ask one script of several releases of torch or Triton, each in an environment of its own.

Problem: a program compiled correctly with the last release and fails with this one. Which
release broke it, and which release repaired it? A question costs an installation of gigabytes,
which can fail, be interrupted, or fill the disk.

Idea: the question is a standalone script (`toolkit/repro`), which needs torch alone and answers by
its exit code, so that ctk itself is never installed. Each release has one environment, a folder
that is whole only if its stamp was written (environments.py). A question is one run of the script
by the interpreter of an environment, with caches of its own (script_runs.py). The search sees three
answers: good, bad, cannot tell (`search/boundaries.py`, `find_change`).

    pip_commands.py    the releases that pip lists, with dates; the only module that runs pip
    interpreters.py    the versions that an interpreter has
    installed_files.py the files of an installed distribution, compared with its RECORD
    environments.py    environments on disk: build, reuse, lock, remove
    script_runs.py     one question

Triton is asked apart from torch: an overlay, a folder with that release of Triton alone, stands
before the packages of the environment. So the question whether Triton alone is the culprit costs
one more package, not one more torch.

Why not containers: they need rights that users may not have. Why not `pip install --target` for
torch as well: torch finds libraries of other packages by their place in `site-packages`.
"""
