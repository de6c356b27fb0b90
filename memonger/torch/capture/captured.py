"""A training step as planning sees it, and the joint graph of forward and backward behind it."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

import torch.fx as fx

from ...graph.types import Graph, Tensor
from ..pytorch import private_joint
from ..pytorch.sizes import open_sizes
from .written import Written

#: Categories of the tensors that exist before the step.
PARAMETER, BUFFER, INPUT, TANGENT = "parameter", "aux", "input", "head_gradient"
#: Ends the name of a tensor that is there only while its op runs.
TEMPORARY = ":temporary"


@dataclass
class Captured:
    """A training step as planning sees it, and the nodes that it was read from."""

    graph: Graph
    joint: fx.GraphModule
    num_forward_outputs: int
    #: Node of each op; None for the op that writes new values into buffers.
    nodes: List[Optional[fx.Node]]
    #: For each node the tensors that its value lies in; None for what is no tensor.
    tensors_of: Dict[fx.Node, List[Optional[int]]]
    #: Nodes that make no storage: they run again beside their readers.
    views: Set[fx.Node]
    #: For each op the nodes that are part of it and of others that read them, under Inductor.
    parts: List[List[fx.Node]]
    #: Inputs that forward writes into, and who reads them.
    written: Written
    #: Sizes are symbols: read with the hints of the example inputs.
    dynamic: bool
    device: str
    #: Where times come from that were not measured, as ``Plan.costs`` says it.
    costs: str
    #: Bytes of each tensor, and of what each op takes while it runs, at the sizes in force.
    sizes: List[Callable[[], int]]
    temporaries: Dict[int, Callable[[], int]]
    #: Under Inductor the names of what its backward runs without a plan.
    usually_late: Set[str] = field(default_factory=set)
    #: What the plain step takes without a plan, of one in depth (:mod:`..rewrite.in_depth`).
    plain_pool_bytes: Optional[int] = None
    #: Inductor's configuration for that form.
    lowering: Mapping[str, Any] = field(default_factory=dict)
    #: What the optimizer holds, where one is named.
    optimizer_bytes: Optional[int] = None
    #: What the step's results and the optimizer's step take, where no op of the graph does.
    at_optimizer_bytes: int = 0
    #: Of gradients that exist before the step, which it adds to.
    gradient_bytes: int = 0
    #: Of ops that move values to the host and back: what each does, and to which value; the values
    #: that they make; and the node of each value that may move, a tensor that fills its memory.
    #: See :mod:`memonger.graph.offload`.
    moves: Mapping[int, Tuple[str, int]] = field(default_factory=dict)
    value_of: Mapping[int, int] = field(default_factory=dict)
    value_nodes: Mapping[int, fx.Node] = field(default_factory=dict)
    #: Of a step of several graphs these, one :class:`..laid.Run` for each call.
    runs: Tuple[Any, ...] = ()
    ops_by_node: Dict[fx.Node, int] = field(init=False)
    #: Of each op that the module's own checkpoints compute again, the number of the checkpoint.
    checkpoints: Dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ops_by_node = {node: op for op, node in enumerate(self.nodes) if node is not None}
        numbers = {op: private_joint.checkpoint_of(node) for node, op in self.ops_by_node.items()}
        self.checkpoints = {op: number for op, number in numbers.items() if number is not None}

    @property
    def sized_by_values(self) -> bool:
        """Whether a size depends on values, as those of ``x[mask]`` do."""
        return any(open_sizes(node.meta.get("val")) for node in self.joint.graph.nodes)

    @property
    def joints(self) -> List[fx.GraphModule]:
        """The joint graphs of the step, each once."""
        return [self.joint] if not self.runs else list(dict.fromkeys(
            run.captured.joint for run in self.runs))

    def graph_now(self) -> Graph:
        """The graph at the sizes in force; see :func:`..pytorch.sizes.in_force`."""
        tensors = [replace(tensor, size_bytes=bytes_now())
                   for tensor, bytes_now in zip(self.graph.tensors, self.sizes)]
        tensors += self.graph.tensors[len(tensors):]  # of the optimizer
        ops = list(self.graph.ops)
        for op, bytes_now in self.temporaries.items():
            outputs = ops[op].outputs
            if bytes_now() and not any(tensors[t].name.endswith(TEMPORARY) for t in outputs):
                tensors.append(Tensor(ops[op].name + TEMPORARY, bytes_now(), op, "activation"))
                ops[op] = ops[op].changed(outputs=(*outputs, len(tensors) - 1))
        return replace(self.graph, tensors=tuple(tensors), ops=tuple(ops))

    @property
    def outside_bytes(self) -> Dict[str, int]:
        """Bytes that exist all the time, by category of ``Plan.fixed_bytes``."""
        names = {PARAMETER: "parameters", BUFFER: "aux", INPUT: "inputs",
                 TANGENT: "head_gradients"}
        sizes = dict.fromkeys(names.values(), 0)
        for tensor, bytes_now in zip(self.graph.tensors, self.sizes):
            if tensor.producer < 0:
                sizes[names[tensor.category]] += bytes_now()
        if self.optimizer_bytes is not None:
            sizes["optimizer"] = self.optimizer_bytes
        if self.gradient_bytes:
            sizes["gradients"] = self.gradient_bytes
        return sizes
