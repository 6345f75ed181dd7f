"""Turn inputs that are tensors of the user's module into attributes of the graph.

Dynamo captures them so for a target that freezes. A case that was captured for another target, or
with other options, is converted:

    def forward(self, l_x_, l_self_parameters_w_):      def forward(self, l_x_):
        return l_x_ + l_self_parameters_w_                  return l_x_ + self.l_self_parameters_w_
"""

import dataclasses

from torch import Tensor
from torch.nn import Parameter

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import attribute_targets, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.roles import HELD, Role


def hold_module_tensors(case: Case) -> Case:
    """Return a case whose inputs with static addresses are attributes of its graph.

    The attributes are named like the inputs; an input whose name is taken stays.
    """
    graph, kept = copy_graph_module(case.graph), list[object]()
    roles, taken = dict(case.roles), set(attribute_targets(case.graph.graph))
    body = next(node for node in graph.graph.nodes if node.op != "placeholder")
    for node, value in zip(placeholders(graph), case.inputs, strict=True):
        role = roles.get(node.name, Role("input"))
        if not (role.is_held and isinstance(value, Tensor)) or node.name in taken:
            kept.append(value)
            continue
        name = node.name
        if isinstance(value, Parameter):
            graph.register_parameter(name, value)
        else:
            graph.register_buffer(name, value)
        with graph.graph.inserting_before(body):
            attribute = graph.graph.get_attr(name)
        attribute.meta = {key: item for key, item in node.meta.items() if key != "grapharg"}
        node.replace_all_uses_with(attribute)
        graph.graph.erase_node(node)
        attribute.name = name
        roles[HELD + name] = dataclasses.replace(roles.pop(name), static="guarded")
    graph.recompile()
    dynamic = {name: sizes for name, sizes in case.dynamic.items() if HELD + name not in roles}
    return dataclasses.replace(case, graph=graph, inputs=tuple(kept), roles=roles, dynamic=dynamic)
