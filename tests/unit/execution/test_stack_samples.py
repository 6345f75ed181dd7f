"""The hot function of sampled stacks: the innermost of a compiler, with any callers."""

import threading

from ctk.toolkit.execution.stack_samples import StackSamples, sample_stack


def samples_of(*stacks: str) -> StackSamples:
    samples = StackSamples()
    for stack in stacks:
        samples.add([f"{name}:f" for name in stack.split()])
    return samples


def test_two_phases_that_call_the_same_function() -> None:
    samples = samples_of("torch.a torch.sizes sympy.core", "torch.b torch.c torch.sizes sympy.x")
    assert samples.hot_function() == "torch.sizes:f"


def test_a_recursion_counts_once_a_sample() -> None:
    samples = samples_of("torch.a torch.b torch.b torch.b", "torch.a torch.c", "torch.a torch.d")
    assert samples.hot_function() == "torch.a:f"


def test_the_toolkit_and_libraries_are_not_named() -> None:
    assert samples_of("ctk.toolkit.x sympy.core").hot_function() == ""
    assert samples_of("ctk.compiler.passes.x ctk.toolkit.y").hot_function() == (
        "ctk.compiler.passes.x:f"
    )
    assert StackSamples().hot_function() == ""


def test_a_thread_is_sampled_while_it_works() -> None:
    before = threading.active_count()
    with sample_stack() as samples:
        while samples.count < 3:
            pass
    assert threading.active_count() == before
    assert any(name.startswith(__name__) for name in samples.depths)
