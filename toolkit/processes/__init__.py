"""Child processes: start, supervise, find and end them.

The problem
-----------
A debugger of compilers runs programs that crash, hang, use up the memory, fork daemons and break
CUDA for the rest of their process. None of these may end ctk, lose the best result so far, or leave
a process or folder behind. And a question ("does this candidate still fail?") should cost
milliseconds, although importing torch and Inductor costs seconds and hundreds of megabytes.

The idea: a zygote
------------------
A *warm server* (warm.py) imports torch once and runs no operator: it has no threads and no CUDA
context, so it is safe to fork. Questions are answered by a *fork* of it (forks.py), which shares
all imports and starts in milliseconds. A fork that crashes, exceeds a limit or leaves processes
behind is replaced by another one. A crash is the exit status of the fork. With several jobs,
the servers are themselves forks of one more warm process, the *zygote* (Android's word).

    ctk (supervisor) --fork--> ctk (working half)       supervise.py; notes over a pipe: link.py
                                 | Popen, socket
                                 v
                               zygote      imports torch once, forks a worker per job
                                 | fork
                                 v
                               worker      reads questions, forks a child, checks time and memory
                                 | fork
                                 v
                               child       leads a process group; compiles, runs, judges the case
                                 | Popen
                                 v
                               g++, ptxas, a daemon of the user's program

An example: the compiled program of one candidate hangs, with `--timeout 60` and a deadline of 4 s.

1. The worker (oracle/executors/worker.py) selects on the pipe of the child and on its own stdin.
   After 4 s, plus the time in which the child had no core (tree.py, `CoreWaits`), but after 60 s at
   most, it kills the group of the child and then all of its own descendants. A daemon that left
   the group is one of them, because the worker adopts orphans (`PR_SET_CHILD_SUBREAPER`). It
   answers `timeout`; the next question gets a new child.
2. Ctrl-C instead reaches only ctk, because servers and children lead groups of their own. ctk
   closes the stdin of the worker, which ends its child and itself; after 5 s its group is killed.
3. `kill -9` of ctk instead: forked processes die with their parent (`PR_SET_PDEATHSIG`), servers
   read the end of their stdin. The temporary folder remains. Its name and the variable `CTK_OWNER`
   of each child hold the dead owner; the next run ends and removes both (scratch.py, `sweep`).

Three ways to find a process, from cheap to thorough: its *group* (groups.py); its *ancestors*, read
from `/proc` (tree.py); a *mark* in its environment, for a daemon whose ancestors have ended.

Limits hold for a whole tree. Memory counts anonymous and shared pages (memory.py), since `ulimit
-v` would count the terabytes of addresses that CUDA reserves. A deadline that is shorter than
`--timeout` excludes the time in which a process was ready to run and had no core: on a busy
machine, a slow process does not hang.

Why not otherwise
-----------------
* `multiprocessing.Pool` waits forever for a worker that crashed; `concurrent.futures` reports
  `BrokenProcessPool` without the signal and discards all workers. Neither kills grandchildren or
  limits memory, and `forkserver` pickles functions, which the predicate of a user need not support.
* Threads: a segmentation fault or a broken CUDA context ends all of them.
* A fresh interpreter per question costs seconds; a reduction asks hundreds of questions.
* Containers and control groups end whole trees reliably, but need rights that users may not have.

Each `os.fork` of ctk is in forks.py or supervise.py; emitted scripts carry another one
(`repro_templates/program/program_sides.py`). macOS has neither `/proc` nor a death signal: there,
groups and pipes end processes, and memory is not limited.
"""
