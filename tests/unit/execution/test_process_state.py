"""What a graph switched on in torch is off again when it has raised in between."""

import pytest
import torch

from ctk.compiler.torch_compat.process.process_state import process_state_kept
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.execution.execute import run_compiled, run_graph

# torch says it of its own code
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def raising_in_vmap() -> torch.fx.GraphModule:
    """Return the graph that Dynamo makes of `vmap(cholesky)`."""
    found: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, _inputs: object) -> object:
        found.append(gm)
        return gm.forward

    torch.compiler.reset()
    torch.compile(torch.func.vmap(torch.linalg.cholesky), backend=backend)(torch.eye(3)[None])
    return found[0]


def test_a_graph_that_raises_in_vmap_leaves_no_level() -> None:
    outcome = run_graph(raising_in_vmap(), [-torch.eye(3)[None]], Modes())
    assert "cholesky" in str(outcome.error)
    assert torch.equal(torch.ones(2), torch.ones(2))


def test_a_compile_that_raises_in_vmap_leaves_no_level() -> None:
    case = Case(raising_in_vmap(), (-torch.eye(3)[None],), target="eager")
    assert "cholesky" in str(run_compiled(case).error)
    assert torch.equal(torch.ones(2), torch.ones(2))


def test_a_graph_that_was_cut_inside_of_vmap_is_an_error_and_leaves_no_level() -> None:
    gm = raising_in_vmap()
    (leaving,) = (n for n in gm.graph.nodes if n.name.startswith("_vmap_decrement_nesting"))
    gm.graph.erase_node(leaving)
    gm.recompile()
    outcome = run_graph(gm, [torch.eye(3)[None]], Modes())
    assert "entered, and not left" in str(outcome.error)
    assert torch.equal(torch.ones(2), torch.ones(2))


@pytest.mark.parametrize("interpreted", [True, False])
def test_a_compile_that_raises_in_inference_mode_leaves_it(interpreted: bool) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    guard = graph.call_function(torch.autograd.grad_mode._enter_inference_mode, (True,))
    viewed = graph.call_method("view", (x, 99))
    graph.call_function(torch.autograd.grad_mode._exit_inference_mode, (guard,))
    graph.output(viewed)
    gm = torch.fx.GraphModule({}, graph)
    kept = []  # as an outcome keeps it: the guard would leave the region when this is freed
    with pytest.raises(RuntimeError, match="shape") as caught, process_state_kept():
        (torch.fx.Interpreter(gm).run if interpreted else gm)(torch.ones(3))
    kept.append(caught.value)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    with torch.no_grad():
        caught = None
        kept.clear()
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_dual_level_and_switches_are_put_back() -> None:
    with pytest.raises(ZeroDivisionError), process_state_kept():
        torch._C._enter_dual_level()  # pyright: ignore[reportPrivateUsage]
        torch._C._set_fwd_grad_enabled(False)  # pyright: ignore[reportPrivateUsage]
        torch._C._set_sdp_use_math(False)  # pyright: ignore[reportPrivateUsage]
        raise ZeroDivisionError
    with torch.autograd.forward_ad.dual_level():  # two levels are more than torch has
        assert torch.autograd.forward_ad._is_fwd_grad_enabled()  # pyright: ignore[reportPrivateUsage]
    assert torch.backends.cuda.math_sdp_enabled()


def test_a_callers_dual_level_stays() -> None:
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(ZeroDivisionError), process_state_kept():
            raise ZeroDivisionError
        dual = torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))
        assert torch.autograd.forward_ad.unpack_dual(dual).tangent is not None
