"""Programs whose threads compile at the same time; what each prints does not depend on that."""

POOL = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import torch
backends = sys.argv[1].split(",")
count = 8
barrier = threading.Barrier(count)

def make(k):
    def f(x, w):
        y = torch.sin(x * (k + 1)) @ w
        return torch.nn.functional.gelu(y).sum(0) + torch.ones(3)
    return f

def job(k):
    g = torch.Generator().manual_seed(k)
    x, w = torch.randn(4, 5, generator=g), torch.randn(5, 3, generator=g, requires_grad=True)
    barrier.wait()
    f = torch.compile(make(k), backend=backends[k % len(backends)])
    out = f(x, w)
    out.sum().backward()
    torch.testing.assert_close(out.detach(), make(k)(x, w.detach()))
    assert torch.ones(1).dtype is torch.float32
    return [*out.tolist(), *w.grad.flatten().tolist()]

with ThreadPoolExecutor(count) as pool:
    for row in pool.map(job, range(count)):
        print(row)
"""

ASYNC = """
import asyncio, sys
import torch
backends = sys.argv[1].split(",")

def make(k):
    def f(x):
        return (x.cos() * k).softmax(-1).square().sum() + x.mean()
    return f

def job(k):
    f, x = make(k), torch.linspace(0, 1, 6 + k)
    out = torch.compile(f, backend=backends[k % len(backends)])(x)
    torch.testing.assert_close(out, f(x))
    return float(out)

async def main():
    loop = asyncio.get_running_loop()
    jobs = [asyncio.to_thread(job, k) for k in range(4)]
    jobs += [loop.run_in_executor(None, job, k) for k in range(4, 8)]
    for number in await asyncio.gather(*jobs):
        print(number)

asyncio.run(main())
"""

SAME_FUNCTION = """
import sys, threading
import torch
count = 6
barrier = threading.Barrier(count)
results = {}

@torch.compile(backend=sys.argv[1].split(",")[0])
def f(x):
    return (x.sin() * 2).relu().sum() + torch.ones(())

def job(k):
    x = torch.full((4,), k + 0.5, requires_grad=True)
    barrier.wait()
    out = f(x)
    out.backward()
    results[k] = (out.item(), x.grad.tolist())

threads = [threading.Thread(target=job, args=(k,)) for k in range(count)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(results.items()))
assert len(results) == count
"""

PROGRAMS = {"pool": POOL, "async": ASYNC, "same_function": SAME_FUNCTION}
