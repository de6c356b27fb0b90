"""Plan files of MXNet networks: the checks of their symbols, and facts that older ones lack."""
from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from ...graph.types import Graph, Op
from ...plan import plan_file
from ...plan.plan import Plan
from ..symbol.symbol_check import checked_symbol

#: Ops that MXNet puts between those of the symbol when it binds.
_OF_MXNET = ("_CrossDeviceCopy",)
# What today's captures tell (``plugins/mxnet/op_facts.cc``), for files of schema 1.
_RUN_BY_THEMSELVES = frozenset((
    "Custom", "_backward_Custom", "_NDArray", "_backward__NDArray", "_CrossDeviceCopy", "_copyto",
    "_foreach", "_backward_foreach", "_while_loop", "_backward_while_loop", "_cond",
    "_backward_cond", "_CachedOp", "_backward_CachedOp"))
_REARRANGED_WEIGHT = {"Convolution": 1, "Deconvolution": 1, "FullyConnected": 1}
_NEED_READERS = frozenset((
    "Convolution", "Deconvolution", "Crop", "hard_sigmoid", "LayerNorm", "GroupNorm"))


def with_facts(graph: Graph) -> Graph:
    """The graph with what its ops' kinds tell; other implementations read the same weights."""
    return replace(graph, ops=tuple(map(_with_facts, graph.ops)))


def _with_facts(op: Op) -> Op:
    own_buffers = _own_buffers(op)
    values = op.inputs + op.outputs
    apart = {values[position] for position in own_buffers}
    return replace(
        op, own_buffers=own_buffers, needs_reader=op.kind in _NEED_READERS,
        adds_into_first=op.kind == "_grad_add" and len(op.inputs) == 2,
        unwritten_outputs=(1,) if op.kind == "Pooling" and len(op.outputs) > 1 else (),
        alternatives=tuple(replace(other, own_buffers=tuple(
            position for position, tensor in enumerate(other.inputs + other.outputs)
            if tensor in apart)) for other in op.alternatives))


def _own_buffers(op: Op) -> Tuple[int, ...]:
    if op.kind in _RUN_BY_THEMSELVES:
        return tuple(range(len(op.inputs) + len(op.outputs)))
    weight = _REARRANGED_WEIGHT.get(op.kind)
    return (weight,) if weight and len(op.inputs) > weight else ()


class _Symbols:
    """MXNet's side of reading a plan file."""

    def completed(self, graph: Graph) -> Graph:
        return with_facts(graph)

    def check(self, plan: Plan) -> None:
        """Raise ValueError unless the symbol has the ops of the graph and takes its decisions."""
        if plan.original_json is None:
            return
        nodes = {(node["name"], node["op"])
                 for node in checked_symbol(plan.original_json)["nodes"]}
        for op in plan.graph.ops:
            if not op.is_backward and op.kind not in _OF_MXNET and \
                    (op.name.partition("~")[0], op.kind) not in nodes \
                    and (op.name, op.kind) not in nodes:
                raise ValueError("the symbol has no op %r (%s)" % (op.name, op.kind))
        checked_symbol(plan.symbol_json or "")


def load_plan(path: str) -> Plan:
    """Read a plan file; nothing of MXNet is needed.

    Parameters
    ----------
    path : str

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If the file cannot be opened.
    PlanSchemaError
        If it is damaged, was changed, is no plan, or is from a newer memonger; or if its numbers
        are not those of its graph and decisions.
    PlanMismatch
        If its decisions belong to another graph than the one it holds.
    """
    return plan_file.load_plan(path, _Symbols())


def loads(text: str) -> Plan:
    """The plan in the text of a file; raises as :func:`load_plan`."""
    return plan_file.loads(text, _Symbols())
