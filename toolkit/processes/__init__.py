"""Child processes: start, supervise, find and end them.

The problem
-----------
A debugger of compilers runs programs that crash, hang, take all memory, fork daemons and break CUDA
for the rest of their process. None of that may end ctk, lose the best result so far, or leave a
process or folder behind. Each question ("does this candidate still fail?") should still cost
milliseconds, although `import torch` and Inductor cost seconds and 290 MB.

The idea: a zygote
------------------
A *warm server* (warm.py) imports torch once and runs no operator: no thread, no CUDA context, so
that it is safe to fork. Each question is answered by a *fork* of it (forks.py), which shares all
that was imported and starts in milliseconds. A crash is the exit status of that fork. With several
jobs, the workers are themselves forks of one more server, the *zygote* (Android's word for it).

    ctk (supervisor) --fork--> ctk (working half)            supervise.py; notes: link.py
                                 | Popen, pipes
                                 v
                               zygote     imports torch once, forks a worker per job
                                 | fork
                                 v
                               worker     reads questions, forks a child, watches time and memory
                                 | fork
                                 v
                               child      leads a process group; compiles, runs and judges the case
                                 | Popen
                                 v
                               g++, ptxas, a daemon of the user's program

An example: the compiled program of one candidate hangs in a kernel, with `--timeout 60`.

1. The worker selects on the pipe of the child and on its own stdin. After 60 s (plus the time for
   which the child had no core, tree.py) it kills the process group of the child, then all processes
   that descend from the worker: a daemon that left the group is still a descendant, because the
   worker adopts orphans (`PR_SET_CHILD_SUBREAPER`).
2. The answer is `Verdict.TIMEOUT`. The next question forks the next child, in about 5 ms.
3. Ctrl-C instead: only ctk receives it, since servers and children lead groups of their own. ctk
   closes the stdin of the worker, which ends its child and itself; after 5 s its group is killed.
4. `kill -9` of ctk instead: the working half, forked children and a server during an import die
   with their parent (`PR_SET_PDEATHSIG`); otherwise a server reads the end of its stdin and ends.
   The temporary folder remains. Its name and `CTK_OWNER` in the environment of each process name
   the dead owner; the next run ends and removes both (scratch.py, `sweep`).

Three ways to find a process, from cheap to thorough: its *group* (groups.py); its *ancestors*, read
from `/proc` (tree.py); a *mark* in its environment, for a daemon whose ancestors have ended.

Limits hold for a whole tree: memory counts anonymous and shared pages (memory.py;
`ulimit -v` would count the terabytes that CUDA reserves), and a deadline counts only time in which a core was free.

Why not otherwise
-----------------
* `multiprocessing` reports a dead worker as `BrokenProcessPool` without the signal, kills no
  grandchildren, cannot limit memory, and its `forkserver` pickles functions, which candidates are
  not. Its resource tracker is one more process that outlives a SIGKILL.
* Threads: a segmentation fault or a lost CUDA context ends all of them.
* A fresh interpreter per question: 3 to 8 seconds each; a reduction asks hundreds of questions.
* Containers and cgroups end whole trees reliably, but need rights that a user does not have.

Every `os.fork` is in forks.py and supervise.py; emitted scripts carry one of their own
(`repro_templates/program/program_sides.py`). macOS has no `/proc` and no death signal: there, groups
and pipes end processes, and nothing is limited.
"""
